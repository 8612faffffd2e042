"""What a deployment would cost, before any money is spent: models, not measurements.

:mod:`hushtable_lab.sim.fl` prices federated rounds through an oblivious memory on an SSD,
:mod:`hushtable_lab.sim.inference` runs private inference under load, and
:mod:`hushtable_lab.sim.accelerator` times single-server retrieval on hardware that is described as
data; :mod:`hushtable_lab.sim.serve` sizes tables on many machines.
"""
