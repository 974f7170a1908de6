"""Served functions of fine-tuned models."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.export_options import LIMITS, TARGETS, RequestLimits
from electra_tf.serving.inference_encoder import IdTensors, InferenceEncoder, chunked
from electra_tf.serving.signatures import (
    ExportSpec,
    Outputs,
    Request,
    Response,
    ServedModel,
    Signature,
    arrays,
    constant,
    encode_texts,
    renamed,
)
from electra_tf.serving.spans_graph import NO_SPAN, GraphWindows, graph_answers
from electra_tf.serving.text_graph import GraphInputs, GraphWords, WordTags, split_words
from electra_tf.text.graph_tokenizer import substrings


class _Task(ServedModel):
    """Head of a fine-tuned model. Subclasses turn strings into rows of ids."""

    def __init__(self, model: Any, target: str, limits: RequestLimits):
        network = InferenceEncoder(model.encoder, target)
        super().__init__(network, model.shape, limits)
        self.model, self.data = model, model.settings.data
        self.inputs = model.served_inputs
        self.module.head = [weight.value for weight in model.head.weights]

    def head(self, hidden_BLD: tf.Tensor, inputs: IdTensors) -> Any:
        return self.model.head_outputs(hidden_BLD, inputs, LayerOps(training=False))

    def keras_head(self, ids: Request) -> Any:
        return self.model(dict(ids), training=False)

    def named(self, outputs: Any) -> Outputs:
        return self.model.named_outputs(outputs)

    def ids(self, rows: Sequence[Any]) -> Request:
        examples = self.examples(rows)
        return examples.batch(range(len(examples)), len(examples))[0]

    def examples(self, rows: Sequence[Any]) -> Any:
        """Return the `EncodedExamples` of texts, or of tuples of them."""
        return self.model.row_examples(rows)

    def texts(self) -> dict[str, Signature]:
        """Return the signatures of strings by name."""
        return {"serving_default": self.text()}

    def num_pieces(self, *texts: str) -> int:
        return sum(len(self.model.tokenizer.encode(text)) for text in texts)


class _Texts(_Task):
    """Outputs for each text or pair of texts, or for several of each item."""

    def __init__(self, model: Any, target: str, limits: RequestLimits):
        super().__init__(model, target, limits)
        self._pack = GraphInputs(model.tokenizer, self.data.max_length, limits)
        self.module.inputs = self._pack

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the named outputs, and `pieces_cut`."""
        rows, by_item = self._rows(texts)
        inputs, cut_R = self._pack(*rows)
        outputs = by_item(self.outputs(inputs))
        return {**self.model.text_outputs(outputs), "pieces_cut": by_item(cut_R)}

    def expected(self, rows: Sequence[Any]) -> Response:
        texts, by_item = self._rows([*map(tf.constant, self.request(rows).values())])
        examples = self.model.row_examples(rows)
        stack = lambda *arrays: np.stack(arrays)  # noqa: E731
        outputs = tf.nest.map_structure(stack, *self.model.outputs_of(examples))
        # A row has its texts' wordpieces, [CLS], and a [SEP] after each text.
        used_R = examples.lengths - 1 - len(texts)
        pairs = zip(*(text_R.numpy() for text_R in texts), strict=True)
        pieces = [self.num_pieces(*map(bytes.decode, pair)) for pair in pairs]
        named = self.model.text_outputs(by_item(outputs))
        return {**arrays(named), "pieces_cut": by_item(pieces - used_R).numpy()}

    def _rows(self, texts: Sequence[tf.Tensor]) -> tuple[Sequence[tf.Tensor], Callable]:
        """Return the texts of each row, and a function from rows to items.

        Strings [B, N] are B * N rows, for each of which the strings [B] are repeated.
        The function returns tensors [R, ...] as [B, ...], or as [B, N, ...].
        """
        widest = max(texts, key=lambda text: text.shape.rank)
        if widest.shape.rank == 1:
            as_they_are = functools.partial(tf.nest.map_structure, tf.convert_to_tensor)
            return self.model.row_texts(*texts), as_they_are
        items, count = tf.unstack(tf.shape(widest))
        some = tf.debugging.Assert(
            (count > 0) | (items == 0),
            ["An item must have one or more of each input. Received: none"],
        )
        with tf.control_dependencies([some] if some is not None else []):
            least = tf.maximum(count, 1)  # a request of no items has outputs, too

        def by_row(text: tf.Tensor) -> tf.Tensor:
            wide = text if text.shape.rank == 2 else tf.tile(text[:, None], [1, count])
            return tf.reshape(wide, [-1])

        def by_item(tensor_R: tf.Tensor) -> tf.Tensor:
            axes = tf.concat([[items, least], tf.shape(tensor_R)[1:]], 0)
            return tf.reshape(tensor_R, axes)

        texts_R = self.model.row_texts(*map(by_row, texts))
        return texts_R, functools.partial(tf.nest.map_structure, by_item)


