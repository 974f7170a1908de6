"""Training loop, optimizers, strategies, checkpoints and metric logging."""

from electra_tf import backend

backend.check()
