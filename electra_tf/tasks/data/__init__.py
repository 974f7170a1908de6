"""Readers of task data: tables and column files."""
