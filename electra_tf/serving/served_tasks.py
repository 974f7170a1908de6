"""Served functions of fine-tuned models."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.export_options import (
    LIMITS,
    SIGNATURES,
    TARGETS,
    RequestLimits,
)
from electra_tf.serving.inference_encoder import IdTensors, InferenceEncoder, chunked
from electra_tf.serving.signatures import (
    Outputs,
    Request,
    Response,
    ServedModel,
    arrays,
    encode_texts,
)
from electra_tf.serving.spans_graph import encode_windows, graph_answers
from electra_tf.serving.text_graph import WordTags, split_words, word_tags
from electra_tf.text.graph_tokenizer import substrings

_IDENTIFIER = re.compile("[A-Za-z][A-Za-z0-9_]*")


class _Task(ServedModel):
    """Head of a fine-tuned model. Subclasses turn strings into rows of ids."""

    def __init__(
        self, model: Any, target: str, limits: RequestLimits, columns: DataConfig | None
    ):
        self.model, self.data = model, model.settings.data
        self.kind, self.inputs = model.kind, model.served_inputs
        network = InferenceEncoder(model.encoder, target)
        size = model.shape, self.data.max_length, limits
        super().__init__(network, model.tokenizer, *size)
        self.module.head = [weight.value for weight in model.head.weights]
        self.metadata |= model.served_metadata()
        self._columns = model.served_columns(columns or self.data)
        if self._columns:
            self.metadata["columns"] = self._columns

    def head(self, hidden_BLD: tf.Tensor, inputs: IdTensors) -> Any:
        return self.model.head_outputs(hidden_BLD, inputs, LayerOps(training=False))

    def keras(self, ids: Request) -> Any:
        return self.model(dict(ids), training=False)

    def named(self, outputs: Any) -> Outputs:
        return self.model.named_outputs(outputs)

    def ids(self, rows: Sequence[Any]) -> Request:
        examples = self.examples(rows)
        return examples.batch(range(len(examples)), len(examples))[0]

    def examples(self, rows: Sequence[Any]) -> Any:
        """Return the `EncodedExamples` of texts, or of tuples of them."""
        return self.model.row_examples(rows)

    def signatures(self, kinds: Sequence[str] = SIGNATURES) -> dict[str, Any]:
        """Return the functions, with one for the names of classes, and one whose inputs
        have the names of columns, if SavedModels allow these."""
        signatures = super().signatures(kinds)
        names = {key: own[0] for key, own in self._columns.items() if len(own) == 1}
        is_one_each = len({*names.values()}) == len(self._columns)
        is_new = any(key != name for key, name in names.items())
        are_names = all(map(_IDENTIFIER.fullmatch, names.values()))
        if "text" in kinds and is_one_each and is_new and are_names:
            signatures["columns"] = _renamed(self.text["serving_default"], names)
        if classes := self.model.output_names:
            signatures["class_names"] = tf.function(
                lambda: {"class_names": tf.constant(classes)}, input_signature=[]
            )
        return signatures


def _renamed(function: Any, names: Mapping[str, str]) -> Any:
    """Return a function of strings by other names, which calls the first."""
    own = function.input_signature
    specs = [tf.TensorSpec(spec.shape, spec.dtype, names[spec.name]) for spec in own]
    return tf.function(lambda *inputs: function(*inputs), input_signature=specs)


class _Texts(_Task):
    """Outputs for each text or pair of texts, or for several of each item."""

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the named outputs, and `pieces_cut`."""
        rows, by_item = self._rows(texts)
        inputs, cut_R = self.encoder.texts(self.max_length, *rows)
        outputs = by_item(self.outputs(inputs))
        return {**self.model.text_outputs(outputs), "pieces_cut": by_item(cut_R)}

    def expected(self, rows: Sequence[Any]) -> Response:
        outputs = self.keras(self.ids(rows))
        if 2 in self.inputs.values():
            outputs = tf.reshape(outputs, [len(rows), -1, outputs.shape[-1]])
        return arrays(self.model.text_outputs(outputs))

    def _rows(self, texts: Sequence[tf.Tensor]) -> tuple[Sequence[tf.Tensor], Callable]:
        """Return the texts of each row, and a function from rows to items.

        Strings [B, N] are B * N rows, for each of which the strings [B] are repeated.
        The function returns a tensor [R, ...] as [B, ...], or as [B, N, ...].
        """
        widest = max(texts, key=lambda text: text.shape.rank)
        if widest.shape.rank == 1:
            return self.model.row_texts(*texts), tf.identity
        items, count = tf.unstack(tf.shape(widest))
        some = tf.debugging.Assert(
            (count > 0) | (items == 0),
            ["An item must have one or more of each input. Received: none"],
        )
        with tf.control_dependencies([some]):
            least = tf.maximum(count, 1)  # a request of no items has outputs, too

        def by_row(text: tf.Tensor) -> tf.Tensor:
            wide = text if text.shape.rank == 2 else tf.tile(text[:, None], [1, count])
            return tf.reshape(wide, [-1])

        def by_item(tensor_R: tf.Tensor) -> tf.Tensor:
            axes = tf.concat([[items, least], tf.shape(tensor_R)[1:]], 0)
            return tf.reshape(tensor_R, axes)

        return self.model.row_texts(*map(by_row, texts)), by_item


