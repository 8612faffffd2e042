//! A reader for the pickles of `torch.save` that executes nothing.
//!
//! A pickle is a program for a small stack machine, and Python's own reader lets it call anything.
//! This one knows the few opcodes that a dict of tensors needs, and a closed list of names that
//! it may ask for: tensors, their storages, `OrderedDict`. A name off the list ends the reading,
//! and the error says which it was. Opcodes: CPython's `Lib/pickletools.py`.
//!
//! The metadata of a distributed checkpoint is a pickle too, of a few record classes of torch; its
//! [`Vocabulary`] knows these and no tensors.

use std::collections::HashMap;

use super::vocabulary::{Class, Global, StorageType, Vocabulary};

/// A state dict of 50,000 tensors pickles to about 8 MiB.
pub(super) const PICKLE_BYTES_MAX: u64 = 16 << 20;

/// Each value takes at most some 100 bytes here, so this bounds memory to hundreds of MiB.
const VALUE_COUNT_MAX: usize = 1 << 22;

/// torch's own limit.
const RANK_MAX: usize = 64;

/// What is wrong with a pickle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleError {
    /// The pickle asks for a name that has nothing to do with tensors.
    #[error(
        "the file asks for {module:?}.{name:?}, which is no part of a state dict; refused, and nothing was executed. Save only tensors: torch.save(model.state_dict(), path)"
    )]
    Global {
        /// The module, cut to 128 characters.
        module: String,
        /// The name in it, cut to 128 characters.
        name: String,
    },
    /// An opcode that no state dict needs, or that is damaged.
    #[error(
        "the pickle has opcode {opcode:#04x} at byte {offset}, which no state dict needs; the file is damaged or holds more than tensors: save model.state_dict()"
    )]
    Opcode {
        /// The opcode.
        opcode: u8,
        /// Where it is.
        offset: usize,
    },
    /// An opcode found something else than it needs.
    #[error(
        "the pickle is malformed at byte {offset}: {expected} expected; the file is damaged, fetch it again"
    )]
    Operand {
        /// Where the opcode is.
        offset: usize,
        /// What it needs.
        expected: &'static str,
    },
    /// More bytes or more values than any state dict has.
    #[error(
        "the pickle has over {limit} {unit}; save only the tensors: torch.save(model.state_dict(), path)"
    )]
    TooLarge {
        /// The limit.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
}

/// The place of a value among all values of a pickle.
pub(super) type ValueId = u32;

/// What a pickle makes, as far as tensors are concerned.
#[derive(Debug)]
pub(super) enum Value {
    /// None, a float, bytes: nothing that a tensor is made of.
    Inert,
    Int(i64),
    /// `start..end` in the pickle, UTF-8.
    Text(u32, u32),
    Tuple(Box<[ValueId]>),
    List(Vec<ValueId>),
    Dict(Vec<(ValueId, ValueId)>),
    Global(Global),
    /// A record of this class; what it holds is a dict, or for some a tuple.
    Record(Class, Option<ValueId>),
    Storage(Storage),
    Tensor(Box<TensorValue>),
}

/// A storage in the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    pub(super) storage_type: StorageType,
    /// The text that names its entry.
    pub(super) key: ValueId,
}

/// A view of a storage, sizes in elements.
#[derive(Debug)]
pub(super) struct TensorValue {
    pub(super) storage: Storage,
    pub(super) offset: u64,
    pub(super) sizes: Vec<u64>,
    pub(super) strides: Vec<u64>,
}

/// A pickle that was read.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    bytes: &'a [u8],
    values: Vec<Value>,
    root: ValueId,
}

impl<'a> Pickle<'a> {
    /// Reads a state dict's pickle, of protocol 2 to 5.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, PickleError> {
        Self::parse_with(Vocabulary::StateDict, bytes)
    }

    /// Reads a pickle of protocol 2 to 5 that may ask for these names.
    pub(super) fn parse_with(vocabulary: Vocabulary, bytes: &'a [u8]) -> Result<Self, PickleError> {
        if bytes.len() as u64 > PICKLE_BYTES_MAX {
            return Err(PickleError::TooLarge { limit: PICKLE_BYTES_MAX, unit: "bytes" });
        }
        let mut machine = Machine {
            vocabulary,
            bytes,
            next: 0,
            op: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        loop {
            if let Some(root) = machine.step()? {
                return Ok(Self { bytes, values: machine.values, root });
            }
        }
    }

    pub(super) fn root(&self) -> ValueId {
        self.root
    }

    pub(super) fn value(&self, id: ValueId) -> &Value {
        &self.values[id as usize]
    }

    /// The text of a value, if it is one.
    pub(super) fn text(&self, id: ValueId) -> Option<&'a str> {
        text_of(self.bytes, &self.values, id)
    }

    /// The numbers of a tuple of sizes, if it is one.
    pub(super) fn sizes(&self, id: ValueId) -> Option<Vec<u64>> {
        sizes_of(&self.values, id)
    }

    /// What a record of this class has under `name`.
    pub(super) fn field(&self, class: Class, id: ValueId, name: &str) -> Option<ValueId> {
        let Value::Record(found, Some(fields)) = *self.value(id) else { return None };
        let Value::Dict(fields) = self.value(fields) else { return None };
        let named = fields.iter().find(|(key, _)| self.text(*key) == Some(name));
        named.filter(|_| found == class).map(|(_, value)| *value)
    }
}

