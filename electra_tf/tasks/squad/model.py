"""The model that answers questions with words of a text."""

import dataclasses
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.model.heads import SpanHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.model.transformer import InitializerFactory
from electra_tf.tasks.batching import EncodedExamples, Inputs
from electra_tf.tasks.losses import Loss, span_loss
from electra_tf.tasks.presets import PresetArguments
from electra_tf.tasks.pretrained import PretrainedEncoder, from_saved_config
from electra_tf.tasks.squad.decoding import DecodingConfig, QAPrediction, decode_answers
from electra_tf.tasks.squad.preprocessing import QAFeatureConfig, make_features
from electra_tf.tasks.squad.reader import Answer, Question
from electra_tf.tasks.text_model import TextModel

_DEFAULTS = FinetuningConfig()
_NOWHERE = -1e30  # the logit of a position that a shorter window does not have


@keras.saving.register_keras_serializable("electra_tf")
class QuestionAnswerer(TextModel):
    """Finds the answer to a question in a text, or says that there is none.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        null_threshold: Odds above which there is no answer; None: there always is
            one. Fine-tuning tunes it on the dev data.
        settings: All of fine-tuning.
        seed: Decides the head's weights, dropout and the order of the examples.
        name: Of the model.
        dtype: `float32` or `mixed_bfloat16`, in place of the settings' precision.
        trainable: Whether the weights are trained.

    Example:
        import electra_tf

        model = electra_tf.QuestionAnswerer.from_preset("run")
        text = "Anna sings in the choir ."
        model.fit([("who sings ?", text)] * 8, [("Anna", 0)] * 8, epochs=2)
        model.predict([("who sings ?", text)])  # a list of answers
    """

    def __init__(
        self,
        start: PretrainedEncoder,
        null_threshold: float | None = None,
        settings: FinetuningConfig = _DEFAULTS,
        seed: int = 0,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ):
        self.null_threshold = self._first_threshold = null_threshold
        name = name or "question_answerer"
        super().__init__(start, settings, seed, name, dtype, trainable)

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        null_threshold: float | None = 0.0,
        settings: FinetuningConfig | None = None,
        seed: int = 0,
        vocabulary: str | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> "QuestionAnswerer":
        """Load a saved model, or make one on a pre-trained encoder.

        Args:
            path_or_name: A checkpoint's folder, a run's folder (its newest
                checkpoint), a saved model, which is returned as it is, or the name or
                path of a config, for random weights.
            null_threshold: Odds above which there is no answer; None: there always
                is one. A saved model keeps its own.
            settings: All of fine-tuning; None: the defaults.
            seed: Decides the head's weights, dropout and the order of the examples.
            vocabulary: The vocabulary's file; for a config alone.
            name: Of the model.
            dtype: `float32` or `mixed_bfloat16`, in place of the settings' precision.
            trainable: Whether the weights are trained.

        Returns:
            A model whose head is not trained yet, or the saved model.

        Raises:
            InputError: The source is of no known kind or damaged, or the arguments
                are not those of the saved model.
        """
        preset = PresetArguments(
            path_or_name, vocabulary, settings, seed, name, dtype, trainable
        )
        # The default of this argument does not apply to a saved model.
        omitted = preset.is_saved and null_threshold == 0
        head = {} if omitted else {"null_threshold": null_threshold}
        return preset.build(cls, **head)

    def make_head(self, seed: int) -> SpanHead:
        """Starts, ends and whether there is an answer."""
        own = self.settings.model
        return SpanHead(
            self.shape.width,
            InitializerFactory(seed),
            own.beam,
            own.joint,
            own.answerable,
            dtype="float32",
        )

    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Logits by name, as `SpanHead.call` has them."""
        segments_BL = inputs["segment_ids"]
        if targets is None:
            return self.head(x_BLD, segments_BL)
        return self.head(x_BLD, segments_BL, targets["start"])

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """The original's sum of three parts; right is a window with both ends right."""
        start_BL, end_BL = outputs["start_logits_BL"], outputs["end_logits_BL"]
        start_B, end_B = targets["start"], targets["end"]
        losses_B = span_loss(
            start_BL,
            end_BL,
            outputs.get("answerable_logit_B"),
            start_B,
            end_B,
            targets["impossible"],
            self.settings.model.answerable_weight,
        )
        starts_B = tf.argmax(start_BL, -1, tf.int32) == start_B
        ends_B = tf.argmax(end_BL, -1, tf.int32) == end_B
        hits_B = tf.cast(starts_B & ends_B, tf.float32)
        return Loss(
            tf.reduce_sum(losses_B * weights_B),
            tf.reduce_sum(weights_B),
            tf.reduce_sum(hits_B * weights_B),
        )

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Questions, or pairs of question and text; answers as (text, start) or None.

        A long text becomes several examples.
        """
        data, made, origins = self.settings.data, [], []
        if y is not None and len(y) != len(x):
            raise InputError(
                "There is an answer, or None, for each question",
                f"{len(x)} questions and {len(y)} answers",
                "Pass lists of one length",
            )
        rule = QAFeatureConfig(
            data.max_length,
            min(data.max_query_length, data.max_length // 2),
            data.doc_stride,
            data.window_labels,
        )
        for place, item in enumerate(x):
            gold = None if y is None else (y[place],)
            question = _question(item, gold, place)
            parts = make_features(
                question, self.tokenizer, rule, training=y is not None
            )
            made += parts
            origins += [(place, question)] * len(parts)
        targets = None
        if y is not None:
            names = ("start", "end", "impossible")
            targets = {n: [getattr(part, n) for part in made] for n in names}
        return EncodedExamples(
            [part.ids for part in made],
            [part.segments for part in made],
            data.max_length,
            targets,
            truncated=sum(part.query_cut for part in made),
            origins=list(zip(origins, made, strict=True)),
            items=[place for place, _ in origins],
        )

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """The text of each answer, empty where there is none."""
        found = self._answered(len(x), examples, outputs)
        return [one.decided(self.null_threshold) for one in found]

    def answered(
        self, x: Sequence[Any], batch_size: int | None = None
    ) -> list[QAPrediction]:
        """What speaks for each answer and for none.

        Args:
            x: As for `predict`.
            batch_size: As for `predict`.

        Returns:
            The best answers of each question, whatever the threshold.
        """
        examples = self.examples(x)
        outputs = self.outputs_of(examples, batch_size)
        return self._answered(len(x), examples, outputs)

    def reinitialize(self, start: PretrainedEncoder, seed: int) -> None:
        """Begins anew, with the threshold it was made with."""
        super().reinitialize(start, seed)
        self.null_threshold = self._first_threshold

    def clone_with_seed(
        self, start: PretrainedEncoder, seed: int
    ) -> "QuestionAnswerer":
        """The same with other initial weights."""
        return QuestionAnswerer(start, self.null_threshold, self.settings, seed)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` takes."""
        return super().get_config() | {"null_threshold": self.null_threshold}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "QuestionAnswerer":
        """An equal model, but for its weights."""
        start, settings = from_saved_config(config)
        model = cls(start, config["null_threshold"], settings)
        return model.configured(config)

    def _answered(
        self, count: int, examples: EncodedExamples, outputs: list
    ) -> list[QAPrediction]:
        own = self.settings.model
        decoding = DecodingConfig(own.n_best, own.max_answer_length)
        found: list[tuple[Question | None, list, list]] = [
            (None, [], []) for _ in range(count)
        ]
        for ((place, question), window), output in zip(
            examples.origins, outputs, strict=True
        ):
            _, cut, said = found[place]
            cut.append(window)
            said.append(output)
            found[place] = (question, cut, said)
        return [
            decode_answers(question, cut, _stacked(said), self.tokenizer, decoding)
            for question, cut, said in found
        ]


