"""A client of hushtable's protocol that uses no line of hushtable's.

It is written from docs/key-format.md, docs/layout-format.md, docs/onion-format.md and the protos
alone: what it cannot do, the pages do not say. It is slow, and it branches on secrets: it is for
tests and for reading, not for use.
"""
