"""Bringing shards' bundles from where they lie to whoever serves them."""
