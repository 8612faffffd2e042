"""Embedding layers whose rows are fetched privately.

:class:`PrivateEmbedding` and :class:`PrivateEmbeddingBag` stand where a model has
``torch.nn.Embedding`` and ``torch.nn.EmbeddingBag``. Where torch is installed they are
``torch.nn.Module`` and return tensors (without gradient: the rows live on the servers); where it is
not, they take and return numpy arrays.

By default each call looks up ``max_ids`` rows. With ``use_layout=True`` it is one inference by the
table's layout: far cheaper for many rows, at the price that some may be dropped.

:class:`PrivateEmbeddingBagCollection` stands for ``torchrec.EmbeddingBagCollection``: all tables of
a model in one round trip. :func:`privatize` puts these layers into a model.

Results are those of torch's own layers on an x86-64 processor to the last bit: sums are made in the
order of the ids, in float32.
"""

from ._collection import KeyedRows, PrivateEmbeddingBagCollection
from ._layers import PrivateEmbedding, PrivateEmbeddingBag
from ._privatize import Kept, Privatized, Replaced, privatize
from ._sources import BagSource, ClearModel, FeatureFacts, ModelSource, RowSource

__all__ = [
    "BagSource",
    "ClearModel",
    "FeatureFacts",
    "Kept",
    "KeyedRows",
    "ModelSource",
    "PrivateEmbedding",
    "PrivateEmbeddingBag",
    "PrivateEmbeddingBagCollection",
    "Privatized",
    "Replaced",
    "RowSource",
    "privatize",
]
