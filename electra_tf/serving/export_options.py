"""Options of an export and limits of requests, checked without TensorFlow."""

import dataclasses
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf.errors import InputError, unknown_arguments
from electra_tf.storage.objects import is_url

FORMATS = ("saved_model", "litert", "onnx")
NAMES = {name: name for name in FORMATS} | dict.fromkeys(
    ("savedmodel", "tf_saved_model"), FORMATS[0]
)
"""Formats by the names that they have in Python, Keras's among them."""
SIGNATURES = ("text", "tokens")
IDS = ("token_ids", "segment_ids", "padding_mask")
"""Inputs of signatures that take ids, int32 [B, L]."""
OUTPUT_KINDS = ("encoder", "electra")
"""Outputs of a pre-trained checkpoint."""
TARGETS = ("cpu", "any")
"""Devices of an exported graph: `cpu` uses forms for oneDNN, `any` the plain form."""
_SUFFIXES = (".keras", ".onnx", ".pb", ".tflite")
# What to do in place of arguments of Keras's `export`.
_KERAS_ARGUMENTS = {
    "input_signature": "Leave input_signature out: an export takes texts and ids",
    "opset_version": "Leave opset_version out: an ONNX file has opset 17",
}
_PACKAGES = {
    "litert": ("ai_edge_litert",),
    "onnx": ("tf2onnx", "onnxruntime"),
    "http": ("aiohttp",),
}


def check_arguments(
    output: str, version: int, signatures: Sequence[str], export_format: str
) -> str:
    """Validate the arguments of `export`; return the version's folder."""
    if not signatures or set(signatures) - set(SIGNATURES):
        raise InputError(
            "--signatures must be text, tokens, or text,tokens",
            repr(",".join(signatures)),
            "Omit --signatures for both",
        )
    if export_format != FORMATS[0] and "tokens" not in signatures:
        raise InputError(
            f"--signatures must contain tokens for --format={export_format}, which has "
            "no other",
            f"--format={export_format} --signatures={','.join(signatures)}",
            "Omit --signatures",
        )
    check_installed(export_format, f"--format={export_format}")
    final = os.path.join(output, str(version))
    if os.path.exists(output) and not os.path.isdir(output):
        raise InputError(
            "--output must be a folder",
            f"{output!r}, a file",
            "Choose another --output",
        )
    if os.path.exists(final):
        raise InputError(
            "The version of an export must be new, as a server may have the old one",
            f"{final!r}, which exists",
            "Pass a higher version (--version, in Python version=), or delete it",
        )
    return final


def check_export(
    filepath: str | os.PathLike, format: str, unknown: Mapping[str, Any]
) -> str:
    """Validate the arguments of `model.export`; return the new folder."""
    if unknown:
        known = ("filepath", "format", "verbose")
        raise unknown_arguments("export", unknown, known, _KERAS_ARGUMENTS)
    if format not in NAMES:
        raise InputError(
            f"format must be one of {', '.join(FORMATS)}",
            repr(format),
            "Pass one of them",
        )
    check_installed(NAMES[format], f"format={format!r}")
    path = os.fspath(filepath)
    if is_url(path) or path.endswith(_SUFFIXES):
        raise InputError(
            "filepath of export must be a local folder, as the tokenizer's files are "
            "beside the model's",
            repr(path),
            "Pass the path of a folder that does not exist",
        )
    if os.path.lexists(path):
        raise InputError(
            "filepath of export must be new",
            f"{path!r}, which exists",
            "Pass another path, or delete it",
        )
    return path


def check_installed(extra: str, purpose: str) -> None:
    """Raise an InputError if a package of an extra is missing."""
    for package in _PACKAGES.get(extra, ()):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"The extra `{extra}` must be installed for {purpose}",
                f"no package {package}",
                f"Install it: pip install 'electra_tf[{extra}]'",
            )


_WORDS = 16  # in a response, for each position of a request
_MAX_POSITIONS = 2**30


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
                raise InputError(
                    f"The limit max_{name} of a request must be from 1 to 2^30",
                    repr(value),
                    "Pass another number",
                )

    @property
    def words(self) -> int:
        """Rows times words of the longest text in a tagger's response."""
        return _WORDS * self.positions


class ServerLimits(NamedTuple):
    """Limits of the local server, in addition to those in the graph."""

    waiting: int = 64
    bytes: int = 2**22
    threads: int = 2


LIMITS = RequestLimits()
"""The default."""
