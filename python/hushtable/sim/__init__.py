"""What a deployment would cost, before any money is spent: models, not measurements.

:mod:`hushtable.sim.fl` prices federated rounds through an oblivious memory on an SSD.
"""
