"""Federated recommendations: what ``python -m examples.fedrec`` and ``flwr run`` share."""
