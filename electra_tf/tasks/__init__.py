"""Examples -> features -> head -> score, trained by Keras."""

from electra_tf import backend

backend.check()
