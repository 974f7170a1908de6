"""Compare an exported model in this TensorFlow and in another, such as a server's.

    python tools/serving_checks/serve_check_versions.py --model=served --python=PATH

The interpreter needs tensorflow and tensorflow-text of one release, nothing else. It
loads the newest version and answers the same requests for every signature, some of
which exceed the limits. Strings and integers must be equal, floats to 1e-5 relative to
1 or more, and errors must be InvalidArgumentError in both. Exits with 1 otherwise.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import serve_check_requests as requests
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)

FOLDER = pathlib.Path(__file__).parent
TOLERANCE = 1e-5
Responses = dict[str, dict[str, Any]]


def answer(model: str) -> Responses:
    """Return the responses of a SavedModel in this process, as JSON."""
    folders = [path for path in pathlib.Path(model).glob("*") if path.name.isdecimal()]
    loaded = tf.saved_model.load(str(max(folders, key=lambda path: int(path.name))))
    rng, responses = np.random.default_rng(0), {}
    for name, function in sorted(loaded.signatures.items()):
        specs = function.structured_input_signature[1]
        strings = {spec.dtype for spec in specs.values()} == {tf.string}
        signature = requests.Signature(name, tuple(sorted(specs)), strings, {})
        cases = [*requests.real(signature, requests.TEXTS, rng)]
        for shape in ([0], [5000], [2**22]) if strings else ([0, 3], [2**17, 2]):
            value = b"word" if strings else 1
            message = signature.message(shape, [value] if shape[0] else [])
            title = f"{name}, shape {shape}"
            cases.append(requests.Case(title, signature, signature.same(message)))
        for number, case in enumerate(cases):
            inputs = {
                key: tf.constant(tf.make_ndarray(message), message.dtype)
                for key, message in case.tensors.items()
            }
            try:
                outputs = function(**inputs).items()
                response = {key: _as_json(tensor.numpy()) for key, tensor in outputs}
            except tf.errors.OpError as error:
                response = {"error": type(error).__name__}
            responses[f"{number}: {case.name}"] = response
    return responses


def _as_json(array: np.ndarray) -> dict[str, Any]:
    values = array.ravel().tolist()
    if array.dtype == object:
        values = [value.hex() for value in values]
    return {"dtype": str(array.dtype), "shape": array.shape, "values": values}


def compare(expected: Responses, received: Responses) -> tuple[float, list[str]]:
    """Return the largest difference of a float, and a line for each failure."""
    largest, failures = 0.0, []
    for title, response in expected.items():
        other = received.get(title, {})
        if response.keys() != other.keys() or "error" in response:
            if response != other or response["error"] != "InvalidArgumentError":
                failures.append(f"{title}: {sorted(other)}, not {sorted(response)}")
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


def answer_with(python: str, model: str) -> Responses:
    """Return the responses of a SavedModel in another interpreter."""
    # -I: no PYTHONPATH, which may name packages of this interpreter.
    program = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); "
    program += "import serve_check_versions; serve_check_versions.main()"
    result = subprocess.run(
        [python, "-I", "-c", program, f"--model={model}"],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no message"]
        sys.exit(f"error: {python} failed: {lines[-1]}")
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    """Compare the interpreters, or print the responses of this one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="folder of the versions")
    parser.add_argument(
        "--python", help="interpreter; none: print this one's responses"
    )
    options = parser.parse_args()
    if not options.python:
        print(json.dumps(answer(options.model)))
        return
    python, model = options.python, options.model
    expected, received = answer_with(sys.executable, model), answer_with(python, model)
    largest, failures = compare(expected, received)
    rejected = sum("error" in response for response in received.values())
    print(
        f"{model}: {len(received)} requests, {rejected} rejected, largest difference "
        f"{largest:.1e}, {len(failures)} failures"
    )
    for failure in failures:
        print(f"failure: {failure}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
