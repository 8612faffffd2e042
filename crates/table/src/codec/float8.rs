//! Floats of eight bits, as the Open Compute Project's OFP8 has them.

use half::f16;

/// One of the two kinds: its mantissa's bits, its exponent's bias, and its largest number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Float8 {
    mantissa: u32,
    bias: i32,
    pub(super) max: f32,
}

impl Float8 {
    /// No infinities, one NaN of each sign (torch's `float8_e4m3fn`).
    pub(super) const E4M3: Self = Self { mantissa: 3, bias: 7, max: 448.0 };
    /// As IEEE 754 would have it: infinities and NaNs (torch's `float8_e5m2`).
    pub(super) const E5M2: Self = Self { mantissa: 2, bias: 15, max: 57_344.0 };

    /// The nearest, ties to even; what is past the largest becomes that. `value` is no NaN.
    pub(super) fn encode(self, value: f32) -> u8 {
        let sign = (value.to_bits() >> 24) as u8 & 0x80;
        let magnitude = value.abs().min(self.max);
        let power = |exponent: i32| f32::from_bits(((127 + exponent) as u32) << 23);
        if magnitude < power(1 - self.bias) {
            // Multiples of the smallest step; the one past the last is the smallest normal number's code.
            let steps = magnitude * power(self.bias - 1 + self.mantissa as i32);
            return sign | steps.round_ties_even() as u8;
        }
        let (bits, shift) = (magnitude.to_bits(), 23 - self.mantissa);
        let rounded = bits + ((1 << (shift - 1)) - 1) + ((bits >> shift) & 1);
        sign | ((rounded >> shift) - (((127 - self.bias) as u32) << self.mantissa)) as u8
    }
}

/// The number of an e4m3 code.
pub(super) fn decode_e4m3(code: u8) -> f32 {
    E4M3[usize::from(code)]
}

/// The number of an e5m2 code: a half-precision number's first byte.
pub(super) fn decode_e5m2(code: u8) -> f32 {
    f16::from_bits(u16::from(code) << 8).to_f32()
}

const E4M3: [f32; 256] = {
    let mut numbers = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let (exponent, mantissa) = ((code as u32 >> 3) & 15, code as u32 & 7);
        let magnitude = match (exponent, mantissa) {
            (15, 7) => f32::NAN,
            // Subnormal: steps of 2^-9.
            (0, steps) => steps as f32 / 512.0,
            _ => f32::from_bits(((exponent + 120) << 23) | (mantissa << 20)),
        };
        numbers[code] = if code < 128 { magnitude } else { -magnitude };
        code += 1;
    }
    numbers
};

#[cfg(test)]
mod tests {
    use super::*;

    type Decode = fn(u8) -> f32;

    const KINDS: [(Float8, Decode); 2] = [(Float8::E4M3, decode_e4m3), (Float8::E5M2, decode_e5m2)];

    #[test]
    fn every_number_is_its_own_code() {
        for (kind, decode) in KINDS {
            let mut finite = 0;
            for code in 0..=255_u8 {
                let number = decode(code);
                if number.is_finite() {
                    assert_eq!(kind.encode(number), code, "{number}");
                    finite += 1;
                }
            }
            assert_eq!(finite, if kind.mantissa == 3 { 254 } else { 248 });
        }
        assert_eq!(
            [decode_e4m3(0x7e), decode_e4m3(1), decode_e4m3(0x38)],
            [448.0, 0.001_953_125, 1.0]
        );
        assert_eq!([decode_e5m2(0x7b), decode_e5m2(0x3c)], [57_344.0, 1.0]);
        assert!(decode_e4m3(0x7f).is_nan() && decode_e4m3(0xff).is_nan());
        assert!(decode_e5m2(0x7c).is_infinite() && decode_e5m2(0x7d).is_nan());
    }

    #[test]
    fn between_two_numbers_the_nearer_is_taken_and_of_ties_the_even_one() {
        for (kind, decode) in KINDS {
            for code in 0..kind.encode(kind.max) {
                let (below, above) = (decode(code), decode(code + 1));
                let middle = f32::midpoint(below, above);
                assert_eq!(kind.encode(middle.next_down()), code);
                assert_eq!(kind.encode(middle.next_up()), code + 1);
                assert_eq!(kind.encode(middle), code + (code & 1));
                assert_eq!(kind.encode(-middle), 0x80 | (code + (code & 1)));
            }
            assert_eq!(kind.encode(1e30), kind.encode(kind.max));
        }
    }
}
