"""Served functions of fine-tuned models."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.export_options import LIMITS, TARGETS, RequestLimits
from electra_tf.serving.inference_encoder import InferenceEncoder, chunked
from electra_tf.serving.signatures import (
    PROBE_TEXTS,
    ExportSpec,
    Inputs,
    Outputs,
    Request,
    Response,
    ServedModel,
    Signature,
    arrays,
    encode_texts,
)
from electra_tf.serving.spans_graph import NO_SPAN, GraphWindows, graph_answers
from electra_tf.serving.text_graph import GraphInputs
from electra_tf.serving.words_graph import GraphSpans, GraphWords, WordTags, split_words
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.labels import THRESHOLD
from electra_tf.tasks.text_model import TextModel
from electra_tf.tasks.windows import query_limit
from electra_tf.text.graph_tokenizer import substrings


class _Task(ServedModel):
    """Head of a fine-tuned model."""

    kind = ""

    def __init__(self, model: TextModel, target: str, limits: RequestLimits):
        network = InferenceEncoder(model.encoder, target)
        super().__init__(network, model.shape, limits)
        self.model, self.data = model, model.settings.data
        self.module.head = [weight.value for weight in model.head.weights]

    def metadata(self) -> dict[str, Any]:
        return {}

    def head(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Any:
        return self.model.head_outputs(hidden_BLD, inputs, LayerOps(training=False))

    def keras_head(self, ids: Request) -> Any:
        return self.model(dict(ids), training=False)

    def examples(self, rows: Sequence[Any]) -> EncodedExamples:
        return self.model.examples(rows)

    def texts(self) -> dict[str, Signature]:
        """Return the signatures of strings by name."""
        return {"serving_default": self.text()}

    def num_pieces(self, *texts: str) -> int:
        """Return the number of wordpieces of texts."""
        return sum(len(self.model.tokenizer.encode(text)) for text in texts)


class _Texts(_Task):
    """Outputs for each text or pair of texts."""

    def __init__(self, model: TextModel, target: str, limits: RequestLimits):
        super().__init__(model, target, limits)
        self.inputs = ("text", "text_b") if model.pairs else ("text",)
        self._pack = GraphInputs(model.tokenizer, self.data.max_length, limits)
        self.module.inputs = self._pack

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the named outputs, and `pieces_cut`."""
        inputs, cut_B = self._pack(*texts)
        return {**self.named(self.outputs(inputs)), "pieces_cut": cut_B}

    def expected(self, rows: Sequence[Any]) -> Response:
        examples = self.model.examples(rows)
        outputs = self.named(tf.stack(self.model.outputs_of(examples)))
        texts = rows if self.model.pairs else [(row,) for row in rows]
        # A row has its texts' wordpieces, [CLS], and a [SEP] after each text.
        used_B = examples.lengths - 1 - len(self.inputs)
        cut_B = [self.num_pieces(*row) for row in texts] - used_B
        return {**arrays(outputs), "pieces_cut": cut_B}


class _Classifier(_Texts):
    """Probabilities, logits and labels of texts or pairs."""

    kind = "classifier"

    def named(self, outputs: Any) -> Outputs:
        """Return `probabilities`, `logits` and `label` from logits [B, C].

        With `multi_label`, `labels` [B, C] has each name that applies, else b"".
        """
        labels, probabilities = self.model.labels, self.model.probabilities(outputs)
        common = {"probabilities": probabilities, "logits": outputs}
        if self.model.multi_label:
            return {**common, "labels": tf.where(probabilities > THRESHOLD, labels, "")}
        best_B = tf.argmax(outputs, -1)
        return {**common, "label": tf.gather(tf.constant(labels), best_B)}

    def metadata(self) -> dict[str, Any]:
        return {
            "labels": list(self.model.labels),
            "pairs": bool(self.model.pairs),
            "multi_label": self.model.multi_label,
        }


class _Regressor(_Texts):
    """Scores of texts or pairs, in the units of the training data."""

    kind = "regressor"

    def named(self, outputs: Any) -> Outputs:
        """Return `score` from the head's output [B, 1]."""
        low, high = self.model.low, self.model.high
        return {"score": low + outputs[:, 0] * (high - low)}

    def metadata(self) -> dict[str, Any]:
        bounds = {"low": self.model.low, "high": self.model.high}
        return {**bounds, "pairs": bool(self.model.pairs)}


