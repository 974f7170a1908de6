"""Options of an export and limits of requests, checked without TensorFlow."""

import dataclasses
import importlib
import importlib.util
import os
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from electra_tf.errors import InputError
from electra_tf.storage.mirror import check_new_folder
from electra_tf.storage.objects import is_url

SAVED_MODEL = "saved_model"
FORMATS_OF_IDS = {"litert": ("ai_edge_litert",), "onnx": ("tf2onnx", "onnxruntime")}
"""Formats of the function of ids alone, with the packages of the extra of that name.
The module below `formats` has `write(function, folder)`, which returns files, and
`load(path)`."""
FORMAT_NAMES = dict.fromkeys((SAVED_MODEL, "savedmodel", "tf_saved_model"), SAVED_MODEL)
"""A SavedModel by the names that it has in Python, Keras's among them."""
SIGNATURES = ("text", "tokens")
IDS = ("token_ids", "segment_ids", "padding_mask")  # of signatures of ids, int32 [B, L]
OUTPUT_KINDS = ("encoder", "electra")  # outputs of a pre-trained checkpoint
TARGETS = ("cpu", "any")  # `cpu`: short texts in the form that is fast on CPUs
_SUFFIXES = (".keras", ".onnx", ".pb", ".tflite")
_PATTERN_CHARACTERS = "[]*\\"
_WORDS = 16  # in a response, for each position of a request
_MAX_POSITIONS = 2**30


def formats() -> list[str]:
    """Return the formats of exports."""
    return [SAVED_MODEL, *FORMATS_OF_IDS]


def converter(export_format: str) -> ModuleType:
    """Return the module of a format of ids."""
    return importlib.import_module(f"electra_tf.serving.formats.{export_format}")


def check_export(
    folder: str | os.PathLike,
    format: str = SAVED_MODEL,
    signatures: Sequence[str] = SIGNATURES,
    argument: str = "--output",
) -> str:
    """Validate the arguments of `export` before its work; return the folder's path."""
    path, given = os.fspath(folder), ",".join(signatures)
    if format not in (*FORMAT_NAMES, *FORMATS_OF_IDS):
        raise InputError(
            f"format must be one of {', '.join(formats())}, not {format!r}"
        )
    if not signatures or set(signatures) - set(SIGNATURES):
        raise InputError(
            f"--signatures must be text, tokens or text,tokens, not {given!r}"
        )
    if format in FORMATS_OF_IDS and "tokens" not in signatures:
        raise InputError(
            f"--format={format} has the signature tokens alone, which "
            f"--signatures={given} omits"
        )
    check_installed(format, f"format={format!r}")
    if is_url(path) or path.endswith(_SUFFIXES):
        raise InputError(
            f"{argument} of export must be a local folder, not {path!r}: the "
            "tokenizer's files are beside the model's"
        )
    check_path(path, format, argument)
    is_version = argument != "filepath"
    remedy = "a higher version (--version, in Python version=)" * is_version
    check_new_folder(path, argument, f"pass {remedy or 'another'}, or delete it")
    return path


def check_path(path: str | os.PathLike, format: str, argument: str) -> None:
    """Raise an error for a path of a SavedModel that TensorFlow reads as a pattern."""
    absolute = os.path.abspath(path)
    found = sorted({*absolute} & {*_PATTERN_CHARACTERS})
    if found and format in FORMAT_NAMES:
        raise InputError(
            f"{argument} must be a path without {' '.join(found)}, as TensorFlow reads "
            f"{' '.join(_PATTERN_CHARACTERS)} in the paths of SavedModels as patterns. "
            f"Received: {absolute!r}. Rename the folder, or pass another"
        )


def check_installed(extra: str, purpose: str) -> None:
    """Raise an InputError if a package of an extra is missing."""
    for package in {"http": ("aiohttp",), **FORMATS_OF_IDS}.get(extra, ()):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"{purpose} needs the package {package}: pip install "
                f"'electra_tf[{extra}]'"
            )


@dataclasses.dataclass(frozen=True)
class RequestLimits:
    """Limits of one request. The graph asserts them before it allocates memory."""

    rows: int = 4096
    """Rows of a request of strings."""
    bytes: int = 2**21
    """Bytes of all strings together. The tokenizer needs about a hundred times the
    memory."""
    positions: int = 2**16
    """Rows times positions of the longest; the parts that long texts are split into
    count as rows. 128 rows of 512, or 512 of 128."""

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if type(value) is not int or not 0 < value <= _MAX_POSITIONS:
                raise InputError(f"max_{name} must be from 1 to 2^30, not {value!r}")

    @property
    def words(self) -> int:
        """Rows times words of the longest text in a tagger's response."""
        return _WORDS * self.positions


class ServerLimits(NamedTuple):
    """Limits of the local server, in addition to those in the graph."""

    waiting: int = 64
    bytes: int = 2**22
    threads: int = 2


LIMITS = RequestLimits()  # the default
