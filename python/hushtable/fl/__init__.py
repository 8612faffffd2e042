"""Federated training of embedding tables through an oblivious memory."""
