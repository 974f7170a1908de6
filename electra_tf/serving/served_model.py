"""Functions of texts and of ids that a model serves: a head on an exported encoder."""

import abc
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.model import EncoderConfig
from electra_tf.serving.chunked import chunked_encoder
from electra_tf.serving.inference_encoder import InferenceEncoder
from electra_tf.serving.request_limits import RequestLimits
from electra_tf.serving.signatures import (
    IDS,
    Inputs,
    Outputs,
    Request,
    Response,
    Signature,
    encode_texts,
    text_signature,
    token_signature,
)
from electra_tf.tasks.examples import EncodedExamples

PROBE_TEXTS = (
    "A film to remember, and one I would see again tomorrow.",
    "The service was slow; the soup cold, the waiter rude!",
    "In 1869 the transcontinental railroad was completed at Promontory Summit, Utah.",
    "Café crème à Zürich: ΟΔΥΣΣΕΥΣ, Ёлка, ﬁnancial ½ №5",
    "这家酒店的服务非常好,房间也很干净。",
    "un-be-liev-able 🙂🙃 e\u0301 \u200d \u00ad [MASK] [SEP] ##ing",
    "tab\there, new\nline, nul\x00, no\u00a0break, wide\u3000space",
    "",
    " ".join(f"word{number} of a text that is far too long" for number in range(90)),
)
"""Texts of many kinds, for validation and for warm-up requests."""


class ServedModel(abc.ABC):
    """Functions of texts and of ids, and Keras's outputs to compare them with."""

    inputs: Mapping[str, int] = {"text": 1}
    """Names of the string inputs, each with its number of axes."""

    def __init__(
        self, network: InferenceEncoder, shape: EncoderConfig, limits: RequestLimits
    ):
        self._network, self._shape, self.limits = network, shape, limits
        self._encode = chunked_encoder(network)
        self.compute: Callable[[Inputs], Any] = self.outputs
        """`outputs`, or the same in chunks of rows for a large head."""
        self.module = tf.Module()
        """Module with the variables and tables of the functions."""
        self.module.network = network

    @abc.abstractmethod
    def head(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Any:
        """Return the head's outputs for the encoder's hidden states."""

    @abc.abstractmethod
    def keras_head(self, ids: Request) -> Any:
        """Return the same outputs for ids, computed by the Keras layers."""

    @abc.abstractmethod
    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the outputs for strings by name, each [B, ...]."""

    @abc.abstractmethod
    def examples(self, rows: Sequence[Any]) -> EncodedExamples:
        """Encode texts, or tuples of them, without a graph."""

    @abc.abstractmethod
    def expected(self, rows: Sequence[Any]) -> Response:
        """Return all or some outputs of `from_texts`, computed by Keras."""

    def named(self, outputs: Any) -> Outputs:
        """Return the outputs for ids by name, from those of the head."""
        return outputs

    def probes(self) -> Sequence[Any]:
        """Return texts, or tuples of them, to validate the functions with."""
        columns, others = [], (*PROBE_TEXTS[1:], PROBE_TEXTS[0])
        for number, axes in enumerate(self.inputs.values()):
            texts = (
                PROBE_TEXTS if axes == 1 else [*zip(PROBE_TEXTS, others, strict=True)]
            )
            columns.append(texts[::-1] if number % 2 else texts)
        return columns[0] if len(columns) == 1 else [*zip(*columns, strict=True)]

    def request(self, rows: Sequence[Any]) -> Request:
        """Return texts, or tuples of the inputs, as a request."""
        columns = [rows] if len(self.inputs) == 1 else zip(*rows, strict=True)
        return {
            name: encode_texts(column, axes)
            for (name, axes), column in zip(self.inputs.items(), columns, strict=True)
        }

    def outputs(self, inputs: Inputs) -> Any:
        """Return the head's outputs on the encoder, which is computed in chunks."""
        return self.head(self._encode(**inputs), inputs)

    def text(
        self, function: Callable | None = None, expected: Callable | None = None
    ) -> Signature:
        """Return a signature of strings, of `from_texts` and `expected` by default."""
        checked = text_signature(function or self.from_texts, self.inputs, self.limits)
        cases = functools.partial(self._text_cases, expected or self.expected)
        return Signature(checked, cases)

    def tokens(self) -> Signature:
        """Return the signature of ids."""
        function, unchunked = (
            token_signature(call, self._shape, self.limits)
            for call in (lambda ids: self.named(self.compute(ids)), self._unchunked)
        )
        return Signature(function, self._token_cases, unchunked)

    def _unchunked(self, inputs: Inputs) -> Outputs:
        outputs = self.named(self.head(self._network(**inputs), inputs)).items()
        return {name: array for name, array in outputs if array.dtype != tf.string}

    def _text_cases(self, expected: Callable) -> Iterator[tuple[Request, Response]]:
        probes = self.probes()
        for rows in (probes[:1], probes):
            yield self.request(rows), expected(rows)
        yield {name: encode_texts([], axes) for name, axes in self.inputs.items()}, {}

    def _token_cases(self) -> Iterator[tuple[Request, Response]]:
        examples = self.examples(self.probes())
        ids = examples.batch(range(len(examples)), len(examples))[0]
        for rows in (1, len(examples)):
            request = {name: array[:rows] for name, array in ids.items()}
            yield request, arrays(self.named(self.keras_head(request)))
        yield {name: np.zeros([0, 0], np.int32) for name in IDS}, {}


def arrays(outputs: Outputs) -> Response:
    """Return tensors as arrays."""
    return {name: tensor.numpy() for name, tensor in outputs.items()}
