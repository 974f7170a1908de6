"""Read JSON files that come from elsewhere."""

import json
import os
import pathlib
from typing import Any

from electra_tf.errors import InputError


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Return the object in a JSON file.

    Args:
        path: The file.

    Raises:
        InputError: The file is missing, damaged, or holds another value.
    """
    try:
        value = json.loads(pathlib.Path(path).read_bytes())
        if isinstance(value, dict):
            return value
        raise ValueError(f"a JSON {type(value).__name__}, not an object")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{os.fspath(path)!r} must be a JSON object",
            str(error),
            "Copy or download it again",
        ) from error
