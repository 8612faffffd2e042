//! NumPy's `.npy`: a magic, a Python dict literal, the values.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use super::SourceError;
use super::read_at::ReadAt;
use super::tensor::{Element, Entry, Kind, TensorInfo, strides_in_order};

const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// NumPy itself refuses longer ones unless told otherwise, at 10,000.
const HEADER_BYTES_MAX: u64 = 65_536;

/// What is wrong with a `.npy` file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The values are stored in another byte order than a table's.
    #[error("the array is big-endian ({descr}); save array.astype(array.dtype.newbyteorder('<'))")]
    BigEndian {
        /// The dtype as NumPy writes it.
        descr: String,
    },
    /// The values are not floats that a table is made of.
    #[error(
        "the array's dtype is {descr}; a table is built from <f2, <f4 or <f8: save array.astype('float32')"
    )]
    Descr {
        /// The dtype as NumPy writes it, cut to 64 characters.
        descr: String,
    },
    /// The array is stored column by column.
    #[error("the array is in Fortran order; save numpy.ascontiguousarray(array)")]
    FortranOrder,
    /// A format version that did not exist when this was written.
    #[error("the .npy format version is {major}.{minor}; versions 1 to 3 are read")]
    FormatVersion {
        /// Its first number.
        major: u8,
        /// Its second number.
        minor: u8,
    },
    /// The header is not the dict that the format prescribes.
    #[error("the .npy header is malformed at byte {offset}: {expected} expected")]
    Header {
        /// Where, from the start of the dict.
        offset: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// The header is longer than any array's.
    #[error(
        "the .npy header says it is {byte_count} bytes long; at most {HEADER_BYTES_MAX} are read"
    )]
    HeaderLength {
        /// What the file says.
        byte_count: u64,
    },
    /// The file does not start as a `.npy` file does.
    #[error(
        "the file does not start as a .npy file does; write it with numpy.save (an .npz must be unpacked first)"
    )]
    Magic,
}

/// Reads the header of a `.npy` file that a table is to be built from.
pub(super) fn read_entry(file: &impl ReadAt) -> Result<Entry, SourceError> {
    let (entry, fortran_order) = read_array(file)?;
    if entry.info.element.is_none() {
        return Err(NpyError::Descr { descr: entry.info.dtype }.into());
    }
    if fortran_order {
        return Err(NpyError::FortranOrder.into());
    }
    Ok(entry)
}

