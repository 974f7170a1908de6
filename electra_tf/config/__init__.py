"""Settings as frozen dataclasses, read from YAML files."""