fn text_of<'a>(bytes: &'a [u8], values: &[Value], id: ValueId) -> Option<&'a str> {
    match values[id as usize] {
        Value::Text(start, end) => str::from_utf8(&bytes[start as usize..end as usize]).ok(),
        _ => None,
    }
}

/// The stack machine. Ids on its stacks always point into `values`.
struct Machine<'a> {
    vocabulary: Vocabulary,
    bytes: &'a [u8],
    next: usize,
    /// Where the current opcode is.
    op: usize,
    values: Vec<Value>,
    stack: Vec<ValueId>,
    marks: Vec<usize>,
    memo: HashMap<u32, ValueId>,
}

impl<'a> Machine<'a> {
    /// Executes one opcode; the result of the pickle once it stops.
    fn step(&mut self) -> Result<Option<ValueId>, PickleError> {
        self.op = self.next;
        let opcode = self.take::<1>()?[0];
        match opcode {
            0x80 => match self.take::<1>()?[0] {
                2..=5 => {}
                _ => return Err(self.wrong("pickle protocol 2 to 5")),
            },
            // FRAME: only a hint for readers of streams.
            0x95 => drop(self.take::<8>()?),
            b'.' => return self.pop().map(Some),

            b'N' | 0x88 | 0x89 => self.push(Value::Inert)?,
            b'G' => {
                self.take::<8>()?;
                self.push(Value::Inert)?;
            }
            b'J' => {
                let int = i32::from_le_bytes(self.take()?);
                self.push(Value::Int(int.into()))?;
            }
            b'K' => {
                let int = u8::from_le_bytes(self.take()?);
                self.push(Value::Int(int.into()))?;
            }
            b'M' => {
                let int = u16::from_le_bytes(self.take()?);
                self.push(Value::Int(int.into()))?;
            }
            0x8a => {
                let byte_count = usize::from(self.take::<1>()?[0]);
                let value = parse_long(self.take_slice(byte_count)?);
                self.push(value)?;
            }
            b'X' => {
                let byte_count = u32::from_le_bytes(self.take()?) as usize;
                self.push_text(byte_count)?;
            }
            0x8c => {
                let byte_count = usize::from(self.take::<1>()?[0]);
                self.push_text(byte_count)?;
            }
            b'B' => {
                let byte_count = u32::from_le_bytes(self.take()?) as usize;
                self.take_slice(byte_count)?;
                self.push(Value::Inert)?;
            }
            b'C' => {
                let byte_count = usize::from(self.take::<1>()?[0]);
                self.take_slice(byte_count)?;
                self.push(Value::Inert)?;
            }

            b'(' => self.marks.push(self.stack.len()),
            b')' => self.push(Value::Tuple(Box::default()))?,
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let start = self.stack.len().checked_sub(count);
                let start = start.ok_or_else(|| self.wrong("more values on the stack"))?;
                self.push_tuple(start)?;
            }
            b't' => {
                let start = self.pop_mark()?;
                self.push_tuple(start)?;
            }
            b']' => self.push(Value::List(Vec::new()))?,
            b'a' => {
                self.top()?;
                self.append_items(self.stack.len() - 1)?;
            }
            b'e' => {
                let start = self.pop_mark()?;
                self.append_items(start)?;
            }
            b'}' => self.push(Value::Dict(Vec::new()))?,
            b's' => {
                let start = self.stack.len().checked_sub(2);
                let start = start.ok_or_else(|| self.wrong("a key and a value"))?;
                self.set_items(start)?;
            }
            b'u' => {
                let start = self.pop_mark()?;
                self.set_items(start)?;
            }

            b'q' => {
                let slot = self.take::<1>()?[0].into();
                self.memoize(slot)?;
            }
            b'r' => {
                let slot = u32::from_le_bytes(self.take()?);
                self.memoize(slot)?;
            }
            0x94 => self.memoize(self.memo.len() as u32)?,
            b'h' => {
                let slot = self.take::<1>()?[0].into();
                self.recall(slot)?;
            }
            b'j' => {
                let slot = u32::from_le_bytes(self.take()?);
                self.recall(slot)?;
            }

            b'c' => {
                let (module, name) = (self.take_line()?, self.take_line()?);
                self.push_global(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let text = |id| text_of(self.bytes, &self.values, id);
                let (Some(module), Some(name)) = (text(module), text(name)) else {
                    return Err(self.wrong("a module and a name"));
                };
                self.push_global(module.as_bytes(), name.as_bytes())?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.parse_storage(id).ok_or_else(|| self.wrong("a storage"))?;
                self.push(Value::Storage(storage))?;
            }
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.call(function, arguments)?;
            }
            // NEWOBJ: a record, not yet filled.
            0x81 if self.vocabulary == Vocabulary::Distributed => {
                let (arguments, class) = (self.pop()?, self.pop()?);
                let is_empty =
                    |id| matches!(&self.values[id as usize], Value::Tuple(it) if it.is_empty());
                match self.values[class as usize] {
                    Value::Global(Global::Class(class)) if is_empty(arguments) => {
                        self.push(Value::Record(class, None))?;
                    }
                    _ => return Err(self.wrong("a class of records and no arguments")),
                }
            }
            // BUILD: an OrderedDict's attributes (a state dict's _metadata) say nothing we need.
            b'b' => {
                let state = self.pop()?;
                let top = self.top()?;
                match &mut self.values[top as usize] {
                    Value::Dict(_) => {}
                    Value::Record(_, fields) => *fields = Some(state),
                    _ => return Err(self.wrong("a dict or a record to give attributes to")),
                }
            }
            _ => return Err(PickleError::Opcode { opcode, offset: self.op }),
        }
        Ok(None)
    }

    fn wrong(&self, expected: &'static str) -> PickleError {
        PickleError::Operand { offset: self.op, expected }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let bytes = self.bytes[self.next..].first_chunk();
        let bytes = *bytes.ok_or_else(|| self.wrong("more bytes"))?;
        self.next += N;
        Ok(bytes)
    }

    fn take_slice(&mut self, byte_count: usize) -> Result<&'a [u8], PickleError> {
        let slice = self.bytes[self.next..].get(..byte_count);
        let slice = slice.ok_or_else(|| self.wrong("more bytes"))?;
        self.next += byte_count;
        Ok(slice)
    }

    fn take_line(&mut self) -> Result<&'a [u8], PickleError> {
        let end = self.bytes[self.next..].iter().position(|byte| *byte == b'\n');
        let line = self.take_slice(end.ok_or_else(|| self.wrong("a line"))?)?;
        self.next += 1;
        Ok(line)
    }

    fn push(&mut self, value: Value) -> Result<(), PickleError> {
        if self.values.len() == VALUE_COUNT_MAX {
            let limit = VALUE_COUNT_MAX as u64;
            return Err(PickleError::TooLarge { limit, unit: "values" });
        }
        self.stack.push(self.values.len() as ValueId);
        self.values.push(value);
        Ok(())
    }

    fn push_text(&mut self, byte_count: usize) -> Result<(), PickleError> {
        let text = self.take_slice(byte_count)?;
        if str::from_utf8(text).is_err() {
            return Err(self.wrong("UTF-8 text"));
        }
        // The pickle is shorter than 2^32 bytes, so its offsets fit.
        let end = self.next as u32;
        self.push(Value::Text(end - byte_count as u32, end))
    }

    fn push_tuple(&mut self, start: usize) -> Result<(), PickleError> {
        // Not split_off: its result may keep the stack's whole capacity, for every tuple.
        let items = self.stack.drain(start..).collect();
        self.push(Value::Tuple(items))
    }

    /// The top of the stack, if it is above the last mark.
    fn top(&self) -> Result<ValueId, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let above = self.stack.get(floor..).and_then(<[ValueId]>::last);
        above.copied().ok_or_else(|| self.wrong("a value on the stack"))
    }

    fn pop(&mut self) -> Result<ValueId, PickleError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Takes the last mark away and says where on the stack it was.
    fn pop_mark(&mut self) -> Result<usize, PickleError> {
        let start = self.marks.pop().filter(|start| *start <= self.stack.len());
        start.ok_or_else(|| self.wrong("a mark"))
    }

    fn append_items(&mut self, start: usize) -> Result<(), PickleError> {
        let items: Vec<ValueId> = self.stack.drain(start..).collect();
        let list = self.top()?;
        match &mut self.values[list as usize] {
            Value::List(list) => {
                list.extend(items);
                Ok(())
            }
            _ => Err(self.wrong("a list")),
        }
    }

    fn set_items(&mut self, start: usize) -> Result<(), PickleError> {
        let items: Vec<ValueId> = self.stack.drain(start..).collect();
        let (pairs, rest) = items.as_chunks();
        let dict = self.top()?;
        match &mut self.values[dict as usize] {
            Value::Dict(entries) if rest.is_empty() => {
                entries.extend(pairs.iter().map(|[key, value]| (*key, *value)));
                Ok(())
            }
            _ => Err(self.wrong("a dict, keys and values")),
        }
    }

    fn memoize(&mut self, slot: u32) -> Result<(), PickleError> {
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn recall(&mut self, slot: u32) -> Result<(), PickleError> {
        let id = *self.memo.get(&slot).ok_or_else(|| self.wrong("a memo that was set"))?;
        self.stack.push(id);
        Ok(())
    }

    fn push_global(&mut self, module: &[u8], name: &[u8]) -> Result<(), PickleError> {
        let global = self.vocabulary.find(module, name).ok_or_else(|| {
            let clip = |text| String::from_utf8_lossy(text).chars().take(128).collect();
            PickleError::Global { module: clip(module), name: clip(name) }
        })?;
        self.push(Value::Global(global))
    }

    /// `('storage', class, key, device, element count)`
    fn parse_storage(&self, id: ValueId) -> Option<Storage> {
        let Value::Tuple(items) = &self.values[id as usize] else { return None };
        let [kind, class, key, _device, _count] = items[..] else { return None };
        let Value::Global(Global::StorageType(storage_type)) = self.values[class as usize] else {
            return None;
        };
        let text = |id| text_of(self.bytes, &self.values, id);
        (text(kind) == Some("storage") && text(key).is_some())
            .then_some(Storage { storage_type, key })
    }

    fn call(&mut self, function: ValueId, arguments: ValueId) -> Result<(), PickleError> {
        let Value::Global(function) = self.values[function as usize] else {
            return Err(self.wrong("a function"));
        };
        let Value::Tuple(arguments) = &self.values[arguments as usize] else {
            return Err(self.wrong("a tuple of arguments"));
        };
        match function {
            Global::OrderedDict if arguments.is_empty() => self.push(Value::Dict(Vec::new())),
            Global::RebuildParameter => match arguments[..] {
                [tensor, ..] if matches!(self.values[tensor as usize], Value::Tensor(_)) => {
                    self.stack.push(tensor);
                    Ok(())
                }
                _ => Err(self.wrong("a tensor")),
            },
            Global::RebuildTensor => {
                let tensor = self.parse_tensor(arguments, 6);
                let tensor = tensor.ok_or_else(|| self.wrong("a storage, sizes and strides"))?;
                self.push(Value::Tensor(Box::new(tensor)))
            }
            Global::RebuildTyped => {
                let tensor = self.parse_tensor(arguments, 7).and_then(|mut tensor| {
                    let dtype = self.values.get(*arguments.get(6)? as usize)?;
                    let Value::Global(Global::DType(dtype)) = dtype else { return None };
                    if tensor.storage.storage_type != StorageType::VIEW {
                        tensor.storage.storage_type = *dtype;
                    }
                    Some(tensor)
                });
                let tensor = tensor.ok_or_else(|| self.wrong("a storage, sizes and a dtype"))?;
                self.push(Value::Tensor(Box::new(tensor)))
            }
            Global::Size => match arguments[..] {
                [sizes] if matches!(self.values[sizes as usize], Value::Tuple(_)) => {
                    self.stack.push(sizes);
                    Ok(())
                }
                _ => Err(self.wrong("a tuple of sizes")),
            },
            Global::Ignored => self.push(Value::Inert),
            Global::OrderedDict | Global::StorageType(_) | Global::DType(_) | Global::Class(_) => {
                Err(self.wrong("an empty OrderedDict"))
            }
        }
    }

    /// `(storage, offset, sizes, strides, requires_grad, hooks, …)`, and at `metadata` maybe what the values are yet to
    /// be done to.
    fn parse_tensor(&self, arguments: &[ValueId], metadata: usize) -> Option<TensorValue> {
        let [storage, offset, sizes, strides, ..] = arguments else { return None };
        let Value::Storage(mut storage) = self.values[*storage as usize] else { return None };
        let is_plain = |id: &ValueId| match &self.values[*id as usize] {
            Value::Inert => true,
            Value::Dict(entries) => entries.is_empty(),
            _ => false,
        };
        if !arguments.get(metadata).is_none_or(is_plain) {
            // The storage holds other numbers than the tensor: those of which it is the negative, or the conjugate.
            storage.storage_type = StorageType::VIEW;
        }
        let Value::Int(offset) = self.values[*offset as usize] else { return None };
        let sizes = self.parse_sizes(*sizes)?;
        let strides = self.parse_sizes(*strides)?;
        let offset = u64::try_from(offset).ok()?;
        (sizes.len() == strides.len()).then_some(TensorValue { storage, offset, sizes, strides })
    }

    fn parse_sizes(&self, id: ValueId) -> Option<Vec<u64>> {
        sizes_of(&self.values, id)
    }
}

