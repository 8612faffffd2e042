//! The names that a pickle may ask for. Whatever is not here ends the reading of the file.

use super::tensor::Element;

/// The names that a pickle may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    OrderedDict,
    RebuildParameter,
    RebuildTensor,
    /// The same of bytes, with a dtype for which torch has no class of storages.
    RebuildTyped,
    /// The class of storages of this element.
    StorageType(StorageType),
    /// A tensor's dtype.
    DType(StorageType),
    /// A class of records.
    Class(Class),
    /// `torch.Size`, which is a tuple.
    Size,
    /// A function or class whose result says nothing that we need.
    Ignored,
}

impl StorageType {
    /// Of a tensor that says what is yet to be done to the numbers of its storage.
    pub(super) const VIEW: Self = Self::Other("negated or conjugated");

    /// torch's name of the dtype.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::Other(name) => name,
        }
    }

    /// What a table can be made of, if it can.
    pub(super) fn element(self) -> Option<Element> {
        match self {
            Self::Bf16 => Some(Element::Bf16),
            Self::F16 => Some(Element::F16),
            Self::F32 => Some(Element::F32),
            Self::F64 => Some(Element::F64),
            Self::Other("float8_e4m3fn") => Some(Element::Fp8E4m3),
            Self::Other("float8_e5m2") => Some(Element::Fp8E5m2),
            Self::Other(_) => None,
        }
    }
}

/// Which names a pickle may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vocabulary {
    /// Tensors, their storages and `OrderedDict`.
    StateDict,
    /// The records of a distributed checkpoint's metadata.
    Distributed,
}

/// The classes of the records in a distributed checkpoint's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    BytesStorage,
    ChunkStorage,
    Index,
    Metadata,
    StorageInfo,
    StorageMeta,
    TensorProperties,
    TensorStorage,
}

/// What a storage holds, by the name that torch has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageType {
    Bf16,
    F16,
    F32,
    F64,
    /// Any other, by name: no table is made of it.
    Other(&'static str),
}

impl Vocabulary {
    /// What a name stands for; `None` for one that is refused.
    pub(super) fn find(self, module: &[u8], name: &[u8]) -> Option<Global> {
        match self {
            Self::StateDict => state_dict_global(module, name),
            Self::Distributed => distributed_global(module, name),
        }
    }
}

/// The names that a state dict may ask for.
fn state_dict_global(module: &[u8], name: &[u8]) -> Option<Global> {
    Some(match (module, name) {
        (b"collections", b"OrderedDict") => Global::OrderedDict,
        // A quantised tensor begins with the same arguments; what scales it says nothing of where it is.
        (b"torch._utils", b"_rebuild_tensor_v2" | b"_rebuild_qtensor") => Global::RebuildTensor,
        (b"torch._utils", b"_rebuild_tensor_v3") => Global::RebuildTyped,
        (b"torch._utils", b"_rebuild_parameter") => Global::RebuildParameter,
        (b"torch", b"BFloat16Storage") => Global::StorageType(StorageType::Bf16),
        (b"torch", b"HalfStorage") => Global::StorageType(StorageType::F16),
        (b"torch", b"FloatStorage") => Global::StorageType(StorageType::F32),
        (b"torch", b"DoubleStorage") => Global::StorageType(StorageType::F64),
        (b"torch", b"BoolStorage") => Global::StorageType(StorageType::Other("bool")),
        (b"torch", b"ByteStorage") => Global::StorageType(StorageType::Other("uint8")),
        (b"torch", b"CharStorage") => Global::StorageType(StorageType::Other("int8")),
        (b"torch", b"ShortStorage") => Global::StorageType(StorageType::Other("int16")),
        (b"torch", b"IntStorage") => Global::StorageType(StorageType::Other("int32")),
        (b"torch", b"LongStorage") => Global::StorageType(StorageType::Other("int64")),
        (b"torch", b"ComplexFloatStorage") => Global::StorageType(StorageType::Other("complex64")),
        (b"torch", b"ComplexDoubleStorage") => {
            Global::StorageType(StorageType::Other("complex128"))
        }
        (b"torch", b"QInt8Storage") => Global::StorageType(StorageType::Other("qint8")),
        (b"torch", b"QUInt8Storage") => Global::StorageType(StorageType::Other("quint8")),
        (b"torch", b"QInt32Storage") => Global::StorageType(StorageType::Other("qint32")),
        (b"torch", b"QUInt4x2Storage") => Global::StorageType(StorageType::Other("quint4x2")),
        (b"torch", b"QUInt2x4Storage") => Global::StorageType(StorageType::Other("quint2x4")),
        (b"torch.storage", b"UntypedStorage") => Global::StorageType(StorageType::Other("bytes")),
        (
            b"torch",
            b"per_tensor_affine" | b"per_channel_affine" | b"per_channel_affine_float_qparams",
        ) => Global::Ignored,
        (b"torch", name) => Global::DType(dtype(name)?),
        _ => return None,
    })
}

