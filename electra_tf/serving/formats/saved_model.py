"""Write a SavedModel and validate it in a fresh process."""

import json
import os
import pathlib
import pickle
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
from electra_tf.serving.signatures import ExportSpec, Signature
from electra_tf.text.huggingface_tokenizer import TOKENIZER, write_json
from electra_tf.text.records import VOCABULARY

ASSETS_EXTRA = "assets.extra"
"""Folder of files that are not part of the graph: vocabulary, labels, warm-up."""
ABOUT = "about.json"


def write_saved_model(
    spec: ExportSpec,
    signatures: Mapping[str, Signature],
    cases: list[tuple],
    folder: str,
) -> dict[str, Any]:
    """Write a SavedModel and validate it in a fresh process.

    `cases` are those of `validate.py`. Return the report: differences by signature and
    output, the size, and notes.
    """
    functions = {name: item.function for name, item in signatures.items()}
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(spec.module, folder, functions, options)
    notes = write_metadata(spec, os.path.join(folder, ASSETS_EXTRA))
    report = _validate(folder, cases)
    _check_report(report, spec.module)
    return report | {"notes": notes}


def write_metadata(spec: ExportSpec, folder: str) -> list[str]:
    """Write the files of every format: vocabulary, tokenizer settings, labels.

    Return a line for each file that the model cannot have.
    """
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    spec.tokenizer.save(path / VOCABULARY)
    about = {
        "kind": spec.kind,
        **spec.metadata,
        "tokenization": spec.tokenizer.identity(),
    }
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    (path / ABOUT).write_text(text, encoding="utf-8")
    if "labels" in spec.metadata:
        lines = "".join(f"{label}\n" for label in spec.metadata["labels"])
        (path / "labels.txt").write_text(lines, encoding="utf-8")
    try:
        write_json(spec.tokenizer, os.path.join(folder, TOKENIZER))
    except InputError as error:
        return [f"no {TOKENIZER}: {error.received}"]
    return []


def _validate(folder: str, cases: list[tuple]) -> dict[str, Any]:
    """Compare a SavedModel in a fresh process with the Keras model in this one."""
    with tempfile.TemporaryDirectory() as temporary:
        file = pathlib.Path(temporary, "cases")
        file.write_bytes(pickle.dumps(cases))
        # Python puts a script's folder first in the import path. A copy without other
        # modules beside it cannot shadow a package.
        script = shutil.copy(validate.__file__, temporary)
        result = subprocess.run(
            [sys.executable, script, folder, file], capture_output=True, text=True
        )
    if result.returncode:
        reason = result.stderr.strip().splitlines() or [f"exit {result.returncode}"]
        raise InputError(
            "The SavedModel must load and run in a fresh process",
            reason[-1][:500],
            "Report it; nothing was exported",
        )
    return json.loads(result.stdout.splitlines()[-1])


def _check_report(report: Mapping[str, Any], module: tf.Module) -> None:
    numbers = sum(int(np.prod(variable.shape)) for variable in module.variables)
    too_large = [
        f"{name} differs by {difference:.2g}"
        for name, difference in report["differences"].items()
        if difference > validate.TOLERANCE
    ]
    if report["unknown_operations"]:
        required = "A SavedModel must contain only operations of stock TF Serving"
        received = ", ".join(report["unknown_operations"])
    elif report["numbers"] != numbers:
        required = f"A SavedModel must store the {numbers:,} numbers of its model once"
        received = f"{report['numbers']:,} in {report['variables']} variables"
    elif too_large:
        required = f"Served outputs must equal Keras's to {validate.TOLERANCE:g}"
        received = ", ".join(too_large)
    else:
        return
    raise InputError(required, received, "Report it; nothing was exported")
