"""Single-server retrieval on an accelerator, a GPU or this processor, cycle by cycle.

After IVE, "An Accelerator for Single-Server Private Information Retrieval Using Versatile
Processing Elements", sections IV to VI.
"""
