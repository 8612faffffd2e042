"""Clients of hushtable's protocols that use no line of hushtable's.

They are written from docs/key-format.md, docs/layout-format.md, docs/onion-format.md,
docs/ckks-format.md and the protos alone: what they cannot do, the pages do not say. ``train``, the
messages of a training round, is written from the RFCs that it names. They are slow, and they branch
on secrets: they are for tests and for reading, not for use.
"""
