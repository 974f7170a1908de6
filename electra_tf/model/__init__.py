"""Ids -> vectors -> logits: Keras layers, on any backend."""

from electra_tf import backend

backend.check()