class _Words(_Task):
    """Labels of the words of a text, and its entities."""

    def __init__(self, model: Any, target: str, limits: RequestLimits):
        super().__init__(model, target, limits)
        self.module.words = self._words = GraphWords(
            model.tokenizer, self.data.max_length, self.data.tagging_segment, limits
        )
        self._spans = model.graph_spans()
        self.compute = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return `words`, and `labels` and `probabilities` of each, [B, W]."""
        tags, words = self._tags(split_words(*texts))
        return {
            "words": words.to_tensor(),
            "labels": words.with_values(self._spans.labels(tags)).to_tensor(),
            "probabilities": words.with_values(tags.probability_W).to_tensor(),
        }

    def texts(self) -> dict[str, Signature]:
        entities = self.text(self._entities, self._expected_entities)
        return {**super().texts(), "entities": entities}

    def _entities(self, text_B: tf.Tensor) -> Outputs:
        offsets = self._words.split(text_B)
        words = substrings(offsets.codes, offsets.starts, offsets.ends)
        return self._spans.entities(self._tags(words)[0], offsets)

    def _expected_entities(self, rows: Sequence[str]) -> Response:
        found = self.model.entities(rows)
        padding = {"type": b"", "start": -1, "end": -1, "text": b"", "score": 0.0}
        columns = {
            f"{name}s": _padded([[getattr(e, name) for e in row] for row in found], end)
            for name, end in padding.items()
        }
        return {**columns, "count": np.array(list(map(len, found)), np.int32)}

    def _tags(self, words: tf.RaggedTensor) -> tuple[WordTags, tf.RaggedTensor]:
        """Return the tags of words, and the words after the check of their limit."""
        inputs, parts = self._words(words)
        return self._words.tags(self.compute(inputs), parts), parts.words

    def examples(self, rows: Sequence[str]) -> Any:
        return self.model.examples([text.split() for text in rows])

    def expected(self, rows: Sequence[str]) -> Response:
        words = [text.split() for text in rows]
        found = self.model.predict_details(words)
        scores = [one.probabilities.max(-1).tolist() for one in found]
        return {
            "words": _padded(words, b""),
            "labels": _padded([one.tags for one in found], b""),
            "probabilities": _padded(scores, 0.0),
        }


def _padded(rows: Sequence[Sequence[Any]], padding: Any) -> np.ndarray:
    """Return values of each row's words or entities, padded, [B, W] or [B, E]."""
    dtype = tf.constant(padding).dtype
    return tf.ragged.constant(rows, dtype, ragged_rank=1).to_tensor(padding).numpy()


class _Windows(_Task):
    """Answers to questions, extracted from contexts."""

    def __init__(self, model: Any, target: str, limits: RequestLimits):
        super().__init__(model, target, limits)
        self._windows = GraphWindows(model.tokenizer, self.data, limits)
        self.module.windows = self._windows
        self.compute = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return `answer`, `start`, `end`, `score`, `null_odds`, and the question's
        `pieces_cut`, each [B]."""
        inputs, windows = self._windows(*texts)
        decoding, threshold = self.model.settings.model, self.model.null_threshold
        answers = graph_answers(self.compute(inputs), windows, decoding, threshold)
        return {**answers, "pieces_cut": windows.num_truncated_B}

    def expected(self, rows: Sequence[Any]) -> Response:
        predictions = self.model.predict_nbest(rows)
        threshold = self.model.null_threshold
        best = [next((c for c in qa.nbest if c.text), None) for qa in predictions]
        scores = [c.start_logit + c.end_logit if c else NO_SPAN for c in best]
        lengths_B = np.array([self.num_pieces(question) for question, _ in rows])
        return {
            "answer": encode_texts([qa.answer_text(threshold) for qa in predictions]),
            "null_odds": np.array([qa.null_odds for qa in predictions], np.float32),
            "score": np.array(scores, np.float32),
            "pieces_cut": np.maximum(0, lengths_B - self.data.query_limit),
        }


_IDENTIFIER = re.compile("[A-Za-z][A-Za-z0-9_]*")
_FORMS = {"texts": _Texts, "words": _Words, "windows": _Windows}


def task_export(
    model: Any,
    target: str = TARGETS[0],
    limits: RequestLimits = LIMITS,
    columns: DataConfig | None = None,
) -> ExportSpec:
    """Return the functions of a fine-tuned model, in float32, the type of its weights.

    Few CPUs and neither LiteRT nor ONNX compute in bfloat16. `columns`: settings
    with those of the training data, by default the model's.
    """
    if not model.kind:
        raise InputError(f"a {type(model).__name__} has no kind, so it has no export")
    served = _FORMS[model.input_form](to_float32(model), target, limits)
    metadata = limits.metadata(served.data.max_length) | model.served_metadata()
    texts, constants = served.texts(), {}
    if by_input := model.served_columns(columns or served.data):
        metadata["columns"] = by_input
        texts |= _with_columns(texts["serving_default"], by_input)
    if model.output_names:
        constants["class_names"] = constant("class_names", model.output_names)
    ids = {"tokens": served.tokens()}
    rest = model.tokenizer, metadata, constants
    return ExportSpec(model.kind, served.module, texts, ids, *rest)


def _with_columns(
    default: Signature, columns: Mapping[str, Sequence[str]]
) -> dict[str, Signature]:
    """Return the signature `columns`, if each input is a column whose name is an
    identifier, as SavedModels require, and another one than the input's."""
    names = {key: own[0] for key, own in columns.items() if len(own) == 1}
    is_one_each = len({*names.values()}) == len(columns)
    if not is_one_each or not all(map(_IDENTIFIER.fullmatch, names.values())):
        return {}
    if all(key == name for key, name in names.items()):
        return {}
    return {"columns": renamed(default, names)}


def to_float32(model: Any) -> Any:
    """Return the model, or a copy with the same weights that computes in float32."""
    if model.settings.training.precision == "float32":
        return model
    config = model.get_config()
    config["settings"]["training"]["precision"] = "float32"
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    return copy
