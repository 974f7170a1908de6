"""Fine-tuning: models, tasks, metrics, prediction and evaluation."""

from electra_tf import backend

backend.check()
