"""Common parts of LiteRT and ONNX models, which map ids to numbers.

Neither format has string tables or the assertions of a TensorFlow graph, so inputs are
validated here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS, Request, Response
from electra_tf.tasks.examples import EncodedExamples, prediction_batch_indices

_LOGITS = "logits"


class TokenRuntime:
    """Loaded LiteRT or ONNX model. Not thread-safe."""

    def __init__(
        self,
        run: Callable[[Request], Mapping[str, np.ndarray]],
        source: str,
        failures: tuple[type[Exception], ...],
    ):
        self._run, self._source, self._failures = run, source, failures

    def __call__(self, inputs: Request) -> Response:
        """Return the outputs for one request.

        Args:
            inputs: `token_ids`, `segment_ids` and `padding_mask`, int32 [B, L], with
                any number of rows.
        """
        specs = {name: f"{ids.dtype.name} {ids.shape}" for name, ids in inputs.items()}
        ids_BL = inputs.get(IDS[0])
        if (
            specs.keys() != set(IDS)
            or len(set(specs.values())) > 1
            or (ids_BL.dtype, ids_BL.ndim) != (np.int32, 2)
        ):
            raise InputError(
                f"Inputs of {self._source} must be {', '.join(IDS)}, each int32 [B, L]",
                ", ".join(f"{name} {spec}" for name, spec in specs.items()),
                "Pass arrays of one shape",
            )
        try:
            return dict(self._run(inputs))
        except self._failures as error:
            raise InputError(
                f"Ids for {self._source} must be in its tables, and rows no longer "
                "than its encoder's positions",
                f"Ids of shape {ids_BL.shape}: {error!s:.300}",
                "Check the ids, and cut the rows to the max_length of about.json",
            ) from error

    def outputs_of(self, examples: EncodedExamples, batch_size: int = 32) -> list[Any]:
        """Return the outputs of each example, in the form of `TextModel.outputs_of`.

        Returns:
            For each example, in order, the output `logits` if the model has it (classes
            and tags), else all outputs by name. Outputs of positions are padded to the
            length of their batch.
        """
        results: list[Any] = [None] * len(examples)
        for rows in prediction_batch_indices(examples.lengths, batch_size):
            inputs, _, _ = examples.batch(rows, len(rows))
            batch_outputs = self(inputs)
            for index, row in enumerate(rows):
                outputs = {name: of_B[index] for name, of_B in batch_outputs.items()}
                results[row] = outputs.get(_LOGITS, outputs)
        return results


def drop_string_outputs(function: Any) -> Any:
    """Return a function without its string outputs."""
    signature = function.input_signature
    if signature is None or {spec.name for spec in signature} != set(IDS):
        raise InputError(
            f"The input signature of the function must be {', '.join(IDS)}",
            "none" if signature is None else str([spec.name for spec in signature]),
            "Pass the result of signatures.token_signature",
        )

    @tf.function(input_signature=signature, autograph=False)
    def numbers(*ids: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = function(*ids)
        return {
            name: tensor
            for name, tensor in outputs.items()
            if tensor.dtype != tf.string
        }

    return numbers


def missing_extra(extra: str, error: ImportError) -> InputError:
    """Return the error of a format whose packages are not installed."""
    return InputError(
        f"The extra `{extra}` must be installed for --format={extra}",
        str(error),
        f"Install it: tools/install {extra}",
    )
