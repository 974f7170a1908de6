"""Score the LiteRT and ONNX files of fine-tuned models, float32 and int8.

    python tools/score_formats.py --data=glue/CoLA models/cola
    python tools/score_formats.py --data=conll2000/test.txt models/chunking

Writes each model's files as `export` does, computes the outputs for labelled data with
them, and prints the scores beside those of Keras. The files differ in the encoder and
the head alone: texts are encoded and outputs decoded by the model.
"""

import argparse
import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import electra_tf
from electra_tf import sources
from electra_tf.serving.formats import litert, onnx
from electra_tf.serving.signatures import Runtime
from electra_tf.tasks.evaluation import evaluate_model
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.inference import outputs_by_row

FORMATS = {
    "litert": (litert.LITERT_FILES, litert.load),
    "onnx": (onnx.ONNX_FILES, onnx.load),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="Folders that `finetune` wrote.")
    parser.add_argument("--data", required=True, help="--data of `evaluate`.")
    options = parser.parse_args()
    for path in options.models:
        print(f"{path}, {options.data}")
        for name, scores in score(path, options.data).items():
            row = " ".join(f"{key} {v:6.2f}" for key, v in scores.items())
            print(f"  {name:<18} {row}", flush=True)


def score(path: str, data: str) -> dict[str, dict[str, float]]:
    model, task = electra_tf.load_model(path), sources.open_source(path).task
    scores, splits = _evaluate(model, task, data)
    found = {"keras": scores}
    item = next(iter(splits.values())).split.items[:1]
    like = model.outputs_of(model.examples(item))[0]
    with tempfile.TemporaryDirectory() as folder:
        for format, (files, open_file) in FORMATS.items():
            output = os.path.join(folder, format)
            model.export(output, format=format, verbose=False)
            for name in sorted(files):
                run = open_file(os.path.join(output, name))
                model.outputs_of = functools.partial(_outputs, run, like)
                found[name], _ = _evaluate(model, task, data)
                del model.outputs_of  # that of its class again
    return found


def _evaluate(model: Any, task: str | None, data: str) -> tuple[dict[str, float], Any]:
    report, splits = evaluate_model(model, task, data, log=lambda line: None)
    return {name: v for name, v in report.items() if isinstance(v, float)}, splits


def _outputs(
    run: Runtime, like: Any, examples: EncodedExamples, batch_size: int | None = None
) -> list[Any]:
    """Return what `outputs_of` returns, computed by a file.

    `like` is a row of the model's own outputs.
    """

    def function(inputs: Mapping[str, np.ndarray], rows: Sequence[int]) -> Any:
        outputs = run({name: np.asarray(ids) for name, ids in inputs.items()})
        if isinstance(like, Mapping):  # the file's names have no axes
            outputs = {name: outputs[name.rsplit("_", 1)[0]] for name in like}
        else:
            outputs = outputs["logits"]
        return tf.nest.map_structure(tf.constant, outputs)

    return outputs_by_row(examples, batch_size or 32, function)


if __name__ == "__main__":
    main()
