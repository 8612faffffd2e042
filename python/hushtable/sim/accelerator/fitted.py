"""Every value that the paper leaves unsaid and that is fitted to something it prints: all here.

Whatever is not here is printed in the paper (``machines/``) or follows from the simulation.
"""

from __future__ import annotations

__all__ = [
    "EXPAND_DIGITS",
    "KSPIR_PCIE_BYTES",
    "KSPIR_PLAIN_BITS",
    "KSPIR_ROTATIONS",
    "MULTIPLIER_SAVING",
    "MULTS_PER_BUTTERFLY",
    "PCIE_BYTES",
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
#: Integer multiplications that a butterfly counts as. Of Figure 4a's range.
MULTS_PER_BUTTERFLY = 3
#: Of a unit's area and power, what special primes save. Printed for the multipliers alone (section
#: IV-G); that a unit is all multiplier is ours.
MULTIPLIER_SAVING = 0.091
