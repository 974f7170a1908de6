"""Random bits and fused element-wise operations."""

from electra_tf import backend

backend.check()
