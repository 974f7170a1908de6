"""Functions of texts and of ids that a model serves: a head on an exported encoder.

They have limits, and requests with the outputs that they must have.
"""

import abc
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.model import EncoderConfig
from electra_tf.serving.export_options import IDS, LIMITS, SIGNATURES, RequestLimits
from electra_tf.serving.inference_encoder import (
    IdTensors,
    InferenceEncoder,
    chunked_encoder,
)
from electra_tf.serving.text_graph import GraphEncoder, assert_max_positions
from electra_tf.text.tokenizer import WordPieceTokenizer

Outputs = dict[str, tf.Tensor]
Request = Mapping[str, np.ndarray]
Response = dict[str, np.ndarray]
Runtime = Callable[[Request], Response]


def encode_texts(texts: Sequence[Any], axes: int = 1) -> np.ndarray:
    """Return texts, or lists of them, as an array of UTF-8 bytes, as in requests."""
    if axes == 2:
        rows = [encode_texts(row) for row in texts]
        return np.stack(rows) if rows else np.empty([0, 0], object)
    array_B = np.empty(len(texts), object)
    array_B[:] = [t.encode() if isinstance(t, str) else t for t in texts]
    return array_B


def text_signature(
    function: Callable[..., Outputs],
    inputs: Mapping[str, int],
    limits: RequestLimits = LIMITS,
) -> Any:
    """Return a function of strings that checks the limits before it runs.

    `inputs`: names and numbers of axes; strings [B] are repeated for those of [B, N].
    """
    names, shapes = [*inputs], [[None] * axes for axes in inputs.values()]
    spec = [tf.TensorSpec(shapes[n], tf.string, names[n]) for n in range(len(names))]

    def checked(*texts: tf.Tensor) -> Outputs:
        # A server does not compare requests with the shapes of the signature.
        texts = list(map(tf.ensure_shape, texts, shapes))
        checks = _assert_small(texts, limits)
        if len(texts) > 1:
            rows = tf.stack([tf.shape(text)[0] for text in texts])
            message = f"{' and '.join(names)} must have the same number of rows."
            same = tf.reduce_all(rows == rows[0])
            checks.append(tf.debugging.Assert(same, [f"{message} Received:", rows]))
        with tf.control_dependencies(checks):
            return function(*map(tf.identity, texts))

    return tf.function(checked, input_signature=spec)


def token_signature(
    function: Callable[[dict], Outputs],
    shape: EncoderConfig,
    limits: RequestLimits = LIMITS,
) -> Any:
    """Return a function of ids that checks shapes, limits, and ids before it runs.

    A lookup beyond the end of a table would return zeros on a GPU.
    """
    spec = [tf.TensorSpec([None, None], tf.int32, name=name) for name in IDS]
    entries = shape.vocabulary_size - shape.spare_rows
    ends = dict(zip(IDS, (entries, shape.segments, 2), strict=True))

    def checked(*ids: tf.Tensor) -> Outputs:
        ids = [tf.ensure_shape(ids_BL, [None, None]) for ids_BL in ids]
        inputs = dict(zip(IDS, ids, strict=True))
        # Sizes first: a check of values has a tensor as large as its input.
        with tf.control_dependencies(
            _assert_sizes(inputs, shape.max_positions, limits)
        ):
            inputs = {name: tf.identity(ids_BL) for name, ids_BL in inputs.items()}
        checks = [
            tf.debugging.Assert(
                tf.reduce_all((ids_BL >= 0) & (ids_BL < ends[name])),
                [f"{name} must be from 0 to {ends[name] - 1}. Received, minimum and "
                 "maximum:", tf.reduce_min(ids_BL), tf.reduce_max(ids_BL)],
            )
            for name, ids_BL in inputs.items()
        ]  # fmt: skip
        with tf.control_dependencies(checks):
            # The encoder reads the first position, which an empty request lacks.
            missing = tf.cast(tf.shape(inputs[IDS[0]])[1] == 0, tf.int32)
            added = [[0, 0], [0, missing]]
            inputs = {name: tf.pad(ids_BL, added) for name, ids_BL in inputs.items()}
        return function(inputs)

    return tf.function(checked, input_signature=spec)


