"""Keras layers of the model: token ids -> hidden states -> logits."""

from electra_tf import backend

backend.check()
