"""What a deployment would cost, before any money is spent: models, not measurements.

:mod:`hushtable.sim.fl` prices federated rounds through an oblivious memory on an SSD,
:mod:`hushtable.sim.inference` runs private inference under load, and
:mod:`hushtable.sim.accelerator` times single-server retrieval on hardware that is described as
data; :mod:`hushtable.sim.serve` sizes tables on many machines.
"""
