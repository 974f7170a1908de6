"""Build the graph functions of a fine-tuned model, of texts and of ids."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.chunked import chunked, chunked_encoder
from electra_tf.serving.export_spec import (
    IDS,
    PROBE_TEXTS,
    ExportSpec,
    Request,
    Response,
    Signature,
    decode_texts,
    encode_texts,
)
from electra_tf.serving.inference_encoder import TARGETS, InferenceEncoder
from electra_tf.serving.request_limits import LIMITS, RequestLimits
from electra_tf.serving.signatures import (
    check_request_size,
    text_signature,
    token_signature,
)
from electra_tf.serving.spans_graph import NO_SPAN, GraphAnswers
from electra_tf.serving.text_graph import GraphInputs
from electra_tf.serving.windows_graph import GraphWindows
from electra_tf.serving.words_graph import GraphWords
from electra_tf.tasks.text_model import TextModel
from electra_tf.tasks.windows import query_limit

_QUESTION = "Where was the railroad completed?"


class TaskExport(abc.ABC):
    """Graph functions of a fine-tuned model. Subclasses add a task's outputs.

    The defaults are for tasks with one row of ids per text or pair of texts.
    """

    kind = ""
    inputs: tuple[str, ...] = ("text",)
    """Names of the string inputs."""

    def __init__(
        self,
        model: TextModel,
        target: str = TARGETS[0],
        limits: RequestLimits = LIMITS,
    ):
        self.model, self.limits = model, limits
        self.module = tf.Module()
        self._encoder = InferenceEncoder(model.encoder, target)
        self.module.network = self._encoder
        self._encode = chunked_encoder(self._encoder)
        self.module.head = [weight.value for weight in model.head.weights]
        self.prepare()

    @abc.abstractmethod
    def name_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return outputs of the signatures by name, from the head's outputs."""

    # The default for one row of ids per text, which other tasks override.

    def prepare(self) -> None:
        """Add the tokenizer to the module."""
        self.inputs = ("text", "text_b") if self.model.pairs else ("text",)
        self.module.inputs = self._inputs = GraphInputs(
            self.model.tokenizer, self.model.settings.data.max_length, self.limits
        )

    def from_texts(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `pieces_cut` and the outputs of `name_outputs`, each [B, ...]."""
        inputs, cut_B = self._inputs.with_cut(*texts)
        outputs = self.name_outputs(
            self.outputs(check_request_size(inputs, self.limits))
        )
        return {**outputs, "pieces_cut": cut_B}

    def expected(self, rows: list[Any]) -> Response:
        """Return Keras's outputs for texts, by the names of `from_texts`."""
        examples = self.model.examples(rows)
        outputs = self.name_outputs(tf.stack(self.model.outputs_of(examples)))
        texts = [row if self.model.pairs else (row,) for row in rows]
        # A row has its texts' wordpieces, [CLS], and a [SEP] after each text.
        used_B = examples.lengths - 1 - len(self.inputs)
        cut_B = [self._num_pieces(*row) for row in texts] - used_B
        arrays = {name: tensor.numpy() for name, tensor in outputs.items()}
        return {**arrays, "pieces_cut": cut_B}

    def metadata(self) -> dict[str, Any]:
        """Return facts for clients: labels, limits."""
        return {}

    # Common to all tasks.

    def outputs(self, inputs: dict[str, tf.Tensor]) -> Any:
        """Return the head's outputs, computed in chunks of rows."""
        return self._head_outputs(self._encode(**inputs), inputs)

    def chunked_outputs(self, inputs: dict[str, tf.Tensor]) -> Any:
        """Return the head's outputs. Tasks with a large head compute it in chunks."""
        return self.outputs(inputs)

    def export_spec(self) -> ExportSpec:
        """Return all functions with their requests and expected outputs."""
        text = Signature(
            text_signature(self.from_texts, self.inputs, self.limits),
            self._text_requests(),
            self._expected_from_texts,
        )
        ids = Signature(
            token_signature(
                lambda inputs: self.name_outputs(self.chunked_outputs(inputs)),
                self.model.shape,
                self.limits,
            ),
            self._token_requests(),
            self._expected_from_ids,
            token_signature(self._call_unchunked, self.model.shape, self.limits),
        )
        max_length = self.model.settings.data.max_length
        return ExportSpec(
            self.kind,
            self.module,
            {"serving_default": text},
            {"tokens": ids},
            self.model.tokenizer,
            {
                "max_length": max_length,
                "limits": dataclasses.asdict(self.limits),
                **self.metadata(),
            },
        )

    def probe_rows(self) -> list[Any]:
        """Return probe texts, or pairs of them."""
        if len(self.inputs) == 1:
            return list(PROBE_TEXTS)
        return list(zip(PROBE_TEXTS, reversed(PROBE_TEXTS), strict=True))

    def _call_unchunked(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self.name_outputs(self._head_outputs(self._encoder(**inputs), inputs))

    def _head_outputs(self, hidden_BLD: tf.Tensor, inputs: dict[str, tf.Tensor]) -> Any:
        return self.model.head_outputs(hidden_BLD, inputs, LayerOps(training=False))

    def _num_pieces(self, *texts: str) -> int:
        """Return the number of wordpieces of texts."""
        return sum(len(self.model.tokenizer.encode(text)) for text in texts)

    def _text_requests(self) -> list[Request]:
        rows = self.probe_rows()
        return [self._text_request(subset) for subset in (rows[:1], rows, [])]

    def _text_request(self, rows: Sequence[Any]) -> Request:
        if len(self.inputs) == 1:
            return {self.inputs[0]: encode_texts(rows)}
        columns = zip(*rows, strict=True) if rows else ((), ())
        return {
            name: encode_texts(column)
            for name, column in zip(self.inputs, columns, strict=True)
        }

    def _token_requests(self) -> list[Request]:
        examples = self.model.examples(self.probe_rows())
        batches = [range(1), range(len(examples))]
        requests = [examples.batch(rows, len(rows))[0] for rows in batches]
        return [*requests, {name: ids[:0] for name, ids in requests[0].items()}]

    def _expected_from_texts(self, request: Request) -> Response:
        columns = [decode_texts(request[name]) for name in self.inputs]
        rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return self.expected(rows) if rows else {}

    def _expected_from_ids(self, request: Request) -> Response:
        if not len(request[IDS[0]]):
            return {}
        outputs = self.name_outputs(self.model(dict(request), training=False))
        return {name: tensor.numpy() for name, tensor in outputs.items()}


class ClassifierExport(TaskExport):
    """Probabilities, logits and labels of texts or pairs."""

    kind = "classifier"

    def name_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return `probabilities`, `logits` and `label` from logits [B, C]."""
        best_B = tf.argmax(outputs, -1)
        return {
            "probabilities": tf.nn.softmax(outputs),
            "logits": outputs,
            "label": tf.gather(tf.constant(self.model.labels), best_B),
        }

    def metadata(self) -> dict[str, Any]:
        """Return the labels and whether inputs are pairs."""
        return {"labels": list(self.model.labels), "pairs": bool(self.model.pairs)}


class RegressorExport(TaskExport):
    """Scores of texts or pairs, in the units of the training data."""

    kind = "regressor"

    def name_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return `score` from the head's output [B, 1]."""
        low, high = self.model.low, self.model.high
        return {"score": low + outputs[:, 0] * (high - low)}

    def metadata(self) -> dict[str, Any]:
        """Return the range of scores in training and whether inputs are pairs."""
        bounds = {"low": self.model.low, "high": self.model.high}
        return {**bounds, "pairs": bool(self.model.pairs)}


class TaggerExport(TaskExport):
    """Labels of the words of a text."""

    kind = "tagger"

    def prepare(self) -> None:
        """Add the word tokenizer to the module."""
        data = self.model.settings.data
        self.module.words = self._words = GraphWords(
            self.model.tokenizer, data.max_length, data.tagging_segment, self.limits
        )
        self.chunked_outputs = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `words`, and `labels` and `probabilities` of each, [B, W]."""
        inputs, parts = self._words(*texts)
        return self._words.tags(self.chunked_outputs(inputs), parts, self.model.tags)

    def name_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return `logits` and `probabilities` [B, L, C] and `labels` [B, L]."""
        best_BL = tf.argmax(outputs, -1)
        return {
            "logits": outputs,
            "probabilities": tf.nn.softmax(outputs),
            "labels": tf.gather(tf.constant(self.model.tags), best_BL),
        }

    def probe_rows(self) -> list[Any]:
        """Return probe sentences as lists of words."""
        return [text.split() for text in super().probe_rows()]

    def expected(self, rows: list[Any]) -> Response:
        """Return Keras's outputs. Words are split with `str.split`."""
        words = [row.split() if isinstance(row, str) else row for row in rows]
        examples = self.model.examples(words)
        outputs = self.model.outputs_of(examples)
        probabilities = [[] for _ in words]
        for (row, part), logits_LC in zip(examples.origins, outputs, strict=True):
            best_L = tf.reduce_max(tf.nn.softmax(logits_LC), -1).numpy()
            probabilities[row] += best_L[part.starts].tolist()
        labels = self.model.learned_tags(words, examples, outputs)
        return {
            "words": _pad_rows([*map(encode_texts, words)]),
            "labels": _pad_rows([*map(encode_texts, labels)]),
            "probabilities": _pad_rows([np.float32(row) for row in probabilities]),
        }

    def metadata(self) -> dict[str, Any]:
        """Return the labels and the segment id of all positions."""
        segment = self.model.settings.data.tagging_segment
        return {"labels": list(self.model.tags), "segment": segment}

    def _text_request(self, rows: Sequence[Any]) -> Request:
        return {"text": encode_texts([" ".join(words) for words in rows])}


class AnswererExport(TaskExport):
    """Answers to questions, extracted from contexts."""

    kind = "answerer"
    inputs = ("question", "context")

    def prepare(self) -> None:
        """Add the tokenizer, which splits contexts into windows, to the module."""
        settings = self.model.settings
        self._max_query_length = query_limit(settings.data)
        self.module.windows = self._windows = GraphWindows(
            self.model.tokenizer, settings.data, self.limits
        )
        self._answers = GraphAnswers(settings.model)
        self.chunked_outputs = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `answer`, `start`, `end`, `score`, `null_odds`, and the question's
        `pieces_cut`, each [B]."""
        inputs, windows = self._windows(*texts)
        threshold = self.model.null_threshold
        answers = self._answers(self.chunked_outputs(inputs), windows, threshold)
        return {**answers, "pieces_cut": windows.num_truncated_B}

    def name_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return the head's outputs, without the axes in their names."""
        return {name.rsplit("_", 1)[0]: tensor for name, tensor in outputs.items()}

    def probe_rows(self) -> list[Any]:
        """Return probe questions with contexts."""
        return [(_QUESTION, text or "No text.") for text in reversed(PROBE_TEXTS)]

    def expected(self, rows: list[Any]) -> Response:
        """Return Keras's outputs, without `start` and `end`."""
        predictions = self.model.predict_nbest(rows)
        threshold = self.model.null_threshold
        best = [next((c for c in qa.nbest if c.text), None) for qa in predictions]
        lengths_B = np.array([self._num_pieces(question) for question, _ in rows])
        return {
            "answer": encode_texts([qa.answer_text(threshold) for qa in predictions]),
            "null_odds": np.array([qa.null_odds for qa in predictions], np.float32),
            "score": np.array(
                [c.start_logit + c.end_logit if c else NO_SPAN for c in best],
                np.float32,
            ),
            "pieces_cut": np.maximum(0, lengths_B - self._max_query_length),
        }

    def metadata(self) -> dict[str, Any]:
        """Return the settings of windows and decoding."""
        data, decoding = self.model.settings.data, self.model.settings.model
        return {
            "null_threshold": self.model.null_threshold,
            "max_query_length": self._max_query_length,
            "doc_stride": data.doc_stride,
            "n_best": decoding.n_best,
            "max_answer_length": decoding.max_answer_length,
        }


_EXPORTS = {
    "classifier": ClassifierExport,
    "regressor": RegressorExport,
    "token_classifier": TaggerExport,
    "question_answerer": AnswererExport,
}


def task_export(
    model: TextModel, target: str = TARGETS[0], limits: RequestLimits = LIMITS
) -> ExportSpec:
    """Return the functions of a fine-tuned model.

    Args:
        model: The result of `tasks.load.load`. A model of mixed precision is
            exported in float32, the type of its weights, because few CPUs and neither
            LiteRT nor ONNX compute in bfloat16.
        target: As for `InferenceEncoder`.
        limits: Of a request.
    """
    export_class = _EXPORTS.get(model.kind)
    if export_class is None:
        raise InputError(
            f"A model to export must be one of: {', '.join(_EXPORTS)}",
            f"a {type(model).__name__} of the kind {model.kind!r}",
            "Pass the --output of finetune, or a checkpoint of pretrain",
        )
    return export_class(to_float32(model), target, limits).export_spec()


def to_float32(model: TextModel) -> TextModel:
    """Return a model that computes in float32 with the same weights.

    Returns:
        The model itself if it computes in float32, else a copy.
    """
    if model.settings.training.precision == "float32":
        return model
    config = model.get_config()
    config["settings"]["training"]["precision"] = "float32"
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    return copy


def _pad_rows(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return values of each row's words, padded with b"" or zeros, [B, W]."""
    padding = b"" if rows[0].dtype == object else 0
    padded = np.full((len(rows), max(map(len, rows))), padding, rows[0].dtype)
    for padded_row, row in zip(padded, rows, strict=True):
        padded_row[: len(row)] = row
    return padded
