"""hushtable's laboratory: what measures it, and what predicts it before money is spent.

:mod:`hushtable_lab.sim` has models of deployments and machines. The commands ``hushtable sim`` and
``hushtable bench`` are there where this package is installed: looking rows up takes neither.
"""
