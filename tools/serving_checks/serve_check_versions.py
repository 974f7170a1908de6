"""Compare an exported model in this TensorFlow and in another, such as a server's.

    python tools/serving_checks/serve_check_versions.py --model=served --python=PATH

The interpreter needs tensorflow and tensorflow-text of one release, nothing else. It
loads the newest version and answers the same requests for every signature, some of
which exceed the limits. Strings and integers must be equal, floats to 1e-5 relative to
1 or more, and errors must be InvalidArgumentError in both. Exits with 1 otherwise.
"""

import argparse
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

import numpy as np
import serve_check_requests as requests
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)

Responses = dict[str, dict[str, np.ndarray] | str]


def answer(folder: str) -> Responses:
    """Return the responses of a SavedModel, or the names of errors, by request."""
    loaded = tf.saved_model.load(folder)
    rng, responses = np.random.default_rng(0), {}
    for name, function in sorted(loaded.signatures.items()):
        specs = function.structured_input_signature[1]
        strings = {spec.dtype for spec in specs.values()} == {tf.string}
        signature = requests.Signature(name, tuple(sorted(specs)), strings, {})
        cases = [*requests.real(signature, rng)]
        for shape in ([0], [5000], [2**22]) if strings else ([0, 3], [2**17, 2]):
            value = b"word" if strings else 1
            message = signature.message(shape, [value] if shape[0] else [])
            title = f"{name}, shape {shape}"
            cases.append(requests.Case(title, signature, signature.same(message)))
        for number, case in enumerate(cases):
            try:
                response = requests.call(function, case)
            except tf.errors.OpError as error:
                response = type(error).__name__
            responses[f"{number}: {case.name}"] = response
    return responses


def compare(expected: Responses, received: Responses) -> tuple[float, list[str]]:
    """Return the largest difference of an output, and a line for each failure."""
    from electra_tf.serving.validate import TOLERANCE, max_difference

    largest, failures = 0.0, []
    for title, response in expected.items():
        other = received.get(title, "none")
        if isinstance(response, str) or isinstance(other, str):
            if (response, other) != ("InvalidArgumentError",) * 2:
                failures.append(f"{title}: {other}, not {response}")
            continue
        for name, array in response.items():
            difference = max_difference(other[name], array)
            largest = max(largest, difference)
            same = other[name].dtype == array.dtype
            if not same or difference > TOLERANCE * (array.dtype.kind == "f"):
                failures.append(f"{title}: {name} differs by {difference:.2g}")
    return largest, failures


def answer_with(python: str, folder: str) -> Responses:
    """Return the responses of a SavedModel in another interpreter."""
    program_folder = str(pathlib.Path(__file__).parent)
    with tempfile.NamedTemporaryFile() as file:
        program = (
            f"import sys, pickle; sys.path.insert(0, {program_folder!r})\n"
            "import serve_check_versions as versions\n"
            f"pickle.dump(versions.answer({folder!r}), open({file.name!r}, 'wb'), 4)"
        )
        # -I: no PYTHONPATH, which may name packages of this interpreter.
        result = subprocess.run(
            [python, "-I", "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        if result.returncode:
            lines = result.stderr.strip().splitlines() or ["no message"]
            sys.exit(f"error: {python} failed: {lines[-1]}")
        return pickle.load(file)


def main() -> None:
    from serve_check_server import newest_version

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="folder of the versions")
    parser.add_argument("--python", required=True, help="another interpreter")
    options = parser.parse_args()
    folder = str(newest_version(options.model))
    received = answer_with(options.python, folder)
    largest, failures = compare(answer(folder), received)
    rejected = sum(isinstance(response, str) for response in received.values())
    print(
        f"{options.model}: {len(received)} requests, {rejected} rejected, largest "
        f"difference {largest:.1e}, {len(failures)} failures"
    )
    for failure in failures:
        print(f"failure: {failure}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
