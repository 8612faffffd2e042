"""Embedding layers whose rows are fetched privately.

:class:`PrivateEmbedding` and :class:`PrivateEmbeddingBag` stand where a model has
``torch.nn.Embedding`` and ``torch.nn.EmbeddingBag``. Where torch is installed they are
``torch.nn.Module`` and return tensors; where it is not, they take and return numpy arrays. Rows
have no gradient, since they live on the servers; weights of rows do.

A call is an operator of torch (``hushtable::lookup``): ``torch.compile`` keeps it in its graph,
``torch.export`` and ``torch.jit.trace`` keep it in the program, which looks its rows up anew each
time. An exported program names its layers by their ``handle``; :func:`bind` gives it layers in
another process. Layers can be copied, pickled and sent to a ``DataLoader``'s workers: a client
connects anew there, by its URLs and what it was told to check.

By default each call looks up ``max_ids`` rows. With ``use_layout=True`` each bag of a call is one
inference by the table's layout, and all go in one request: far cheaper for many rows, at the price
that some may be dropped.

:class:`PrivateEmbeddingBagCollection` stands for ``torchrec.EmbeddingBagCollection``: all tables of
a model in one round trip. :func:`privatize` puts these layers into a model, whose forward then asks
for all of them in one round trip too.

:class:`PrivateModel` is a whole model that two servers compute on shares: its forward is a private
prediction.

Results are those of torch's own layers on an x86-64 processor to the last bit: sums are made in the
order of the ids, in float32.
"""

from ._collection import KeyedRows, PrivateEmbeddingBagCollection
from ._handles import bind
from ._layers import PrivateEmbedding, PrivateEmbeddingBag
from ._model import PredictionSource, PrivateModel
from ._privatize import Gathered, Kept, Privatized, Replaced, privatize
from ._sources import BagSource, ClearModel, FeatureFacts, ModelSource, RowSource
from ._trips import ForwardStats

__all__ = [
    "BagSource",
    "ClearModel",
    "FeatureFacts",
    "ForwardStats",
    "Gathered",
    "Kept",
    "KeyedRows",
    "ModelSource",
    "PredictionSource",
    "PrivateEmbedding",
    "PrivateEmbeddingBag",
    "PrivateEmbeddingBagCollection",
    "PrivateModel",
    "Privatized",
    "Replaced",
    "RowSource",
    "bind",
    "privatize",
]
