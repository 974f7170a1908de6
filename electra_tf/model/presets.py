"""Registry of the readers of `from_preset`, one for each kind of source.

A module in `_MODULES` calls `register_reader` when it is imported. So `model` does not
import the higher layers that read its weights.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError

_MODULES = ("electra_tf.tasks.presets",)


class Preset(Protocol):
    """Encoder read from a source: its shape, and its weights if it is trained."""

    shape: EncoderConfig

    def load_into(self, encoder: Any) -> None:
        """Assign the weights, if any, to a built encoder."""


class PresetReader(NamedTuple):
    """Reader of one kind of source."""

    description: str
    """Description of the kind of source, for error messages."""
    accepts: Callable[[str], bool]
    """Return whether the reader can read a path or name."""
    read: Callable[[str, str | None], Preset]
    """Read a path or name; the second argument is the path of a vocabulary or None."""


_READERS: dict[str, PresetReader] = {}


def register_reader(name: str, reader: PresetReader) -> None:
    """Add a reader, or replace the reader of the same name."""
    _READERS[name] = reader


def read_preset(source: str | os.PathLike, vocabulary: str | None = None) -> Preset:
    """Read an encoder from any source that a reader accepts."""
    for module in _MODULES:
        importlib.import_module(module)
    path = os.fspath(source)
    for reader in _READERS.values():
        if reader.accepts(path):
            return reader.read(path, vocabulary)
    kinds = "; ".join(reader.description for reader in _READERS.values())
    state = "" if os.path.exists(path) else ", which does not exist"
    raise InputError(
        f"from_preset must get one of: {kinds}", f"{path!r}{state}", "Check the path"
    )
