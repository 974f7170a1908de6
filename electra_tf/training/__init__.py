"""Time: optimizers, strategies, checkpoints, the loop, whatever is trained."""

from electra_tf import backend

backend.check()