def _stacked(outputs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """A row for each window; logits of shorter ones are filled up."""
    stacked = {}
    for name in outputs[0]:
        rows = [output[name] for output in outputs]
        shape = np.max([row.shape for row in rows], axis=0)
        if rows[0].ndim == 0:
            stacked[name] = np.stack(rows)
            continue
        # Indices get 0, [CLS], whose logits of -1e30 are those of no answer.
        logits = np.issubdtype(rows[0].dtype, np.floating)
        whole = np.full(
            (len(rows), *shape), _NOWHERE if logits else 0, dtype=rows[0].dtype
        )
        for place, row in enumerate(rows):
            whole[(place, *map(slice, row.shape))] = row
        stacked[name] = whole
    return stacked


def _is_answer(given: Any) -> bool:
    pair = isinstance(given, tuple | list) and len(given) == 2
    whole = pair and isinstance(given[1], numbers.Integral)
    return isinstance(given, Answer) or (whole and isinstance(given[0], str))


def _question(item: Any, gold: tuple[Any] | None, place: int) -> Question:
    """A question whose answers are the given ones."""
    if not isinstance(item, Question):
        pair = isinstance(item, tuple | list) and len(item) == 2
        if not pair or not all(isinstance(part, str) for part in item):
            raise InputError(
                "A question comes with the text to answer it from",
                f"{item!r:.80} at place {place}",
                "Pass pairs of question and text",
            )
        item = Question(str(place), *item, (), False, "", "the given pairs", place + 1)
    if gold is None:
        return item
    (given,) = gold
    if given is None:
        given = ()
    elif len(given) == 2 and isinstance(given[0], str):
        given = (given,)
    if isinstance(given, str) or not all(map(_is_answer, given)):
        raise InputError(
            "An answer is its text and the number of characters before it",
            f"{given!r:.80} at place {place}",
            "Pass (text, place), a list of such, or None where there is no answer",
        )
    known = tuple(a if isinstance(a, Answer) else Answer(*a) for a in given)
    return dataclasses.replace(item, answers=known, impossible=not known)