/// A dtype of torch.
fn dtype(name: &[u8]) -> Option<StorageType> {
    Some(match name {
        b"bfloat16" => StorageType::Bf16,
        b"float16" => StorageType::F16,
        b"float32" => StorageType::F32,
        b"float64" => StorageType::F64,
        b"bool" => StorageType::Other("bool"),
        b"uint8" => StorageType::Other("uint8"),
        b"uint16" => StorageType::Other("uint16"),
        b"uint32" => StorageType::Other("uint32"),
        b"uint64" => StorageType::Other("uint64"),
        b"int8" => StorageType::Other("int8"),
        b"int16" => StorageType::Other("int16"),
        b"int32" => StorageType::Other("int32"),
        b"int64" => StorageType::Other("int64"),
        b"complex64" => StorageType::Other("complex64"),
        b"complex128" => StorageType::Other("complex128"),
        b"float8_e4m3fn" => StorageType::Other("float8_e4m3fn"),
        b"float8_e5m2" => StorageType::Other("float8_e5m2"),
        b"float8_e4m3fnuz" => StorageType::Other("float8_e4m3fnuz"),
        b"float8_e5m2fnuz" => StorageType::Other("float8_e5m2fnuz"),
        b"float8_e8m0fnu" => StorageType::Other("float8_e8m0fnu"),
        _ => return None,
    })
}

/// The names that the metadata of a distributed checkpoint may ask for.
fn distributed_global(module: &[u8], name: &[u8]) -> Option<Global> {
    Some(match (module, name) {
        (b"torch.distributed.checkpoint.metadata", _) => match name {
            b"BytesStorageMetadata" => Global::Class(Class::BytesStorage),
            b"ChunkStorageMetadata" => Global::Class(Class::ChunkStorage),
            b"Metadata" => Global::Class(Class::Metadata),
            b"MetadataIndex" => Global::Class(Class::Index),
            b"StorageMeta" => Global::Class(Class::StorageMeta),
            b"TensorProperties" => Global::Class(Class::TensorProperties),
            b"TensorStorageMetadata" => Global::Class(Class::TensorStorage),
            b"_MEM_FORMAT_ENCODING" => Global::Ignored,
            _ => return None,
        },
        // Where torch had it before 2.2.
        (b"torch.distributed._shard.sharded_tensor.metadata", b"TensorProperties") => {
            Global::Class(Class::TensorProperties)
        }
        (b"torch.distributed._shard.sharded_tensor.metadata", b"MEM_FORMAT_ENCODING")
        | (b"torch.serialization", b"_get_layout")
        | (b"pathlib" | b"pathlib._local", b"PosixPath") => Global::Ignored,
        (b"torch.distributed.checkpoint.filesystem", b"_StorageInfo") => {
            Global::Class(Class::StorageInfo)
        }
        (b"collections", b"OrderedDict") => Global::OrderedDict,
        (b"torch", b"Size") => Global::Size,
        (b"torch", _) => Global::DType(dtype(name)?),
        _ => return None,
    })
}