/// Reads the header of a `.npy` file, and whether the array is stored column by column.
pub(super) fn read_array(file: &impl ReadAt) -> Result<(Entry, bool), SourceError> {
    let start = file.read_vec(0, file.size().min(8))?;
    if start.len() < 8 || start[..6] != MAGIC {
        return Err(NpyError::Magic.into());
    }
    let (length_bytes, byte_count) = match (start[6], start[7]) {
        (1, 0) => {
            let bytes = file.read_vec(8, 2)?;
            (2, u64::from(u16::from_le_bytes([bytes[0], bytes[1]])))
        }
        (2 | 3, 0) => {
            let bytes = file.read_vec(8, 4)?;
            (4, u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
        }
        (major, minor) => return Err(NpyError::FormatVersion { major, minor }.into()),
    };
    if byte_count > HEADER_BYTES_MAX {
        return Err(NpyError::HeaderLength { byte_count }.into());
    }
    let text = file.read_vec(8 + length_bytes, byte_count)?;
    let header = parse_header(&text)?;
    let offset = 8 + length_bytes + byte_count;
    let available = file.size() - offset;
    let values =
        header.shape.iter().fold(1_u128, |product, size| product.saturating_mul(u128::from(*size)));
    let value_bytes = header.kind.value_bytes;
    let expected = values.saturating_mul(u128::from(value_bytes));
    if expected != u128::from(available) {
        let expected = u64::try_from(expected.saturating_add(u128::from(offset)));
        let expected = expected.unwrap_or(u64::MAX);
        return Err(SourceError::Truncated { expected, found: file.size() });
    }
    let mut strides = strides_in_order(&header.shape);
    if header.fortran_order {
        let reversed: Vec<u64> = header.shape.iter().rev().copied().collect();
        strides = strides_in_order(&reversed);
        strides.reverse();
    }
    let element = match header.kind.name {
        "F16" => Some(Element::F16),
        "F32" => Some(Element::F32),
        "F64" => Some(Element::F64),
        _ => None,
    };
    let entry = Entry {
        strides,
        kind: Some(header.kind),
        info: TensorInfo { name: String::new(), shape: header.shape, dtype: header.descr, element },
        offset,
        byte_count: available,
    };
    Ok((entry, header.fortran_order))
}

struct Header {
    descr: String,
    kind: Kind,
    fortran_order: bool,
    shape: Vec<u64>,
}

fn parse_header(text: &[u8]) -> Result<Header, NpyError> {
    let mut cursor = Cursor { text, offset: 0 };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    cursor.expect(b'{', "{")?;
    while !cursor.accept(b'}') {
        let key = cursor.string()?;
        cursor.expect(b':', ":")?;
        match key {
            b"descr" => descr = Some(cursor.descr()?),
            b"fortran_order" => fortran_order = Some(cursor.boolean()?),
            b"shape" => shape = Some(cursor.tuple()?),
            _ => return Err(cursor.wrong("'descr', 'fortran_order' or 'shape'")),
        }
        if !cursor.accept(b',') {
            cursor.expect(b'}', ", or }")?;
            break;
        }
    }
    cursor.skip_spaces();
    if cursor.offset != text.len() {
        return Err(cursor.wrong("the end"));
    }
    let descr = descr.ok_or_else(|| cursor.wrong("'descr'"))?;
    if matches!(descr.as_str(), ">f2" | ">f4" | ">f8") {
        return Err(NpyError::BigEndian { descr });
    }
    let Some(kind) = Kind::of_numpy(&descr) else {
        return Err(NpyError::Descr { descr });
    };
    Ok(Header {
        descr,
        kind,
        fortran_order: fortran_order.ok_or_else(|| cursor.wrong("'fortran_order'"))?,
        shape: shape.ok_or_else(|| cursor.wrong("'shape'"))?,
    })
}

/// Reads the few Python literals that a header is made of.
struct Cursor<'a> {
    text: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    fn wrong(&self, expected: &'static str) -> NpyError {
        NpyError::Header { offset: self.offset, expected }
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.offset..];
        let spaces = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
        self.offset += spaces.count();
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        let found = self.text.get(self.offset) == Some(&byte);
        self.offset += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), NpyError> {
        if self.accept(byte) { Ok(()) } else { Err(self.wrong(expected)) }
    }

    /// A string without escapes, as every key and simple dtype is.
    fn string(&mut self) -> Result<&'a [u8], NpyError> {
        let quote = if self.accept(b'\'') {
            b'\''
        } else if self.accept(b'"') {
            b'"'
        } else {
            return Err(self.wrong("a string"));
        };
        let rest = &self.text[self.offset..];
        let end = rest.iter().position(|byte| *byte == quote || *byte == b'\\');
        let end = end.filter(|end| rest[*end] == quote).ok_or_else(|| self.wrong("a string"))?;
        self.offset += end + 1;
        Ok(&rest[..end])
    }

    /// The dtype; a list of fields is named as such.
    fn descr(&mut self) -> Result<String, NpyError> {
        if self.accept(b'[') || self.accept(b'(') {
            return Err(NpyError::Descr { descr: "structured".to_owned() });
        }
        Ok(String::from_utf8_lossy(self.string()?).chars().take(64).collect())
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.skip_spaces();
        let rest = &self.text[self.offset..];
        for (word, value) in [(&b"True"[..], true), (&b"False"[..], false)] {
            if rest.starts_with(word) {
                self.offset += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong("True or False"))
    }

    fn tuple(&mut self) -> Result<Vec<u64>, NpyError> {
        // More than NumPy's own limit of 64 dimensions.
        const RANK_MAX: usize = 100;
        let mut sizes = Vec::new();
        self.expect(b'(', "(")?;
        while !self.accept(b')') {
            if sizes.len() == RANK_MAX {
                return Err(self.wrong("at most 100 dimensions"));
            }
            sizes.push(self.number()?);
            if !self.accept(b',') {
                self.expect(b')', ", or )")?;
                break;
            }
        }
        Ok(sizes)
    }

    fn number(&mut self) -> Result<u64, NpyError> {
        self.skip_spaces();
        let rest = &self.text[self.offset..];
        let digits = &rest[..rest.iter().take_while(|byte| byte.is_ascii_digit()).count()];
        // Python 2 wrote sizes as 3L.
        let number = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let number = number.ok_or_else(|| self.wrong("a size"))?;
        self.offset += digits.len();
        if self.text.get(self.offset) == Some(&b'L') {
            self.offset += 1;
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(major: u8, header: &str, values: usize) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([major, 0]);
        match major {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + values, 0);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Entry, SourceError> {
        read_entry(&bytes)
    }

    fn fault(header: &str, values: usize) -> NpyError {
        match read(&file(1, header, values)).unwrap_err() {
            SourceError::Npy(error) => error,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn every_version_is_read() {
        for major in 1..=3 {
            let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }   \n";
            let entry = read(&file(major, header, 24)).unwrap();
            assert_eq!(entry.info.shape, [3, 2]);
            assert_eq!(entry.info.element, Some(Element::F32));
            assert_eq!(entry.byte_count, 24);
        }
        let old = "{\"shape\": (3L,2L), 'fortran_order':False,'descr':'<f8'}";
        assert_eq!(read(&file(1, old, 48)).unwrap().info.shape, [3, 2]);
    }

    #[test]
    fn each_fault_is_named() {
        let with = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}")
        };
        assert!(matches!(
            fault(&with("'>f4'", "False", "(3, 2)"), 24),
            NpyError::BigEndian { descr } if descr == ">f4"
        ));
        assert!(matches!(
            fault(&with("'<i8'", "False", "(3, 2)"), 48),
            NpyError::Descr { descr } if descr == "<i8"
        ));
        assert!(matches!(
            fault(&with("[('a', '<f4')]", "False", "(3, 2)"), 24),
            NpyError::Descr { descr } if descr == "structured"
        ));
        assert_eq!(fault(&with("'<f4'", "True", "(3, 2)"), 24), NpyError::FortranOrder);
        for broken in [
            "",
            "{",
            "{'descr'",
            "{'descr': '<f4', 'fortran_order': Maybe",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)} x",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, -2)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 2)}",
            "{'descr': '<f\\x34', 'fortran_order': False, 'shape': (3, 2)}",
            "{'__class__': '<f4'}",
        ] {
            assert!(matches!(fault(broken, 24), NpyError::Header { .. }), "{broken}");
        }
        let many = with("'<f4'", "False", &format!("({})", "1,".repeat(101)));
        assert!(matches!(fault(&many, 4), NpyError::Header { .. }));
    }

    #[test]
    fn sizes_must_match_the_file() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}";
        for values in [0, 23, 25] {
            let error = read(&file(1, header, values)).unwrap_err();
            assert!(matches!(error, SourceError::Truncated { .. }), "{error}");
        }
        let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, \
                    18446744073709551615, 18446744073709551615)}";
        assert!(matches!(read(&file(1, huge, 8)), Err(SourceError::Truncated { .. })));
    }

    #[test]
    fn what_is_no_npy_file_is_refused() {
        for bytes in [&b""[..], b"\x93NUMPY", b"PK\x03\x04aaaaaaaaaaaa"] {
            assert!(matches!(read(bytes), Err(SourceError::Npy(NpyError::Magic))));
        }
        assert!(matches!(
            read(&file(4, "{}", 0)),
            Err(SourceError::Npy(NpyError::FormatVersion { major: 4, minor: 0 }))
        ));
        let mut long = file(2, "{}", 0);
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(read(&long), Err(SourceError::Npy(NpyError::HeaderLength { .. }))));
        let mut short = file(1, "{}", 0);
        short[8] = 200;
        assert!(matches!(read(&short), Err(SourceError::Truncated { .. })));
    }
}
