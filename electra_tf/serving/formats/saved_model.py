"""Write a SavedModel and validate it in a fresh process."""

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

ASSETS_EXTRA = "assets.extra"
"""Folder of files that are not part of the graph: vocabulary, labels, warm-up."""
ABOUT = "about.json"


def write_saved_model(
    spec: ExportSpec, signatures: Mapping[str, Signature], folder: str
) -> dict[str, Any]:
    """Write a SavedModel and validate it in a fresh process.

    Returns:
        The report: differences by signature and output, and the size.
    """
    functions = {name: item.function for name, item in signatures.items()}
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(spec.module, folder, functions, options)
    write_metadata(spec, os.path.join(folder, ASSETS_EXTRA))
    report = validate_export(folder, signatures)
    _check_report(report, spec.module)
    return report


def write_metadata(spec: ExportSpec, folder: str) -> None:
    """Write the files of every format: vocabulary, tokenizer settings, labels."""
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


def validate_export(folder: str, signatures: Mapping[str, Signature]) -> dict[str, Any]:
    """Compare a SavedModel in a fresh process with the Keras model in this one."""
    with tempfile.TemporaryDirectory() as cases_folder:
        cases = []
        for name, signature in signatures.items():
            for request in signature.requests:
                expected = signature.expected(request)
                _save_arrays(cases_folder, f"{len(cases)}.in", request)
                _save_arrays(cases_folder, f"{len(cases)}.out", expected)
                names = {"inputs": sorted(request), "outputs": sorted(expected)}
                cases.append({"signature": name, **names})
        pathlib.Path(cases_folder, "cases.json").write_text(json.dumps(cases))
        # Python puts a script's folder first in the import path. A copy without other
        # modules beside it cannot shadow a package.
        script = shutil.copy(validate.__file__, cases_folder)
        result = subprocess.run(
            [sys.executable, script, folder, cases_folder],
            capture_output=True,
            text=True,
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
    """Raise an error for the first failed check."""
    if report["unknown_operations"]:
        raise InputError(
            "A SavedModel must contain only operations of stock TF Serving",
            ", ".join(report["unknown_operations"]),
            "Report it; nothing was exported",
        )
    numbers = sum(int(np.prod(variable.shape)) for variable in module.variables)
    if report["numbers"] != numbers:
        raise InputError(
            f"A SavedModel must store each of the {numbers:,} numbers of its variables "
            "once",
            f"{report['numbers']:,} in {report['variables']} variables",
            "Report it; nothing was exported",
        )
    too_large = [
        f"{name} differs by {difference:.2g}"
        for name, difference in report["differences"].items()
        if difference > validate.TOLERANCE
    ]
    if too_large:
        raise InputError(
            f"Served outputs must equal Keras's to {validate.TOLERANCE:g}",
            ", ".join(too_large),
            "Report it; nothing was exported",
        )


def _save_arrays(folder: str, prefix: str, arrays: Request) -> None:
    for name, array in arrays.items():
        np.save(os.path.join(folder, f"{prefix}.{name}.npy"), array)
