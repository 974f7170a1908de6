"""Batch -> loss: masking, sampling, objectives, the train step."""
