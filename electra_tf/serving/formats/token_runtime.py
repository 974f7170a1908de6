"""What LiteRT and ONNX have in common: ids in, numbers out, nothing else.

Neither has strings that a model could hold on to, and neither stops at the checks of a
TensorFlow graph: what a client should know of ids is told here, before they are asked.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS, Answer, Request
from electra_tf.tasks.batching import EncodedExamples, prediction_batch_indices

_LOGITS = "logits"


class TokenRuntime:
    """A model in another format than TensorFlow's, ready to be asked.

    One thread at a time may ask it.

    Args:
        ask: From ids by name to numbers by name.
        source: Its file, for messages.
        failures: What `ask` raises where it cannot answer.
    """

    def __init__(
        self,
        ask: Callable[[Request], Mapping[str, np.ndarray]],
        source: str,
        failures: tuple[type[Exception], ...],
    ):
        self._ask, self._source, self._failures = ask, source, failures

    def __call__(self, inputs: Request) -> Answer:
        """Asks it once.

        Args:
            inputs: `token_ids`, `segment_ids` and `padding_mask`, int32 [B, L]; there
                may be no rows.

        Returns:
            The function's outputs by name, without its strings.

        Raises:
            InputError: Other inputs, ids beyond the tables, or more positions than
                the encoder knows.
        """
        arrived = {name: (of.dtype.name, of.shape) for name, of in inputs.items()}
        kinds = set(arrived.values())
        alike = len(kinds) == 1 and next(iter(kinds))[0] == "int32"
        if arrived.keys() != set(IDS) or not alike or inputs[IDS[0]].ndim != 2:
            raise InputError(
                f"{self._source} takes {', '.join(IDS)}, each int32 [B, L]",
                ", ".join(f"{name} {of} {at}" for name, (of, at) in arrived.items()),
                "Give arrays of one shape",
            )
        try:
            return dict(self._ask(inputs))
        except self._failures as error:
            raise InputError(
                f"{self._source} answers ids of its tables, in rows of no more "
                "positions than its encoder knows",
                f"{arrived[IDS[0]][1]} of them: {error!s:.300}",
                "Check the ids, and cut the rows to the max_length of about.json",
            ) from error

    def outputs_of(self, examples: EncodedExamples, batch_size: int = 32) -> list[Any]:
        """What it says of each example, as `TextModel.outputs_of` tells it.

        Args:
            examples: Any number.
            batch_size: Examples of a batch.

        Returns:
            For each example, in order, its logits where the model has an output of
            that name (classes and tags), else all outputs by name. What is told of
            positions is as long as its batch.
        """
        found: list[Any] = [None] * len(examples)
        for rows in prediction_batch_indices(examples.lengths, batch_size):
            inputs, _, _ = examples.batch(rows, len(rows))
            said = self(inputs)
            for place, row in enumerate(rows):
                of = {name: values[place] for name, values in said.items()}
                found[row] = of.get(_LOGITS, of)
        return found


def drop_string_outputs(function: Any) -> Any:
    """The same function without its outputs of strings.

    Args:
        function: A `tf.function` whose input signature names its inputs, and which
            returns tensors by name.

    Returns:
        Another one of that signature.

    Raises:
        InputError: It has no such signature.
    """
    signature = function.input_signature
    if signature is None or {spec.name for spec in signature} != set(IDS):
        raise InputError(
            f"A function of ids is converted: {', '.join(IDS)}, by an input signature",
            "none" if signature is None else str([spec.name for spec in signature]),
            "Pass a signature that checked_ids.of_ids made",
        )

    @tf.function(input_signature=signature, autograph=False)
    def numbers(*ids: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = function(*ids)
        return {name: of for name, of in outputs.items() if of.dtype != tf.string}

    return numbers


def missing_extra(extra: str, error: ImportError) -> InputError:
    """The error of a format whose packages are not installed.

    Args:
        extra: Of this package.
        error: What Python says.

    Returns:
        What to raise.
    """
    return InputError(
        f"--format={extra} needs the packages of the extra `{extra}`",
        str(error),
        f"Install them: tools/install {extra}",
    )