class _Words(_Task):
    """Labels of the words of a text, and its entities."""

    def __init__(self, model: Any, *options: Any):
        super().__init__(model, *options)
        self._spans = model.graph_spans()
        self.compute = chunked(self.outputs)
        self.text["entities"] = self.of_texts(self._entities)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return `words`, and `labels` and `probabilities` of each, [B, W]."""
        tags, words = self._tags(split_words(*texts))
        return {
            "words": words.to_tensor(),
            "labels": words.with_values(self._spans.labels(tags)).to_tensor(),
            "probabilities": words.with_values(tags.probability_W).to_tensor(),
        }

    def _entities(self, text_B: tf.Tensor) -> Outputs:
        offsets = self.encoder.tokenize.word_offsets(text_B)
        words = substrings(offsets.codes, offsets.starts, offsets.ends)
        return self._spans.entities(self._tags(words)[0], offsets)

    def _tags(self, words: tf.RaggedTensor) -> tuple[WordTags, tf.RaggedTensor]:
        """Return the tags of words, and the words after the check of their limit."""
        segment = self.data.tagging_segment
        inputs, parts = self.encoder.words(words, self.max_length, segment)
        return word_tags(self.compute(inputs), parts), parts.words

    def examples(self, rows: Sequence[str]) -> Any:
        return self.model.examples([text.split() for text in rows])

    def expected(self, rows: Sequence[str]) -> Response:
        details = self.model.predict_details([text.split() for text in rows])
        labels = tf.ragged.constant([one.tags for one in details], tf.string)
        return {"labels": labels.to_tensor().numpy()}


class _Windows(_Task):
    """Answers to questions, extracted from contexts."""

    def __init__(self, model: Any, *options: Any):
        super().__init__(model, *options)
        self.compute = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return `answer`, `start`, `end`, `score`, `null_odds`, and the question's
        `pieces_cut`, each [B]."""
        inputs, windows = encode_windows(self.encoder, self.data, *texts)
        decoding, threshold = self.model.settings.model, self.model.null_threshold
        answers = graph_answers(self.compute(inputs), windows, decoding, threshold)
        return {**answers, "pieces_cut": windows.num_truncated_B}

    def expected(self, rows: Sequence[Any]) -> Response:
        threshold, details = self.model.null_threshold, self.model.predict_details(rows)
        return {"answer": encode_texts([qa.answer_text(threshold) for qa in details])}


_FORMS = {"texts": _Texts, "words": _Words, "windows": _Windows}


def task_export(
    model: Any,
    target: str = TARGETS[0],
    limits: RequestLimits = LIMITS,
    columns: DataConfig | None = None,
) -> ServedModel:
    """Return the functions of a fine-tuned model, in float32, the type of its weights.

    Few CPUs and neither LiteRT nor ONNX compute in bfloat16. `columns`: settings
    with those of the training data, by default the model's.
    """
    if not model.kind:
        raise InputError(f"a {type(model).__name__} has no kind, so it has no export")
    form = _FORMS[model.input_form]
    return form(to_float32(model), target, limits, columns)


def to_float32(model: Any) -> Any:
    """Return the model, or a copy with the same weights that computes in float32."""
    if model.settings.training.precision == "float32":
        return model
    config = model.get_config()
    config["settings"]["training"]["precision"] = "float32"
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    return copy
