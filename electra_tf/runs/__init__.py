"""Runs of the commands: pre-training, evaluation, fine-tuning, cost estimates."""