def _assert_sizes(
    inputs: IdTensors, max_positions: int, limits: RequestLimits
) -> list[tf.Operation]:
    """Assert that ids have one shape, whose sizes are within the limits."""
    shapes = tf.stack([tf.shape(inputs[name]) for name in IDS])
    rows, length = tf.unstack(shapes[0])
    same = tf.debugging.Assert(
        tf.reduce_all(shapes == shapes[0]),
        [f"{', '.join(IDS)} must have the same shape. Received:", shapes],
        summarize=6,
    )
    positions = tf.debugging.Assert(
        (length <= max_positions) & ((length > 0) | (rows == 0)),
        [f"A row must have 1 to {max_positions} positions. Received:", length],
    )
    return [assert_max_positions(rows, length, limits), same, positions]


def _assert_small(
    texts: Sequence[tf.Tensor], limits: RequestLimits
) -> list[tf.Operation]:
    """Assert that a request of strings has few rows and few bytes."""
    widest = max(texts, key=lambda text: text.shape.rank)
    rows, sizes = tf.size(widest), []
    for text in texts:
        bytes_of_one = tf.reduce_sum(tf.cast(tf.strings.length(text), tf.int64))
        if text.shape.rank < widest.shape.rank:
            bytes_of_one *= tf.cast(tf.shape(widest)[1], tf.int64)
        sizes.append(bytes_of_one)
    size = tf.add_n(sizes)
    # An int64 in the message would add a branch to the graph, an int32 does not.
    reported = tf.cast(tf.minimum(size, tf.int32.max), tf.int32)
    return [
        tf.debugging.Assert(
            rows <= limits.rows,
            [f"A request must have at most {limits.rows} rows. Received:", rows,
             "Send it in parts."],
        ),
        tf.debugging.Assert(
            size <= limits.bytes,
            [f"The strings of a request must have at most {limits.bytes} bytes "
             "together. Received:", reported, "Send it in parts."],
        ),
    ]  # fmt: skip


EXAMPLES = (
    "In 1869 the railroad was completed at Promontory Summit, [MASK].",
    "Café crème à Zürich: 这家酒店 ΟΔΥΣΣΕΥΣ ½ 🙂",
)
"""Texts to compare the functions of an export with Keras."""


