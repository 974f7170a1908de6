"""ELECTRA for TensorFlow 2 and Keras 3: pre-train, fine-tune, export."""

__version__ = "0.1.0"