class _Tagger(_Task):
    """Labels of the words of a text, and its entities."""

    kind = "tagger"

    def __init__(self, model: TextModel, target: str, limits: RequestLimits):
        super().__init__(model, target, limits)
        self.module.words = self._words = GraphWords(
            model.tokenizer, self.data.max_length, self.data.tagging_segment, limits
        )
        self._spans = GraphSpans(model.tags, model.scheme)
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
        """Return the outputs of `GraphSpans.entities`."""
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

    def named(self, outputs: Any) -> Outputs:
        """Return `logits` and `probabilities` [B, L, C] and `labels` [B, L]."""
        best_BL = tf.argmax(outputs, -1)
        return {
            "logits": outputs,
            "probabilities": tf.nn.softmax(outputs),
            "labels": tf.gather(tf.constant(self.model.tags), best_BL),
        }

    def examples(self, rows: Sequence[str]) -> EncodedExamples:
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

    def metadata(self) -> dict[str, Any]:
        segment = self.data.tagging_segment
        return {
            "labels": list(self.model.tags),
            "scheme": self.model.scheme,
            "segment": segment,
        }


class _Answerer(_Task):
    """Answers to questions, extracted from contexts."""

    kind = "answerer"
    inputs = ("question", "context")

    def __init__(self, model: TextModel, target: str, limits: RequestLimits):
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

    def named(self, outputs: Any) -> Outputs:
        """Return the head's outputs, without the axes in their names."""
        return {name.rsplit("_", 1)[0]: tensor for name, tensor in outputs.items()}

    def probes(self) -> Sequence[Any]:
        question = "Where was the railroad completed?"
        return [(question, text or "No text.") for text in reversed(PROBE_TEXTS)]

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
            "pieces_cut": np.maximum(0, lengths_B - query_limit(self.data)),
        }

    def metadata(self) -> dict[str, Any]:
        decoding = self.model.settings.model
        return {
            "null_threshold": self.model.null_threshold,
            "max_query_length": query_limit(self.data),
            "doc_stride": self.data.doc_stride,
            "n_best": decoding.n_best,
            "max_answer_length": decoding.max_answer_length,
        }


_SERVED = {
    "classifier": _Classifier,
    "regressor": _Regressor,
    "token_classifier": _Tagger,
    "question_answerer": _Answerer,
}


def task_export(
    model: TextModel, target: str = TARGETS[0], limits: RequestLimits = LIMITS
) -> ExportSpec:
    """Return the functions of a fine-tuned model.

    A model of mixed precision is exported in float32, the type of its weights, because
    few CPUs and neither LiteRT nor ONNX compute in bfloat16.
    """
    served_class = _SERVED.get(model.kind)
    if served_class is None:
        raise InputError(
            f"A model to export must be one of: {', '.join(_SERVED)}",
            f"a {type(model).__name__} of the kind {model.kind!r}",
            "Pass the --output of finetune, or a checkpoint of pretrain",
        )
    served = served_class(to_float32(model), target, limits)
    sizes = {
        "max_length": served.data.max_length,
        "limits": dataclasses.asdict(limits),
    }
    return ExportSpec(
        served.kind,
        served.module,
        served.texts(),
        {"tokens": served.tokens()},
        model.tokenizer,
        {**sizes, **served.metadata()},
    )


def to_float32(model: TextModel) -> TextModel:
    """Return the model, or a copy with the same weights that computes in float32."""
    if model.settings.training.precision == "float32":
        return model
    config = model.get_config()
    config["settings"]["training"]["precision"] = "float32"
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    return copy


def _padded(rows: Sequence[Sequence[Any]], padding: Any) -> np.ndarray:
    """Return values of each row's words or entities, padded, [B, W] or [B, E]."""
    dtype = tf.constant(padding).dtype
    return tf.ragged.constant(rows, dtype, ragged_rank=1).to_tensor(padding).numpy()
