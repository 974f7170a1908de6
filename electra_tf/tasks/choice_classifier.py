"""Multiple choice: which of several continuations fits a text (SWAG, RACE)."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.model.heads import ClassificationHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.classifier import PooledTextModel, encode_texts
from electra_tf.tasks.examples import EncodedExamples, IdRows, check_num_targets


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """A text with the continuations to choose from."""

    text: str  # a context; or a question, if the choices are answers alone
    choices: tuple[str, ...]
    question: str = ""  # text before each choice, or around it, if it has a blank

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts."""
        return self.text, self.question, *self.choices

    def pairs(self) -> list[tuple[str, str]]:
        """Return the text with each continuation, in a blank (RACE) or at the end."""
        if "_" in self.question:
            before, _, after = self.question.partition("_")
            return [(self.text, f"{before}{c}{after}") for c in self.choices]
        return [(self.text, f"{self.question} {c}".strip()) for c in self.choices]


@keras.saving.register_keras_serializable("electra_tf")
class ChoiceClassifier(PooledTextModel):
    """Model that chooses one of several continuations of a text.

    Each choice is an input of its own, and the head has one output, whose softmax is
    over the choices.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        num_choices: Number of the choices of a text, the same for all texts; files of
            other libraries do not have it.
        settings: As for `TextModel`.
        seed: As for `TextModel`.
        options: `name`, `dtype` and `trainable`, as for `TextModel`.

    Example:
        import electra_tf

        model = electra_tf.ChoiceClassifier.from_preset("run", num_choices=2)
        items = [("Anna opens the door", ["and goes in", "and is blue"])] * 8
        model.fit(items, [0] * 8, epochs=2)
        model.predict(items[:1])  # probabilities [1, 2]
    """

    kind = "choice_classifier"
    own_arguments = ("num_choices",)
    required_argument = "num_choices"
    pairs = True

    def __init__(
        self,
        start: PretrainedEncoder,
        num_choices: int = 4,
        settings: Any = None,
        seed: int = 0,
        **options: Any,
    ):
        self.num_choices = num_choices
        if type(num_choices) is not int or num_choices < 2:
            raise InputError(
                f"num_choices must be a whole number of 2 or more, not {num_choices!r}"
            )
        super().__init__(start, settings, seed, **options)

    @property
    def labels(self) -> tuple[str, ...]:
        """Numbers of the choices, from 0."""
        return tuple(map(str, range(self.num_choices)))

    @property
    def num_outputs(self) -> int:
        """Number of choices."""
        return self.num_choices

    # A served request has texts, questions and lists of choices.
    served_inputs: Mapping[str, int] = types.MappingProxyType(
        {"text": 1, "question": 1, "choices": 2}
    )

    def served_columns(self, data: DataConfig) -> dict[str, list[str]]:
        """Return columns: of the text, none or one of the question, of the choices."""
        texts, choices = list(data.text_columns), list(data.choice_columns)
        if not choices:
            if texts and texts[-1].endswith("0"):  # ending0, ending1, ...
                stem = texts.pop().removesuffix("0")
                texts += [f"{stem}{number}" for number in range(self.num_choices)]
            count = 1 if len(texts) == 2 else 2
            texts, choices = texts[:count], texts[count:]
        if not choices:
            return {}
        return {"text": texts[:1], "question": texts[1:], "choices": choices}

    def row_texts(self, *texts_R: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the text of each row, and its question with a choice."""
        text_R, question_R, choice_R = texts_R
        parts_R = tf.strings.split(question_R, "_", maxsplit=1)
        before_R, after_R = tf.unstack(
            parts_R.to_tensor("", shape=[None, 2]), 2, axis=1
        )
        filled_R = tf.strings.join([before_R, choice_R, after_R])
        joined_R = tf.strings.strip(tf.strings.join([question_R, choice_R], " "))
        return text_R, tf.where(parts_R.row_lengths() > 1, filled_R, joined_R)

    def row_examples(self, x: Sequence[Any]) -> EncodedExamples:
        """Tokenize texts, with an example for each choice, of any number."""
        items = [as_choices(item, None, index) for index, item in enumerate(x)]
        pairs = [pair for item in items for pair in item.pairs()]
        return encode_texts(self.tokenizer, pairs, self.settings.data.max_length)

    def text_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return `probabilities` and `logits` [B, N], and `choice` [B]."""
        logits_BN = outputs[..., 0]
        return {
            "probabilities": tf.nn.softmax(logits_BN),
            "logits": logits_BN,
            "choice": tf.argmax(logits_BN, -1, tf.int32),
        }

    def served_metadata(self) -> dict[str, Any]:
        """Return the number of choices of training."""
        return {"num_choices": self.num_choices}

    def make_head(self, seed: int) -> ClassificationHead:
        """Return a head with one output."""
        return self.text_head(1, seed)

    def _forward(self, inputs: IdRows, layer_ops: LayerOps, targets: Any = None) -> Any:
        """Return logits [B, N] of inputs [B, N, L], or [R, 1] of single rows [R, L]."""
        shape = tf.shape(inputs["token_ids"])
        is_row = inputs["token_ids"].shape.rank == 2
        rows = {n: tf.reshape(ids, (-1, shape[-1])) for n, ids in inputs.items()}
        logits_R1 = super()._forward(rows, layer_ops, targets)
        return logits_R1 if is_row else tf.reshape(logits_R1, shape[:2])

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Encode texts with choices; a target is the number of the right one, from 0.

        An element of `x` is (text, choices) or (text, question, choices).
        """
        check_num_targets(x, y, "texts")
        for index, item in enumerate(x):
            as_choices(item, self.num_choices, index)
        targets = None if y is None else self.class_ids(y)
        rows = self.row_examples(x)
        count = self.num_choices
        return dataclasses.replace(
            rows, targets=targets, weights=None, pairs=True, num_choices=count
        )


def as_choices(item: Any, count: int | None, index: int = 0) -> Choices:
    """Return an element of `x`, with so many choices; None: any number."""
    if not isinstance(item, Choices):
        parts = list(item) if isinstance(item, list | tuple) else []
        *texts, choices = parts or [None]
        is_list = isinstance(choices, list | tuple | np.ndarray)
        strings = [*texts, *(choices if is_list else [None])]
        if len(texts) not in (1, 2) or not all(isinstance(s, str) for s in strings):
            raise InputError(
                "Each element of x must be (text, [choice, choice, ...]) or (text, "
                f"question, [choice, choice, ...]), not {item!r:.80} at index {index}"
            )
        item = Choices(texts[0], tuple(choices), "".join(texts[1:]))
    if count is not None and len(item.choices) != count:
        raise InputError(
            f"Each text must have {count} choices, as the model has, not "
            f"{item.choices!r:.80} at index {index}"
        )
    return item
