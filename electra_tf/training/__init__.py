"""Time: optimizers, strategies, checkpoints, the loop, whatever is trained."""
