"""Times OpenFHE's CKKS bootstrapping on one core, for bench/peers/run.py. Prints one line of JSON.

    python bench/peers/openfhe/bootstrap.py [RUNS [DEGREE]]

All slots at the degree, 65536 if none is given, with a sparse secret by encapsulation and at the
library's own 128 bits. Below 32768 it has none, and the set says so.

``ms`` is the median over runs of the process's CPU time, which another process on the same core
does not lengthen as it does wall time; ``best_ms`` is the least.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from math import log2
from pathlib import Path
from typing import Any

import openfhe

#: Bits of q_0 and of the scale, levels that are to be left, and the maps each way. At all slots the
#: library takes a q_0 of eight bits more than the scale; one level more is not of 128 bits.
FIRST, SCALE, LEFT, MAPS = 58, 50, 8, [3, 3]


def written(write: Callable[[str], bool]) -> int:
    """How many bytes something writes into a file; they are counted and not kept."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder) / "pipe"
        os.mkfifo(pipe)
        count = subprocess.Popen(["wc", "-c", str(pipe)], stdout=subprocess.PIPE, text=True)
        if not write(str(pipe)):
            raise RuntimeError("OpenFHE did not serialise its keys")
        said, _ = count.communicate()
        return int(said.split()[0])


def measure(runs: int, degree: int) -> dict[str, Any]:
    """The line of a degree."""
    slots = degree // 2
    parameters = openfhe.CCParamsCKKSRNS()
    distribution = openfhe.SPARSE_ENCAPSULATED
    parameters.SetSecretKeyDist(distribution)
    level = openfhe.HEStd_128_classic if degree >= 1 << 15 else openfhe.HEStd_NotSet
    parameters.SetSecurityLevel(level)
    parameters.SetRingDim(degree)
    parameters.SetBatchSize(slots)
    parameters.SetScalingModSize(SCALE)
    parameters.SetFirstModSize(FIRST)
    parameters.SetScalingTechnique(openfhe.FLEXIBLEAUTO)
    depth = LEFT + openfhe.CryptoContext.GetBootstrapDepth(MAPS, distribution)
    parameters.SetMultiplicativeDepth(depth)
    context = openfhe.GenCryptoContext(parameters)
    for feature in ("PKE", "KEYSWITCH", "LEVELEDSHE", "ADVANCEDSHE", "FHE"):
        context.Enable(getattr(openfhe.PKESchemeFeature, feature))
    context.EvalBootstrapSetup(MAPS, [0, 0], slots)
    keys = context.KeyGen()
    context.EvalMultKeyGen(keys.secretKey)
    context.EvalBootstrapKeyGen(keys.secretKey, slots)
    source = random.Random(1)
    values = [2 * source.random() - 1 for _ in range(slots)]
    plain = context.MakeCKKSPackedPlaintext(values, 1, depth - 1, None, slots)
    cipher = context.Encrypt(keys.publicKey, plain)
    refreshed = context.EvalBootstrap(cipher)
    taken = []
    for _ in range(runs):
        began = time.process_time()
        refreshed = context.EvalBootstrap(cipher)
        taken.append(1e3 * (time.process_time() - began))
    found = context.Decrypt(refreshed, keys.secretKey)
    found.SetLength(slots)
    pairs = zip(found.GetRealPackedValue(), values, strict=True)
    errors = [abs(got - value) for got, value in pairs]
    mean, worst = -log2(sum(errors) / slots), -log2(max(errors))
    # Written so that what is no number is refused.
    if not mean >= 8:
        raise RuntimeError(f"{mean} mean bits came back")
    binary = openfhe.BINARY
    key_bytes = written(lambda path: context.SerializeEvalMultKey(path, binary))
    key_bytes += written(lambda path: context.SerializeEvalAutomorphismKey(path, binary))
    kind = "128 bits" if degree >= 1 << 15 else "without security"
    return {
        "library": f"openfhe {version('openfhe')}",
        "operation": "bootstrap",
        "set": f"sparse encapsulated, {LEFT} x {SCALE} bits, {kind}",
        "degree": context.GetRingDimension(),
        "slots": slots,
        "levels_left": depth - refreshed.GetLevel() - (refreshed.GetNoiseScaleDeg() - 1),
        "scale_log2": SCALE,
        "mean_bits": mean,
        "worst_bits": worst,
        "key_bytes": key_bytes,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "ms": statistics.median(taken),
        "best_ms": min(taken),
        "runs": runs,
    }


def main() -> None:
    """The command."""
    runs, degree = (int(text) for text in [*sys.argv[1:], *["1", "65536"][len(sys.argv) - 1 :]])
    if runs < 1:
        raise SystemExit(f"{runs} runs: at least 1")
    print(json.dumps(measure(runs, degree)))


if __name__ == "__main__":
    main()