class ServedModel(abc.ABC):
    """Functions of texts and of ids that a model serves, with facts for clients."""

    kind: str  # kind of model, such as `classifier` or `encoder`
    inputs: Mapping[str, int] = {"text": 1}  # strings by name, with their axes

    def __init__(
        self,
        network: InferenceEncoder,
        tokenizer: WordPieceTokenizer,
        shape: EncoderConfig,
        max_length: int,
        limits: RequestLimits,
    ):
        self.tokenizer, self._network, self._shape = tokenizer, network, shape
        self.limits, self.max_length = limits, max_length
        self._encode = chunked_encoder(network)
        self.compute: Callable[[IdTensors], Any] = self.outputs
        """`outputs`, or the same in chunks of rows for a large head."""
        limits_by_name = dataclasses.asdict(limits)
        self.metadata = {"max_length": max_length, "limits": limits_by_name}
        self.module = tf.Module()
        """Module with the variables and tables of the functions."""
        self.module.network = network
        self.module.encoder = self.encoder = GraphEncoder(tokenizer, limits)
        self.text = {"serving_default": self.of_texts(self.from_texts)}
        """Functions of strings by name of the signature."""
        self.tokens = self._of_ids(lambda ids: self.named(self.compute(ids)))
        """Function of ids."""
        self.unchunked = self._of_ids(self._all_rows)
        """Function of ids without strings or loops, for other formats."""

    @abc.abstractmethod
    def head(self, hidden_BLD: tf.Tensor, inputs: IdTensors) -> Any:
        """Return the head's outputs for the encoder's hidden states."""

    @abc.abstractmethod
    def keras(self, ids: Request) -> Any:
        """Return the same outputs for ids, computed by the Keras layers."""

    @abc.abstractmethod
    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the outputs for strings by name, each [B, ...]."""

    @abc.abstractmethod
    def ids(self, rows: Sequence[Any]) -> Request:
        """Encode texts, or tuples of them, without a graph, as one padded batch."""

    def expected(self, rows: Sequence[Any]) -> Response:
        """Return all or some outputs of `from_texts`, computed by Keras."""
        return arrays(self.named(self.keras(self.ids(rows))))

    def named(self, outputs: Any) -> Outputs:
        """Return the outputs for ids by name, from those of the head."""
        return outputs

    def outputs(self, inputs: IdTensors) -> Any:
        """Return the head's outputs on the encoder, which is computed in chunks."""
        return self.head(self._encode(**inputs), inputs)

    def of_texts(self, function: Callable[..., Outputs]) -> Any:
        """Return a function of the inputs that checks them first."""
        return text_signature(function, self.inputs, self.limits)

    def _of_ids(self, function: Callable[[IdTensors], Outputs]) -> Any:
        return token_signature(function, self._shape, self.limits)

    def _all_rows(self, ids: IdTensors) -> Outputs:
        outputs = self.named(self.head(self._network(**ids), ids)).items()
        return {name: array for name, array in outputs if array.dtype != tf.string}

    def signatures(self, kinds: Sequence[str] = SIGNATURES) -> dict[str, Any]:
        """Return the functions of a SavedModel by name; one is the default."""
        signatures = {**self.text} if "text" in kinds else {}
        if "tokens" in kinds:
            signatures["tokens"] = self.tokens
        signatures.setdefault("serving_default", self.tokens)
        return signatures

    def examples_of_inputs(self) -> list[Any]:
        """Return two rows of texts, or of tuples of them."""
        rows = [
            tuple(
                texts[n % 2] if axes == 1 else texts
                for n, axes in enumerate(self.inputs.values())
            )
            for texts in (EXAMPLES, EXAMPLES[::-1])
        ]
        return [row[0] for row in rows] if len(self.inputs) == 1 else rows

    def request(self, rows: Sequence[Any]) -> Request:
        """Return texts, or tuples of the inputs, as a request."""
        columns = [rows] if len(self.inputs) == 1 else zip(*rows, strict=True)
        return {
            name: encode_texts(column, axes)
            for (name, axes), column in zip(self.inputs.items(), columns, strict=True)
        }

    def case(self, function: Any, rows: Sequence[Any] = ()) -> tuple[Request, Response]:
        """Return a request of rows to a function, and outputs that it must have.

        A function of other outputs than `from_texts` and of ids has no expected ones.
        """
        names = [spec.name for spec in function.input_signature]
        rows = rows or self.examples_of_inputs()[: self.limits.rows]
        if not names:
            return {}, {}
        if names == [*IDS]:
            ids = self.ids(rows)
            return ids, arrays(self.named(self.keras(ids)))
        request = zip(names, self.request(rows).values(), strict=True)
        return dict(request), self.expected(rows)


def arrays(outputs: Outputs) -> Response:
    """Return tensors as arrays."""
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def error_message(error: tf.errors.OpError) -> str:
    """Return the message of an error without lines of the code and paths."""
    text = error.message.split("[[{{node")[0].strip().split("\n\n")[-1]
    _, failed, parts = text.partition("assertion failed: ")
    # Values of tensors keep their brackets.
    return re.sub(r"\[([A-Z][^]]*)\]", r"\1", parts) if failed else text