fn sizes_of(values: &[Value], id: ValueId) -> Option<Vec<u64>> {
    let Value::Tuple(items) = &values[id as usize] else { return None };
    if items.len() > RANK_MAX {
        return None;
    }
    let sizes = items.iter().map(|id| match values[*id as usize] {
        Value::Int(size) => u64::try_from(size).ok(),
        _ => None,
    });
    sizes.collect()
}

/// A little-endian two's complement integer; inert if it needs more than 64 bits.
fn parse_long(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return Value::Inert;
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(pickle: &[u8]) -> PickleError {
        Pickle::parse(pickle).unwrap_err()
    }

    #[test]
    fn a_name_off_the_list_is_refused_by_either_opcode() {
        let expected = PickleError::Global { module: "os".to_owned(), name: "system".to_owned() };
        assert_eq!(error(b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R."), expected);
        assert_eq!(error(b"\x80\x04\x8c\x02os\x8c\x06system\x93."), expected);
        // The module's own reader is one of the classic ways around such a list.
        assert!(matches!(
            error(b"\x80\x02ctorch.storage\n_load_from_bytes\n."),
            PickleError::Global { .. }
        ));
    }

    #[test]
    fn stack_faults_are_errors() {
        for (pickle, what) in [
            (&b""[..], "empty"),
            (b"\x80", "no protocol"),
            (b"\x80\x09.", "protocol 9"),
            (b".", "stop on an empty stack"),
            (b"(.", "stop at a mark"),
            (b"N\x86.", "two from one"),
            (b"}Ns.", "half an item"),
            (b"}(NNNu.", "odd items"),
            (b"NNNs.", "items of no dict"),
            (b"]N(u.", "mark above"),
            (b"h\x07.", "memo not set"),
            (b"X\xff\xff\xff\xffabc.", "text past the end"),
            (b"X\x01\0\0\0\xff.", "text not UTF-8"),
            (b"NQ.", "storage of nothing"),
            (b"N)R.", "call of nothing"),
            (b"ccollections\nOrderedDict\nN\x85R.", "OrderedDict of something"),
            (b"ctorch\nFloatStorage\n)R.", "a storage called"),
            (b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "a tensor of nothing"),
            (b"ctorch._utils\n_rebuild_parameter\nN\x85R.", "a parameter of nothing"),
            (b"NNb.", "attributes of nothing"),
            (b"cos", "no line"),
            (b"\x8a\x09\0\0.", "long past the end"),
        ] {
            assert!(matches!(error(pickle), PickleError::Operand { .. }), "{what}");
        }
        assert_eq!(error(b"N\x81."), PickleError::Opcode { opcode: 0x81, offset: 1 });
    }

    #[test]
    fn integers_of_every_width_are_read() {
        for (pickle, expected) in [
            (&b"K\xff."[..], 255),
            (b"M\x01\x02.", 513),
            (b"J\xff\xff\xff\xff.", -1),
            (b"\x8a\x00.", 0),
            (b"\x8a\x01\xff.", -1),
            (b"\x8a\x05\x00\x00\x00\x00\x01.", 1 << 32),
        ] {
            let pickle = Pickle::parse(pickle).unwrap();
            assert!(matches!(pickle.value(pickle.root()), Value::Int(int) if *int == expected));
        }
    }

    #[test]
    fn values_are_bounded() {
        let flood = vec![b'N'; VALUE_COUNT_MAX + 1];
        assert!(matches!(error(&flood), PickleError::TooLarge { unit: "values", .. }));
        let long = vec![b'N'; PICKLE_BYTES_MAX as usize + 1];
        assert!(matches!(error(&long), PickleError::TooLarge { unit: "bytes", .. }));
        // The memo is keyed, not indexed: a slot of 2^32 - 1 costs one entry.
        assert!(Pickle::parse(b"Nr\xff\xff\xff\xff.").is_ok());
    }
}
