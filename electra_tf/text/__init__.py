"""Strings -> ids -> records -> batches."""
