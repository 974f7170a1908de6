"""Read JSON files that come from elsewhere."""

import os
from typing import Any

from electra_tf.errors import InputError
from electra_tf.text.bounded_files import parse_json, read_small_file

_MAX_BYTES = 1 << 25  # the tokenizer.json of the largest vocabularies


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Return the object in a JSON file."""
    try:
        value = parse_json(read_small_file(path, _MAX_BYTES), os.fspath(path))
        if isinstance(value, dict):
            return value
        raise ValueError(f"a JSON {type(value).__name__}, not an object")
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"{os.fspath(path)!r} must be a JSON object",
            str(error),
            "Copy or download it again",
        ) from error
