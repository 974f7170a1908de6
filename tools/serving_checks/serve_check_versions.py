"""Compare an exported model in this TensorFlow and in others, such as a server's.

    python tools/serving_checks/serve_check_versions.py --model=served --python=PATH

Each interpreter needs tensorflow and tensorflow-text of one release, nothing else. It
loads the newest version and answers the same requests for every signature, some of
which exceed the limits. Strings and integers must be equal, floats to 1e-5 relative to
1 or more, and errors must be InvalidArgumentError in all. Exits with 1 otherwise.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np

TOLERANCE = 1e-5
TEXTS = (
    "In 1869 the transcontinental railroad was completed at Promontory Summit, Utah.",
    "Café crème à Zürich: ΟΔΥΣΣΕΥΣ, Ёлка, ﬁnancial ½ №5 [MASK]",
    "这家酒店的服务非常好,房间也很干净。 🙂🙃 e\u0301 \u200d un-be-liev-able",
    "",
    " ".join(f"word{number} of a text that is far too long" for number in range(90)),
    "tab\there, new\nline, no\u00a0break, wide\u3000space [MASK] [SEP] ##ing",
)
Result = dict[str, Any]


def requests(inputs: dict[str, Any], strings: bool) -> dict[str, dict[str, np.ndarray]]:
    """Return requests by name, the same in every version of TensorFlow."""
    if strings:
        rows = {"one row": TEXTS[:1], "all texts": TEXTS, "no rows": ()}
        rows |= {"too many rows": ("a",) * 5000, "too many bytes": ("word " * 2**20,)}
        return {
            name: {
                key: np.array(
                    [text.encode() for text in (*texts[shift:], *texts[:shift])], object
                )
                for shift, key in enumerate(sorted(inputs))
            }
            for name, texts in rows.items()
        }
    rng = np.random.default_rng(0)
    shapes = {"one row": (1, 5), "rows": (7, 16), "positions": (4, 32)}
    shapes |= {"no rows": (0, 3), "too many rows": (70_000, 2)}
    ids = {name: rng.integers(0, 100, shape) for name, shape in shapes.items()}
    return {
        name: {
            key: ids_BL
            if key == "token_ids"
            else np.full_like(ids_BL, key == "padding_mask")
            for key in inputs
        }
        for name, ids_BL in ids.items()
    }


def answer(folder: str) -> Result:
    """Return the responses of a SavedModel in this process, as JSON."""
    import tensorflow as tf
    import tensorflow_text

    signatures = tf.saved_model.load(folder).signatures
    responses = {}
    for name in sorted(signatures):
        specs = signatures[name].structured_input_signature[1]
        strings = all(spec.dtype == tf.string for spec in specs.values())
        for title, arrays in requests(specs, strings).items():
            tensors = {key: tf.constant(arrays[key], specs[key].dtype) for key in specs}
            try:
                outputs = signatures[name](**tensors)
                response = {key: _as_json(value) for key, value in outputs.items()}
            except tf.errors.OpError as error:
                response = {"error": type(error).__name__}
            responses[f"{name}, {title}"] = response
    versions = tf.__version__, tensorflow_text.__version__
    return {"versions": versions, "responses": responses}


def _as_json(tensor: Any) -> Result:
    array = tensor.numpy()
    values = array.ravel().tolist()
    if array.dtype == object:
        values = [value.hex() for value in values]
    return {"dtype": str(array.dtype), "shape": array.shape, "values": values}


def answer_with(python: str, folders: list[str]) -> list[Result]:
    """Return the responses of SavedModels in another interpreter."""
    # -I: no PYTHONPATH, which may name packages of this interpreter.
    command = [python, "-I", __file__, *(f"--answer={folder}" for folder in folders)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no message"]
        sys.exit(f"error: {python} failed: {lines[-1]}")
    return [json.loads(line) for line in result.stdout.splitlines()[-len(folders) :]]


def compare(expected: Result, received: Result) -> tuple[float, list[str]]:
    """Compare all responses.

    Returns:
        The largest difference of a float, and a line for each difference that is too
        large.
    """
    largest, failures = 0.0, []
    for title, response in expected.items():
        other = received.get(title, {})
        if response.keys() != other.keys() or "error" in response:
            if response != other or response["error"] != "InvalidArgumentError":
                failures.append(
                    f"{title}: {_shown(other)}, expected {_shown(response)}"
                )
            continue
        for name, array in response.items():
            if any(array[key] != other[name][key] for key in ("dtype", "shape")):
                failures.append(f"{title}: {name} has another type or shape")
            elif array["dtype"].startswith("float"):
                one, two = np.array(array["values"]), np.array(other[name]["values"])
                scale = np.maximum(1, np.abs(one))
                difference = float(np.max(np.abs(one - two) / scale, initial=0))
                largest = max(largest, difference)
                if not difference <= TOLERANCE:
                    failures.append(f"{title}: {name} differs by {difference:.2g}")
            elif array["values"] != other[name]["values"]:
                failures.append(f"{title}: {name} differs")
    return largest, failures


def _shown(response: Result) -> str:
    return response.get("error") or f"outputs {sorted(response)}"


def print_comparison(folder: str, expected: Result, received: Result) -> bool:
    """Print how far the responses of two versions differ."""
    largest, failures = compare(expected["responses"], received["responses"])
    errors = sum("error" in one for one in received["responses"].values())
    print(
        f"{folder}: TensorFlow {received['versions'][0]}, text "
        f"{received['versions'][1]}, compared with {expected['versions'][0]}: "
        f"{len(received['responses'])} requests, {errors} rejected, largest difference "
        f"{largest:.1e}, {len(failures)} failures"
    )
    for failure in failures:
        print(f"failure: {failure}")
    return bool(failures)


def newest_version(model: str) -> str:
    """Return the folder of the largest version number."""
    folders = [path for path in pathlib.Path(model).glob("*") if path.name.isdecimal()]
    if not folders:
        sys.exit(f"error: {model} must contain a folder named by a number, such as 1")
    return str(max(folders, key=lambda path: int(path.name)))


def main() -> None:
    """Compare each model in each interpreter with this one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", help="folder of the versions")
    parser.add_argument("--python", action="append", help="another interpreter")
    parser.add_argument("--answer", action="append", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        for folder in options.answer:
            print(json.dumps(answer(folder)))
        return
    if not options.model or not options.python:
        sys.exit("error: --model and --python must be set")
    folders = [newest_version(model) for model in options.model]
    expected = answer_with(sys.executable, folders)
    failed = False
    for python in options.python:
        received = answer_with(python, folders)
        for folder, one, other in zip(folders, expected, received, strict=True):
            failed |= print_comparison(folder, one, other)
    sys.exit(failed)


if __name__ == "__main__":
    main()
