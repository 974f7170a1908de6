"""Settings as frozen dataclasses, and the YAML files that hold them."""
