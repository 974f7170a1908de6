"""A SavedModel that was tried before anybody gets it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving import validate
from electra_tf.serving.export_spec import ExportSpec, Request, Signature
from electra_tf.text.records import VOCABULARY

EXTRA = "assets.extra"
"""The folder of what TF Serving does not load: vocabulary, labels, warm-up requests."""
ABOUT = "about.json"


def write_saved_model(
    exportable: ExportSpec, signatures: Mapping[str, Signature], folder: str
) -> dict[str, Any]:
    """Writes a SavedModel and proves it in a process of its own.

    Args:
        exportable: What the functions belong to.
        signatures: Those to write, `serving_default` among them.
        folder: A new one.

    Returns:
        What was found: the differences by signature and output, and the size.

    Raises:
        InputError: It does not hold; what was written is for the caller to remove.
    """
    functions = {name: each.function for name, each in signatures.items()}
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(exportable.module, folder, functions, options)
    write_extra(exportable, os.path.join(folder, EXTRA))
    found = validate_export(folder, signatures)
    _require(found, exportable.module)
    return found


def write_extra(exportable: ExportSpec, folder: str) -> None:
    """Writes what travels with every format: vocabulary, tokenizer's settings, labels.

    Args:
        exportable: What is exported.
        folder: Where; it is made if need be.
    """
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    exportable.tokenizer.save(path / VOCABULARY)
    about = {
        "kind": exportable.kind,
        **exportable.details,
        "tokenization": exportable.tokenizer.identity(),
    }
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    (path / ABOUT).write_text(text, encoding="utf-8")
    if "labels" in exportable.details:
        lines = "".join(f"{label}\n" for label in exportable.details["labels"])
        (path / "labels.txt").write_text(lines, encoding="utf-8")


def validate_export(folder: str, signatures: Mapping[str, Signature]) -> dict[str, Any]:
    """Asks a SavedModel, in a fresh process, what Keras was asked here.

    Args:
        folder: Of the SavedModel.
        signatures: Its own, with requests and what is expected.

    Returns:
        What `proof.main` prints.

    Raises:
        InputError: It cannot be loaded or asked.
    """
    with tempfile.TemporaryDirectory() as place:
        cases = []
        for name, signature in signatures.items():
            for request in signature.requests:
                expected = signature.expected(request)
                _save(place, f"{len(cases)}.in", request)
                _save(place, f"{len(cases)}.out", expected)
                names = {"inputs": sorted(request), "outputs": sorted(expected)}
                cases.append({"signature": name, **names})
        pathlib.Path(place, "cases.json").write_text(json.dumps(cases))
        # By itself, so that no file beside it is taken for a package it imports.
        script = shutil.copy(validate.__file__, place)
        done = subprocess.run(
            [sys.executable, script, folder, place], capture_output=True, text=True
        )
    if done.returncode:
        reason = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise InputError(
            "A fresh process loads the SavedModel and asks it",
            reason[-1][:500],
            "Report it; nothing was exported",
        )
    return json.loads(done.stdout.splitlines()[-1])


def _require(found: Mapping[str, Any], module: tf.Module) -> None:
    """Stops at the first promise that does not hold."""
    if found["unknown_operations"]:
        raise InputError(
            "A SavedModel holds operations that a stock TF Serving has",
            ", ".join(found["unknown_operations"]),
            "Report it; nothing was exported",
        )
    numbers = sum(int(np.prod(variable.shape)) for variable in module.variables)
    if found["numbers"] != numbers:
        raise InputError(
            f"A SavedModel holds each of the {numbers:,} numbers of its variables once",
            f"{found['numbers']:,} in {found['variables']} variables",
            "Report it; nothing was exported",
        )
    wrong = {
        name: difference
        for name, difference in found["differences"].items()
        if difference > validate.TOLERANCE
    }
    if wrong:
        raise InputError(
            f"What is served equals what Keras says to {validate.TOLERANCE:g}",
            ", ".join(f"{name} differs by {by:.2g}" for name, by in wrong.items()),
            "Report it; nothing was exported",
        )


def _save(place: str, prefix: str, arrays: Request) -> None:
    for name, array in arrays.items():
        np.save(os.path.join(place, f"{prefix}.{name}.npy"), array)
