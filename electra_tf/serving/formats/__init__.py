"""File formats of exported models."""
