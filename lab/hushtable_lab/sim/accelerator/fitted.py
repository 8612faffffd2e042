"""Every value that the paper leaves unsaid and that is fitted to something it prints.

Numbers are here; choices that were made with a published value in sight, and so are no prediction:

* ``machines/ive-separate.toml``: area and power of the GEMM arrays apart, to Figure 13e (sysNTTU).
* ``machines/ark.toml``: half of IVE's register file port and 2/5 of its power a core, to Figure 14a
  (throughput and energy; with the whole port it has 3.0x, not 4.2x).
* ``system.py``: SimplePIR's sums drain before the next tile and others' while it enters, to Table
  IV at 2 GB and Table III.
* ``energy.py``: a core's power beyond its listed components counts as nothing, and the register
  file's by its traffic, to the energy at 8 GB (with it, 0.117 J and not 0.100).
* ``system.py``: how tiles of a matrix product fill and drain (256 + 46 cycles), to Table III and
  the 591 QPS of Figure 13c.
* ``schedule.py``: room for three ciphertexts in flight in an expansion, to Figure 8a.

The depths of units' pipelines and the network's rate (``machines/``) are not printed either: they
are assumed, from wires and lanes, and others were not tried. What is left is printed in the paper
or follows from the simulation.
"""

from __future__ import annotations

__all__ = [
    "EXPAND_DIGITS",
    "KSPIR_PCIE_BYTES",
    "KSPIR_PLAIN_BITS",
    "KSPIR_ROTATIONS",
    "MULTIPLIER_SAVING",
    "PCIE_BYTES",
    "PROCESSOR_OVERHEAD",
    "SPLIT_DEPTH",
    "TOURNAMENT_DIGITS",
]

#: l of the substitutions' keys (Table I: 5 to 8). Of Figure 8a: with 8, breadth-first subtrees have
#: depth 2 and depth-first ones 3, whose traffic is nearest 1.75x and a further 7 %.
EXPAND_DIGITS = 8
#: l of the selection bits. Of the sizes printed (1120 KB of an RGSW ciphertext is l = 5).
TOURNAMENT_DIGITS = 5
#: Over PCIe for a query and its answer ("a few MB" in the paper). Of Table III, 2 GB.
PCIE_BYTES = 1 << 20
#: Products that the element-wise unit and the arrays sum in place in SimplePIR. Of Table IV,
#: SimplePIR at 2 GB.
SPLIT_DEPTH = 256
#: Bits of a plaintext coefficient in KsPIR (its records are 8 KB). Of Table IV, KsPIR at 2 GB.
KSPIR_PLAIN_BITS = 16
#: Key switches before its matrix product. Of the same.
KSPIR_ROTATIONS = 16
#: Its query and answer; keys stay at the server. Printed by OnionPIRv2 (140 KB and 26 KB).
KSPIR_PCIE_BYTES = 170_000
#: Of a unit's area and power, what special primes save. Printed for the multipliers alone (section
#: IV-G); that a unit is all multiplier is ours.
MULTIPLIER_SAVING = 0.091
#: What an operation takes within hushtable's engine for each second that it takes alone, where
#: operands lie side by side in one huge page and the code is hot: pages that are looked up, calls,
#: pools. Of `bench onion`: ExpandQuery and ColTor of 64 MiB and four queries, one thread, 64.3 ms
#: on ``processors/sapphire-rapids.toml``. RowSel and every other size are predicted.
PROCESSOR_OVERHEAD = 1.16
