"""What TenSEAL (SEAL's CKKS) computes, for our tests to compare values with.

    pip install tenseal==0.3.18 && python bench/ckks_tenseal.py > vectors/ckks_tenseal.json

Ciphertexts of two libraries cannot be compared; what they decrypt to can. The numbers are drawn by
a generator of our own, so that the file can be made again, and go through TenSEAL encrypted.
"""

import json

import tenseal

DEGREE = 8192
MODULUS_BITS = [60, 40, 40, 60]
SCALE_LOG2 = 40


def numbers(count: int, state: int) -> list[float]:
    """Numbers from -1 to 1, of a linear congruence; exact in six decimals."""
    out = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((state >> 44) % 2_000_001 / 1_000_000 - 1)
    return [round(value, 6) for value in out]


def main() -> None:
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=MODULUS_BITS)
    context.global_scale = 2.0**SCALE_LOG2
    context.generate_galois_keys()

    def encrypt(values: list[float]) -> tenseal.CKKSVector:
        return tenseal.ckks_vector(context, values)

    a, b = numbers(64, 1), numbers(64, 2)
    matrix = [numbers(16, 10 + row) for row in range(64)]
    # What rotates is a matrix of ones: TenSEAL has no rotation of its own.
    shift = [
        [1.0 if (row - 5) % 64 == column else 0.0 for column in range(64)] for row in range(64)
    ]
    cubic = [0.25, -1.5, 0.5, 0.75]
    results = {
        "add": (encrypt(a) + encrypt(b)).decrypt(),
        "multiply": (encrypt(a) * encrypt(b)).decrypt(),
        "multiply_plain": (encrypt(a) * b).decrypt(),
        "square_square": encrypt(a).square().square().decrypt(),
        "rotate_5": encrypt(a).mm(shift).decrypt(),
        "sum": encrypt(a).sum().decrypt(),
        "dot": encrypt(a).dot(encrypt(b)).decrypt(),
        "cubic": encrypt(a).polyval(cubic).decrypt(),
        # One layer, its bias, and a square: what a model does.
        "layer": (encrypt(a).mm(matrix) + b[:16]).square().decrypt(),
    }
    dense = [sum(x * row[j] for x, row in zip(a, matrix, strict=True)) + b[j] for j in range(16)]
    exact = {
        "add": [x + y for x, y in zip(a, b, strict=True)],
        "multiply": [x * y for x, y in zip(a, b, strict=True)],
        "multiply_plain": [x * y for x, y in zip(a, b, strict=True)],
        "square_square": [x**4 for x in a],
        "rotate_5": a[5:] + a[:5],
        "sum": [sum(a)],
        "dot": [sum(x * y for x, y in zip(a, b, strict=True))],
        "cubic": [sum(c * x**k for k, c in enumerate(cubic)) for x in a],
        "layer": [x * x for x in dense],
    }
    for name, values in exact.items():
        error = max(abs(x - y) for x, y in zip(values, results[name], strict=True))
        assert error < 1e-3, f"{name}: {error}"
    document = {
        "format": 1,
        "library": f"tenseal {tenseal.__version__}",
        "degree": DEGREE,
        "modulus_bits": MODULUS_BITS,
        "scale_log2": SCALE_LOG2,
        "a": a,
        "b": b,
        "matrix": matrix,
        "cubic": cubic,
        "exact": {name: [round(value, 12) for value in values] for name, values in exact.items()},
        "results": {
            name: [round(value, 9) for value in values] for name, values in results.items()
        },
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
