"""Keras model for extractive question answering."""

import dataclasses
import itertools
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.model.heads import SpanHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.model.transformer import InitializerFactory
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.data.squad_json import Answer, Question
from electra_tf.tasks.examples import EncodedExamples, IdRows, check_num_targets
from electra_tf.tasks.losses import Loss, weighted_sums
from electra_tf.tasks.spans import QAPrediction, decode_answers
from electra_tf.tasks.text_model import TextModel
from electra_tf.tasks.windows import make_features
from electra_tf.text.encoding import RaggedRows
from electra_tf.text.vocab import PAD


@keras.saving.register_keras_serializable("electra_tf")
class QuestionAnswerer(TextModel):
    """Extractive question answering model; questions may have no answer.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        null_threshold: Threshold of the null odds, above which the answer is empty;
            None: never empty. Fine-tuning tunes it on the dev data.
        settings: As for `TextModel`.
        seed: As for `TextModel`.
        options: `name`, `dtype` and `trainable`, as for `TextModel`.

    Example:
        import electra_tf

        model = electra_tf.QuestionAnswerer.from_preset("run")
        text = "Anna sings in the choir ."
        model.fit([("who sings ?", text)] * 8, [("Anna", 0)] * 8, epochs=2)
        model.predict([("who sings ?", text)])  # a list of answers
    """

    kind = "question_answerer"
    own_arguments = ("null_threshold",)
    pairs = True
    input_form = "windows"

    def __init__(
        self,
        start: PretrainedEncoder,
        null_threshold: float | None = None,
        settings: Any = None,
        seed: int = 0,
        **options: Any,
    ):
        self.null_threshold = null_threshold
        super().__init__(start, settings, seed, **options)

    @classmethod
    def new_arguments(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments with a threshold of 0 by default."""
        return {"null_threshold": 0.0, **given}

    def make_head(self, seed: int) -> SpanHead:
        """Create the head."""
        chosen, initializers = self.settings.model, InitializerFactory(seed)
        options = chosen.start_n_top, chosen.joint_prediction, chosen.answerable
        return SpanHead(self.shape.width, initializers, *options, dtype="float32")

    def head_outputs(
        self, x_BLD: Any, inputs: IdRows, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Return the outputs of `SpanHead.call`."""
        starts = [] if targets is None else [targets["start"]]
        return self.head(x_BLD, inputs["segment_ids"], *starts)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Return the original's weighted sum of start, end and answerability.

        (start + end) / 2 + answerable_weight * impossible, each a cross-entropy.
        Without an answer both positions are 0.
        """
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        start_B, end_B = (
            cross_entropy(targets[name], outputs[f"{name}_logits_BL"])
            for name in ("start", "end")
        )
        losses_B = (start_B + end_B) / 2.0
        if "answerable_logit_B" in outputs:
            impossible_B = tf.cast(targets["impossible"], tf.float32)
            none_B = tf.nn.sigmoid_cross_entropy_with_logits(
                impossible_B, outputs["answerable_logit_B"]
            )
            losses_B += self.settings.model.answerable_weight * none_B
        return weighted_sums(losses_B, weights_B)

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return ones, and whether start and end of each window are right."""
        start_B, end_B = (
            targets[name]
            == tf.argmax(outputs[f"{name}_logits_BL"], -1, targets[name].dtype)
            for name in ("start", "end")
        )
        correct_B1 = tf.cast(start_B & end_B, tf.float32)[:, None]
        return tf.ones_like(correct_B1), correct_B1, weights_B

    def task_metrics(self) -> list[keras.metrics.Metric]:
        """Return the share of windows with the right start and end."""
        return [keras.metrics.BinaryAccuracy("accuracy")]

    @property
    def served_inputs(self) -> Mapping[str, int]:
        """Names of the strings of a served request."""
        return {"question": 1, "context": 1}

    def named_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return the head's outputs, without the axes in their names."""
        return {name.rsplit("_", 1)[0]: tensor for name, tensor in outputs.items()}

    def served_metadata(self) -> dict[str, Any]:
        """Return what decides the windows of a context, and the answers."""
        data, decoding = self.settings.data, self.settings.model
        return {
            "null_threshold": self.null_threshold,
            "max_query_length": data.query_limit,
            "doc_stride": data.doc_stride,
            "n_best": decoding.n_best,
            "max_answer_length": decoding.max_answer_length,
        }

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Encode questions or pairs (question, context), one example for each window.

        An answer is (text, start), a list of these, or None for no answer.
        """
        check_num_targets(x, y, "questions")
        data, origins = self.settings.data, []
        for index, item in enumerate(x):
            question = _question(item, index)
            if y is not None:
                question = _with_answers(question, y[index], index)
            windows = make_features(
                question, self.tokenizer, data, training=y is not None
            )
            origins += [(index, question, window) for window in windows]
        windows, targets = [window for *_, window in origins], None
        if y is not None:
            names = ("start", "end", "impossible")
            targets = {n: [getattr(window, n) for window in windows] for n in names}
        return EncodedExamples(
            RaggedRows.of(
                [window.ids for window in windows], self.tokenizer.vocabulary.ids[PAD]
            ),
            [window.segments for window in windows],
            data.max_length,
            targets,
            truncated=sum(w.query_truncated and not w.first_piece for w in windows),
            origins=origins,
            items=[index for index, *_ in origins],
            pairs=True,
        )

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Return the text of each answer, empty for no answer."""
        predictions = self.decode_details(x, examples, outputs)
        return [p.answer_text(self.null_threshold) for p in predictions]

    def decode_details(
        self, x: Sequence[Any], examples: EncodedExamples, outputs: list
    ) -> list[QAPrediction]:
        """Return the best candidates of each question, from all of its windows."""
        rows = zip(examples.origins, outputs, strict=True)
        predictions, settings = [], self.settings.model
        for _, group in itertools.groupby(rows, lambda row: row[0][0]):
            origins, found = zip(*group, strict=True)
            _, (question, *_), windows = zip(*origins, strict=True)
            predictions.append(
                decode_answers(question, windows, found, self.tokenizer, settings)
            )
        return predictions

    def predict_nbest(
        self, x: Sequence[Any], batch_size: int | None = None
    ) -> list[QAPrediction]:
        """Predict the best candidate answers and the null odds of each question.

        Args:
            x: As for `predict`.
            batch_size: As for `predict`.

        Returns:
            One prediction for each question, independent of `null_threshold`.
        """
        return self.predict_details(x, batch_size)

    def set_decision(self, value: float) -> None:
        """Set the threshold of the null odds."""
        self.null_threshold = value


def _question(item: Any, index: int) -> Question:
    if isinstance(item, Question):
        return item
    is_pair = isinstance(item, tuple | list) and len(item) == 2
    if not is_pair or not all(isinstance(text, str) for text in item):
        raise InputError(
            f"Each element of x must be a pair (question, context) of texts, not "
            f"{item!r:.80} at index {index}"
        )
    return Question(str(index), *item)


def _with_answers(question: Question, gold: Any, index: int) -> Question:
    if gold is None:
        gold = ()
    elif len(gold) == 2 and isinstance(gold[0], str):
        gold = (gold,)
    answers = []
    for answer in [gold] if isinstance(gold, str) else gold:
        match answer:
            case Answer():
                answers.append(answer)
            case (str(text), numbers.Integral() as start):
                answers.append(Answer(text, start))
            case _:
                raise InputError(
                    "An answer must be (text, start), with the index of its first "
                    "character in the context, a list of these, or None for no answer,"
                    f" not {gold!r:.80} at index {index}"
                )
    answers = tuple(answers)
    return dataclasses.replace(question, answers=answers, impossible=not answers)
