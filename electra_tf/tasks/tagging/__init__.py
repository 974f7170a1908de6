"""Tagging of words: chunks, names, parts of speech."""
