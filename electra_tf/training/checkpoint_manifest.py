"""Write, parse and verify the manifest of a checkpoint, `checkpoint.json`."""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from electra_tf.errors import InputError

MANIFEST = "checkpoint.json"
DAMAGED = (
    "Copy the folder again, or pass --fallback to pretrain (or delete the folder) to "
    "resume from an earlier checkpoint"
)
"""Remedy of the errors of damaged checkpoints."""
_FORMAT = 1
_CHECKSUM = "sha256"  # of the rest of the manifest; earlier versions have none
_FIELDS = {"format", "step", "files", "details", _CHECKSUM}
_CHUNK = 2**22  # bytes read at a time
_MAX_MANIFEST = 2**24  # bytes


def format_manifest(
    step: int, sums: Mapping[str, list], metadata: Mapping[str, object]
) -> bytes:
    """Return the content of a manifest."""
    content = {"format": _FORMAT, "step": step, "files": sums, "details": metadata}
    return json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=1).encode()


def _checksum(manifest: Mapping[str, object]) -> str:
    """Return the SHA-256 of a manifest's content, without its checksum."""
    content = {name: manifest[name] for name in manifest if name != _CHECKSUM}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_manifest(path: pathlib.Path) -> bytes:
    """Return the content of a manifest."""
    size = path.stat().st_size
    if not path.is_file() or size > _MAX_MANIFEST:
        raise InputError(
            f"{path} must be a regular file of at most {_MAX_MANIFEST:,} bytes",
            f"{size:,} bytes" if path.is_file() else "another kind of file",
            DAMAGED,
        )
    return path.read_bytes()


def parse_manifest(content: bytes, path: str) -> dict[str, Any]:
    """Parse and check the manifest of a checkpoint.

    Returns:
        `step`, `details`, and `files`: size and SHA-256 by name.
    """
    try:
        manifest = json.loads(content)
        format_number = manifest["format"]
        _ = manifest["details"].items()
        if type(manifest["step"]) is not int or manifest["step"] < 0:
            raise ValueError(f"step {manifest['step']!r:.40}")
        for name, (size, _sum) in manifest["files"].items():
            if name != os.path.basename(name) or name in ("", ".", ".."):
                raise ValueError(f"the name {name!r:.60} of a file elsewhere")
            if type(size) is not int:
                raise ValueError(f"the size {size!r:.40}")
        if format_number == _FORMAT:
            _check_own_checksum(manifest)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InputError(
            f"{path}/{MANIFEST} must be an undamaged manifest",
            f"{type(error).__name__}: {error}",
            DAMAGED,
        ) from error
    if format_number != _FORMAT:
        raise InputError(
            f"The format of a checkpoint must be {_FORMAT}",
            f"{path}: format {format_number}",
            "Use the version of electra_tf that wrote it",
        )
    return manifest


def _check_own_checksum(manifest: dict) -> None:
    if surplus := manifest.keys() - _FIELDS:
        raise ValueError(f"the fields {sorted(surplus)}"[:200])
    expected = _checksum(manifest)
    if manifest.get(_CHECKSUM, expected) != expected:
        raise ValueError("another checksum than that of its content")


def verify_file(path: pathlib.Path, size: int, sha256: str) -> None:
    """Raise an InputError for a file that is not as its manifest states.

    Args:
        path: The file.
        size: Its bytes.
        sha256: Its SHA-256.
    """
    found = path.stat().st_size if path.exists() else None
    if found is None:
        received = "no such file"
    elif not path.is_file():
        received = "no regular file"
    elif found != size:
        received = f"{found} bytes"
    elif _sha256(path) != sha256:
        received = "the same size, but another checksum"
    else:
        return
    raise InputError(
        f"{path} must have the {size} bytes and the checksum in {MANIFEST}",
        received,
        DAMAGED,
    )


def _sha256(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
