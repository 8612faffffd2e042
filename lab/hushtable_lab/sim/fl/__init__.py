"""What federated rounds through an oblivious memory on an SSD cost, after FEDORA (ASPLOS 2025).

The drive's life, the time a round takes, hardware, power and energy.
"""

from __future__ import annotations

from .cost import Costs
from .counts import DESIGNS, FEDORA, HUSHTABLE, PATH_PLUS, Design, Pages
from .datasets import DATASETS, Dataset
from .geometry import Tree, own_tree, path_tree, raw_tree
from .measured import Run, RunTime, Times, read_runs
from .points import REQUESTS, TABLES, Point, TableSize, points, simulate, table_1
from .privacy import MECHANISMS, Accesses, accesses, mean_accesses, probabilities

__all__ = [
    "DATASETS",
    "DESIGNS",
    "FEDORA",
    "HUSHTABLE",
    "MECHANISMS",
    "PATH_PLUS",
    "REQUESTS",
    "TABLES",
    "Accesses",
    "Costs",
    "Dataset",
    "Design",
    "Pages",
    "Point",
    "Run",
    "RunTime",
    "TableSize",
    "Times",
    "Tree",
    "accesses",
    "mean_accesses",
    "own_tree",
    "path_tree",
    "points",
    "probabilities",
    "raw_tree",
    "read_runs",
    "simulate",
    "table_1",
]
