"""Model for tagging words: chunks, named entities, parts of speech."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.model.heads import TokenClassificationHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.conll import Sentence
from electra_tf.tasks.examples import IGNORE_LABEL, EncodedExamples, Inputs
from electra_tf.tasks.losses import Loss, tag_loss
from electra_tf.tasks.presets import PresetArguments
from electra_tf.tasks.pretrained import PretrainedEncoder, from_saved_config
from electra_tf.tasks.schemes import BIOES, SCHEMES, to_scheme
from electra_tf.tasks.tagging.preprocessing import TaggedInput, features, join
from electra_tf.tasks.text_model import TextModel

_DEFAULTS = FinetuningConfig()


@keras.saving.register_keras_serializable("electra_tf")
class TokenClassifier(TextModel):
    """Token classification model: one tag for each word of a sentence.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        tags: Names of the tags; for spans BIOES tags (see
            `preprocessing.tag_vocabulary`).
        settings: The fine-tuning config.
        seed: Seed of the head's weights, of dropout and of the order of the examples.
        scheme: The scheme of the tags that `predict` returns, one of
            `schemes.SCHEMES`; BIOES returns the learned tags unchanged.
        name: Name of the model.
        dtype: `float32` or `mixed_bfloat16`, in place of the settings' precision.
        trainable: Whether the weights are trained.

    Example:
        import electra_tf

        tags = ["O", "S-PER"]
        model = electra_tf.TokenClassifier.from_preset("run", tags=tags)
        sentences = [["Anna", "sings"], ["they", "sing"]] * 8
        model.fit(sentences, [["S-PER", "O"], ["O", "O"]] * 8, epochs=2)
        model.predict([["Anna", "sings"]])  # a list of tags for each sentence
    """

    takes_pairs = False
    metric_kind = "classes"

    def __init__(
        self,
        start: PretrainedEncoder,
        tags: Sequence[str],
        settings: FinetuningConfig = _DEFAULTS,
        seed: int = 0,
        scheme: str = BIOES,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ):
        self.tags, self.scheme = tuple(tags), scheme
        if len(set(self.tags)) != len(self.tags) or not self.tags:
            raise InputError(
                "tags must be one or more names without repetition",
                f"{self.tags}",
                "Pass the names that tag_vocabulary returns",
            )
        if scheme not in SCHEMES:
            raise InputError(
                f"The scheme of tags must be one of {', '.join(SCHEMES)}",
                repr(scheme),
                "Pass one of them",
            )
        name = name or "token_classifier"
        super().__init__(start, settings, seed, name, dtype, trainable)

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        tags: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        settings: FinetuningConfig | None = None,
        seed: int = 0,
        vocabulary: str | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> "TokenClassifier":
        """Load a saved model, or make one on a pre-trained encoder.

        Args:
            path_or_name: A checkpoint's folder, a run's folder (its newest
                checkpoint), a saved model, which is returned as it is, or the name or
                path of a config, for random weights.
            tags: Their names; for a saved model, None.
            labels: Another name of `tags`.
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
        has_head = preset.has_head(cls, tags, labels)
        head = _tag_names(tags, labels, has_head)
        return preset.build(cls, has_head, **head)

    @property
    def num_outputs(self) -> int:
        """Number of tags."""
        return len(self.tags)

    def make_head(self, seed: int) -> TokenClassificationHead:
        """Create the head, with a logit for each tag."""
        return TokenClassificationHead(self.shape.width, len(self.tags), seed)

    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Return float32 logits [B, L, C]."""
        return self.head(x_BLD)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Return the cross-entropy of the tags at first wordpieces."""
        return tag_loss(outputs, targets, weights_B)

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return tags, logits and weights of all words."""
        weights_BL = tf.broadcast_to(weights_B[:, None], tf.shape(targets))
        rows = targets, outputs, weights_BL
        return tuple(tf.boolean_mask(t, targets != IGNORE_LABEL) for t in rows)

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Encode sentences (lists of words), with a tag for each word.

        A sentence that is too long becomes several examples.
        """
        ids = None if y is None else {tag: n for n, tag in enumerate(self.tags)}
        data, inputs, origins = self.settings.data, [], []
        if y is not None and len(y) != len(x):
            raise InputError(
                "Each sentence must have a list of tags",
                f"{len(x)} sentences and {len(y)} lists of tags",
                "Pass lists of one length",
            )
        for index, words in enumerate(x):
            tags = None if y is None else tuple(y[index])
            sentence = _sentence(words, tags, index)
            parts = features(
                sentence, self.tokenizer, ids, data.max_length, data.tagging_segment
            )
            inputs += parts
            origins += [index] * len(parts)
        targets = None if y is None else [_targets(part) for part in inputs]
        return EncodedExamples(
            [part.ids for part in inputs],
            [part.segments for part in inputs],
            data.max_length,
            targets,
            truncated=sum(part.cut > 0 for part in inputs),
            origins=list(zip(origins, inputs, strict=True)),
            items=origins,
        )

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Return one list of tags for each sentence, in the scheme of the model."""
        learned = self.learned_tags(x, examples, outputs)
        if self.scheme == BIOES:  # also the value for tags that mark no spans
            return learned
        return [to_scheme(tags, self.scheme) for tags in learned]

    def learned_tags(
        self, x: Sequence[Any], examples: EncodedExamples, outputs: list
    ) -> list[list[str]]:
        """Return one list of tags for each sentence, in the scheme of training.

        Args:
            x: The sentences.
            examples: Returned by `examples` for them.
            outputs: The head's outputs for each example.

        Returns:
            Names of `tags`, one for each word.
        """
        by_sentence: list[tuple[list, list]] = [([], []) for _ in x]
        for (index, part), logits_LC in zip(examples.origins, outputs, strict=True):
            by_sentence[index][0].append(part)
            by_sentence[index][1].append(np.argmax(logits_LC, -1))
        return [join(parts, tag_ids, self.tags) for parts, tag_ids in by_sentence]

    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TokenClassifier":
        """Create the same model with other initial weights."""
        return TokenClassifier(start, self.tags, self.settings, seed, self.scheme)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of `from_config`."""
        return super().get_config() | {
            "tags": list(self.tags),
            "scheme": self.scheme,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TokenClassifier":
        """Create a model from its config; the weights are not restored."""
        start, settings = from_saved_config(config)
        scheme = config.get("scheme", BIOES)  # not in files of release 0.1
        model = cls(start, config["tags"], settings, scheme=scheme)
        return model.configured(config)


# `.keras` files of release 0.1 name the class `TextTagger`.
keras.saving.get_custom_objects()["electra_tf>TextTagger"] = TokenClassifier


def _tag_names(
    tags: Sequence[str] | None, labels: Sequence[str] | None, is_saved: bool
) -> dict[str, tuple[str, ...]]:
    """Return the argument `tags` of a tagger; {}: that of the saved model."""
    if is_saved and tags is None and labels is None:
        return {}
    if (tags is None) == (labels is None):
        raise InputError(
            "A tagger must get the names of its tags once, as tags or as labels",
            f"tags={tags}, labels={labels}",
            "Pass tags alone",
        )
    return {"tags": tuple(tags if labels is None else labels)}


def _sentence(words: Any, tags: tuple[str, ...] | None, index: int) -> Sentence:
    """Validate the words and tags of one sentence."""
    sentence = words if isinstance(words, Sentence) else None
    words = words if sentence is None else sentence.words
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InputError(
            "A sentence must be a list of words",
            f"{words!r:.80} at index {index}",
            "Split it: sentence.split()",
        )
    if tags is not None and len(tags) != len(words):
        raise InputError(
            "Each word must have a tag",
            f"{len(words)} words and {len(tags)} tags at index {index}",
            "Pass lists of one length",
        )
    if sentence is not None:
        return dataclasses.replace(sentence, tags=tags)
    return Sentence(tuple(words), tags, "the given sentences", index + 1)


def _targets(part: TaggedInput) -> list[int]:
    """Return tag ids, `IGNORE_LABEL` where no word begins."""
    pairs = zip(part.tags, part.tagged, strict=True)
    return [tag if is_first else IGNORE_LABEL for tag, is_first in pairs]
