"""Random numbers and fused layer operations."""

from electra_tf import backend

backend.check()
