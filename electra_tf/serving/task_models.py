"""Fine-tuned models as functions of a graph: classes, scores, tags, answers."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.chunked import chunked, chunked_encoder
from electra_tf.serving.export_spec import (
    IDS,
    PROBE_TEXTS,
    Answer,
    ExportSpec,
    Request,
    Signature,
    strings,
    text_signature,
    texts_of,
)
from electra_tf.serving.inference_encoder import InferenceEncoder
from electra_tf.serving.signatures import check_request_size, token_signature
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from electra_tf.tasks.classification.preprocessing_graph import GraphInputs
from electra_tf.tasks.squad.decoding import DecodingConfig
from electra_tf.tasks.squad.decoding_graph import NO_SPAN, GraphAnswers
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.squad.preprocessing import QAFeatureConfig
from electra_tf.tasks.squad.preprocessing_graph import GraphWindows
from electra_tf.tasks.tagging.model import TokenClassifier
from electra_tf.tasks.tagging.preprocessing_graph import GraphWords
from electra_tf.tasks.text_model import TextModel

_QUESTION = "Where was the railroad completed?"
Outputs = Callable[[dict[str, tf.Tensor]], Any]


class TaskExport(abc.ABC):
    """What the functions of all tasks share; a task adds what it says.

    Args:
        model: A fine-tuned model.
    """

    kind = ""
    inputs: tuple[str, ...] = ("text",)
    """The strings it takes."""

    def __init__(self, model: TextModel):
        self.model = model
        self.module = tf.Module()
        self.module.network = self._network = InferenceEncoder(model.encoder)
        self._in_turns = chunked_encoder(self._network)
        self.module.head = [weight.value for weight in model.head.weights]
        self.prepare()

    # What a task adds.

    @abc.abstractmethod
    def prepare(self) -> None:
        """Puts tables into the module."""

    @abc.abstractmethod
    def from_texts(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """What is answered to strings [B]."""

    @abc.abstractmethod
    def named(self, outputs: Any) -> dict[str, tf.Tensor]:
        """What is answered to ids, from the head's outputs."""

    @abc.abstractmethod
    def expected(self, rows: list[Any]) -> Answer:
        """What the Keras model says of texts."""

    def details(self) -> dict[str, Any]:
        """What a client may want to know."""
        return {}

    # What is the same for all.

    def outputs(self, inputs: dict[str, tf.Tensor]) -> Any:
        """The head's outputs."""
        return self._headed(self._in_turns(**inputs), inputs)

    def exportable(self) -> ExportSpec:
        """All of it."""
        text = Signature(
            text_signature(self.from_texts, self.inputs),
            self._texts(),
            self._expected_of_texts,
        )
        ids = Signature(
            token_signature(
                lambda inputs: self.named(self.outputs(inputs)), self.model.shape
            ),
            self._ids(),
            self._expected_of_ids,
            token_signature(self._whole, self.model.shape),
        )
        details = {"max_length": self.model.settings.data.max_length, **self.details()}
        return ExportSpec(
            self.kind,
            self.module,
            {"serving_default": text},
            {"tokens": ids},
            self.model.tokenizer,
            details,
        )

    def rows(self) -> list[Any]:
        """Texts to try it with, or pairs of them."""
        texts = texts_of(strings(PROBE_TEXTS))
        if len(self.inputs) == 1:
            return texts
        return list(zip(texts, reversed(texts), strict=True))

    def _whole(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self.named(self._headed(self._network(**inputs), inputs))

    def _headed(self, hidden_BLD: tf.Tensor, inputs: dict[str, tf.Tensor]) -> Any:
        return self.model.head_outputs(hidden_BLD, inputs, LayerOps(training=False))

    def _pieces(self, *texts: str) -> int:
        """How many pieces texts have."""
        return sum(len(self.model.tokenizer.encode(text)) for text in texts)

    def _texts(self) -> list[Request]:
        rows = self.rows()
        return [self._request(part) for part in (rows[:1], rows, [])]

    def _request(self, rows: Sequence[Any]) -> Request:
        if len(self.inputs) == 1:
            return {self.inputs[0]: strings(rows)}
        columns = zip(*rows, strict=True) if rows else ((), ())
        return {
            name: strings(column)
            for name, column in zip(self.inputs, columns, strict=True)
        }

    def _ids(self) -> list[Request]:
        examples = self.model.examples(self.rows())
        batches = [range(1), range(len(examples))]
        found = [examples.batch(rows, len(rows))[0] for rows in batches]
        return [*found, {name: of[:0] for name, of in found[0].items()}]

    def _expected_of_texts(self, request: Request) -> Answer:
        columns = [texts_of(request[name]) for name in self.inputs]
        rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return self.expected(rows) if rows else {}

    def _expected_of_ids(self, request: Request) -> Answer:
        if not len(request[IDS[0]]):
            return {}
        outputs = self.model(dict(request), training=False)
        return {name: of.numpy() for name, of in self.named(outputs).items()}


class ClassifierExport(TaskExport):
    """Probabilities, logits and labels of texts or pairs."""

    kind = "classifier"

    def prepare(self) -> None:
        """The tokenizer's table and the classes' names."""
        self.inputs = ("text", "text_b") if self.model.pairs else ("text",)
        self.module.inputs = self._inputs = GraphInputs(
            self.model.tokenizer, self.model.settings.data.max_length
        )

    def from_texts(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """`probabilities`, `logits` and `label`, and the `pieces_cut` off."""
        inputs, cut_B = self._inputs.with_cut(*texts)
        return {
            **self.named(self.outputs(check_request_size(inputs))),
            "pieces_cut": cut_B,
        }

    def named(self, outputs: Any) -> dict[str, tf.Tensor]:
        """The same from logits [B, C]."""
        best_B = tf.argmax(outputs, -1)
        return {
            "probabilities": tf.nn.softmax(outputs),
            "logits": outputs,
            "label": tf.gather(tf.constant(self.model.labels), best_B),
        }

    def expected(self, rows: list[Any]) -> Answer:
        """The same, by Keras."""
        examples = self.model.examples(rows)
        found = self.named(tf.stack(self.model.outputs_of(examples)))
        texts = [row if self.model.pairs else (row,) for row in rows]
        # Beside its texts' pieces an input has [CLS] and a [SEP] after each.
        read_B = examples.lengths - 1 - len(self.inputs)
        cut_B = [self._pieces(*of_row) for of_row in texts] - read_B
        return {name: of.numpy() for name, of in found.items()} | {"pieces_cut": cut_B}

    def details(self) -> dict[str, Any]:
        """The classes' names, and whether texts come in pairs."""
        return {"labels": list(self.model.labels), "pairs": bool(self.model.pairs)}


class RegressorExport(ClassifierExport):
    """Scores of texts or pairs, in the units they were trained with."""

    kind = "regressor"

    def named(self, outputs: Any) -> dict[str, tf.Tensor]:
        """`score` from the head's number [B, 1]."""
        low, high = self.model.low, self.model.high
        return {"score": low + outputs[:, 0] * (high - low)}

    def details(self) -> dict[str, Any]:
        """The lowest and the highest score of training."""
        bounds = {"low": self.model.low, "high": self.model.high}
        return {**bounds, "pairs": bool(self.model.pairs)}


class TaggerExport(TaskExport):
    """A tag for each word of a text."""

    kind = "tagger"

    def prepare(self) -> None:
        """The tokenizer's table."""
        data = self.model.settings.data
        self.module.words = self._words = GraphWords(
            self.model.tokenizer, data.max_length, data.tagging_segment
        )
        self._by_parts = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """`words`, and `labels` and `probabilities` of each, [B, W]."""
        inputs, parts = self._words(*texts)
        return self._words.tags(self._by_parts(inputs), parts, self.model.tags)

    def named(self, outputs: Any) -> dict[str, tf.Tensor]:
        """`logits` and `probabilities` [B, L, C] and `labels` [B, L] of pieces."""
        best_BL = tf.argmax(outputs, -1)
        return {
            "logits": outputs,
            "probabilities": tf.nn.softmax(outputs),
            "labels": tf.gather(tf.constant(self.model.tags), best_BL),
        }

    def rows(self) -> list[Any]:
        """Sentences of words."""
        return [text.split() for text in super().rows()]

    def expected(self, rows: list[Any]) -> Answer:
        """The same, by Keras; a text's words are those of `str.split`."""
        words = [row.split() if isinstance(row, str) else row for row in rows]
        examples = self.model.examples(words)
        outputs = self.model.outputs_of(examples)
        shares = [[] for _ in words]
        for (row, part), logits_LC in zip(examples.origins, outputs, strict=True):
            share_L = tf.reduce_max(tf.nn.softmax(logits_LC), -1).numpy()
            shares[row] += share_L[np.flatnonzero(part.tagged)].tolist()
        labels = self.model.learned_tags(words, examples, outputs)
        return {
            "words": _padded([*map(strings, words)]),
            "labels": _padded([*map(strings, labels)]),
            "probabilities": _padded([np.float32(of_row) for of_row in shares]),
        }

    def details(self) -> dict[str, Any]:
        """The tags' names, and the segment of all positions."""
        segment = self.model.settings.data.tagging_segment
        return {"labels": list(self.model.tags), "segment": segment}

    def _request(self, rows: Sequence[Any]) -> Request:
        return {"text": strings([" ".join(words) for words in rows])}


class AnswererExport(TaskExport):
    """Answers to questions from the words of a context."""

    kind = "answerer"
    inputs = ("question", "context")

    def prepare(self) -> None:
        """The tokenizer's table, and how contexts are cut."""
        data, own = self.model.settings.data, self.model.settings.model
        self._longest = min(data.max_query_length, data.max_length // 2)
        rule = QAFeatureConfig(
            data.max_length, self._longest, data.doc_stride, data.window_labels
        )
        self.module.windows = self._windows = GraphWindows(self.model.tokenizer, rule)
        self._answers = GraphAnswers(DecodingConfig(own.n_best, own.max_answer_length))
        self._by_parts = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """`answer`, `start`, `end`, `score`, `null_odds`, and the question's
        `pieces_cut` off, each [B]."""
        inputs, book = self._windows(*texts)
        threshold = self.model.null_threshold
        answers = self._answers(self._by_parts(inputs), book, threshold)
        return {**answers, "pieces_cut": book.cut_B}

    def named(self, outputs: Any) -> dict[str, tf.Tensor]:
        """The head's outputs, without the axes in their names."""
        return {name.rsplit("_", 1)[0]: of for name, of in outputs.items()}

    def rows(self) -> list[Any]:
        """Questions and contexts."""
        texts = texts_of(strings(PROBE_TEXTS))
        return [(_QUESTION, text or "An empty one.") for text in reversed(texts)]

    def expected(self, rows: list[Any]) -> Answer:
        """The same but for the places, by Keras."""
        answered = self.model.answered(rows)
        threshold = self.model.null_threshold
        best = [next((c for c in one.nbest if c.text), None) for one in answered]
        lengths_B = np.array([self._pieces(question) for question, _ in rows])
        return {
            "answer": strings([one.decided(threshold) for one in answered]),
            "null_odds": np.array([one.null_odds for one in answered], np.float32),
            "score": np.array(
                [c.start_logit + c.end_logit if c else NO_SPAN for c in best],
                np.float32,
            ),
            "pieces_cut": np.maximum(0, lengths_B - self._longest),
        }

    def details(self) -> dict[str, Any]:
        """How contexts are cut and answers chosen."""
        data, own = self.model.settings.data, self.model.settings.model
        return {
            "null_threshold": self.model.null_threshold,
            "max_query_length": self._longest,
            "doc_stride": data.doc_stride,
            "n_best": own.n_best,
            "max_answer_length": own.max_answer_length,
        }


_EXPORTS = {
    TextClassifier: ClassifierExport,
    TextRegressor: RegressorExport,
    TokenClassifier: TaggerExport,
    QuestionAnswerer: AnswererExport,
}


def task_export(model: TextModel) -> ExportSpec:
    """A fine-tuned model's functions.

    Args:
        model: What `tasks.predicting.load` returned. One trained in mixed precision is
            served in float32, its weights' own: servers' processors rarely have the
            units for the other, and LiteRT and ONNX none.

    Returns:
        Functions of strings and of ids.

    Raises:
        InputError: Another Keras model.
    """
    make = _EXPORTS.get(type(model))
    if make is None:
        raise InputError(
            "A model to export is a " + ", a ".join(kind.__name__ for kind in _EXPORTS),
            type(model).__name__,
            "Name the --output of finetune, or a checkpoint of pretrain",
        )
    return make(in_float32(model)).exportable()


def in_float32(model: TextModel) -> TextModel:
    """The model that computes in float32 with the same weights.

    Args:
        model: Of any precision.

    Returns:
        Itself, where it does.
    """
    if model.settings.training.precision == "float32":
        return model
    config = model.get_config()
    config["settings"]["training"]["precision"] = "float32"
    twin = type(model).from_config(config)
    twin.set_weights(model.get_weights())
    return twin


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """What is said of each row's words, filled up with empty ones or zeros, [B, W]."""
    filler = b"" if rows[0].dtype == object else 0
    found = np.full((len(rows), max(map(len, rows))), filler, rows[0].dtype)
    for of_row, row in zip(found, rows, strict=True):
        of_row[: len(row)] = row
    return found
