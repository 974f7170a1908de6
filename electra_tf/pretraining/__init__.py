"""Batch -> loss: masking, sampling, objectives, the train step."""

from electra_tf import backend

backend.check()
