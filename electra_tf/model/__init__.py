"""Ids -> vectors -> logits: Keras layers, on any backend."""
