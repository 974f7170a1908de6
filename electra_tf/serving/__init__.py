"""SavedModel: strings in, scores out."""

from electra_tf import backend

backend.check()
