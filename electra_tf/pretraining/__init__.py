"""Pre-training: masking, sampling, objectives, metrics and the train step."""

from electra_tf import backend

backend.check()
