"""Export of trained models: SavedModel, LiteRT, ONNX."""

from electra_tf import backend

backend.check()
