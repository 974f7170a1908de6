"""Options of an export, and their checks, which need no TensorFlow."""

import importlib.util
import os
from collections.abc import Sequence

from electra_tf.errors import InputError

FORMATS = ("saved_model", "litert", "onnx")
SIGNATURES = ("text", "tokens")
OUTPUT_KINDS = ("encoder", "electra")
"""Outputs of a pre-trained checkpoint."""
TARGETS = ("cpu", "any")
"""Devices of an exported graph: `cpu` uses forms for oneDNN, `any` the plain form."""
_PACKAGES = {
    "litert": ("ai_edge_litert",),
    "onnx": ("tf2onnx", "onnxruntime"),
    "http": ("aiohttp", "prometheus_client"),
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


def check_installed(extra: str, purpose: str) -> None:
    """Raise an InputError if a package of an extra is missing."""
    for package in _PACKAGES.get(extra, ()):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"The extra `{extra}` must be installed for {purpose}",
                f"no package {package}",
                f"Install it: tools/install {extra}",
            )
