"""The registry of what `from_preset` reads: one reader for each kind of source.

A module that reads a format calls `register_reader` when it is imported, and `_MODULES`
lists it, so that layers need not import what reads their weights.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError

_MODULES = ("electra_tf.tasks.presets",)


class Preset(Protocol):
    """An encoder of a source: its shape and, where it has been trained, its weights."""

    shape: EncoderConfig

    def load_into(self, encoder: Any) -> None:
        """Assign the weights, if there are any, to a built encoder."""


class PresetReader(NamedTuple):
    """What recognises and reads one kind of source."""

    description: str
    """The kind of source, for the error that lists all kinds."""
    accepts: Callable[[str], bool]
    """Return whether a path or a name is of this kind."""
    read: Callable[[str, str | None], Preset]
    """Read a path or a name, with the path of a vocabulary or None."""


_READERS: dict[str, PresetReader] = {}


def register_reader(name: str, reader: PresetReader) -> None:
    """Add a reader, or replace the one of the same name.

    Args:
        name: Of the kind of source.
        reader: Called in the order of registration; the first that accepts reads.
    """
    _READERS[name] = reader


def read_preset(source: str | os.PathLike, vocabulary: str | None = None) -> Preset:
    """Read an encoder from any source that a reader accepts.

    Args:
        source: A path or a name.
        vocabulary: The vocabulary's file, for a source without one.

    Returns:
        Shape and weights, with a tokenizer where the reader has one.

    Raises:
        InputError: No reader accepts the source, or the source is damaged.
    """
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
