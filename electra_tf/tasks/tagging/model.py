"""The model that tags words: chunks, names, parts of speech."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.model.heads import TokenClassificationHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.batching import IGNORE_LABEL, EncodedExamples, Inputs
from electra_tf.tasks.data.conll import Sentence
from electra_tf.tasks.losses import Loss, tag_loss
from electra_tf.tasks.pretrained import PretrainedEncoder, from_saved_config
from electra_tf.tasks.tagging.preprocessing import TaggedInput, features, join
from electra_tf.tasks.tagging.schemes import BIOES, SCHEMES, to_scheme
from electra_tf.tasks.text_model import TextModel

_DEFAULTS = FinetuningConfig()


@keras.saving.register_keras_serializable("electra_tf")
class TokenClassifier(TextModel):
    """Gives each word of a sentence a tag.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        tags: Their names; for spans BIOES tags (see `tagging_features.tag_vocabulary`).
        settings: All of fine-tuning.
        seed: Decides the head's weights, dropout and the order of the examples.
        scheme: The scheme of the tags that `predict` returns, one of `spans.SCHEMES`;
            BIOES returns the learned tags as they are.
    """

    takes_pairs = False

    def __init__(
        self,
        start: PretrainedEncoder,
        tags: Sequence[str],
        settings: FinetuningConfig = _DEFAULTS,
        seed: int = 0,
        scheme: str = BIOES,
    ):
        self.tags, self.scheme = tuple(tags), scheme
        if len(set(self.tags)) != len(self.tags) or not self.tags:
            raise InputError(
                "A tagger is told its tags, each once",
                f"{self.tags}",
                "Pass what tagging_features.tag_vocabulary returns",
            )
        if scheme not in SCHEMES:
            raise InputError(
                f"The scheme of tags must be one of {', '.join(SCHEMES)}",
                repr(scheme),
                "Pass one of them",
            )
        super().__init__(start, settings, seed, "token_classifier")

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: str,
        tags: Sequence[str],
        settings: FinetuningConfig = _DEFAULTS,
        seed: int = 0,
    ) -> "TokenClassifier":
        """A tagger on a pre-trained encoder.

        Args:
            checkpoint: A folder that pretrain wrote.
            tags: Their names.
            settings: All of fine-tuning.
            seed: Decides the head's weights, dropout and the order of the examples.

        Returns:
            A model whose head is not trained yet.
        """
        return cls(PretrainedEncoder.open(checkpoint), tags, settings, seed)

    def make_head(self, seed: int) -> TokenClassificationHead:
        """A logit for each tag."""
        return TokenClassificationHead(self.shape.width, len(self.tags), seed)

    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """float32 logits [B, L, C]."""
        return self.head(x_BLD)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Cross-entropy of each word's tag."""
        return tag_loss(outputs, targets, weights_B)

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Sentences (lists of words), with a tag for each word.

        A sentence that is too long becomes several examples.
        """
        ids = None if y is None else {tag: n for n, tag in enumerate(self.tags)}
        data, made, origins = self.settings.data, [], []
        if y is not None and len(y) != len(x):
            raise InputError(
                "There is a list of tags for each sentence",
                f"{len(x)} sentences and {len(y)} lists of tags",
                "Pass lists of one length",
            )
        for place, words in enumerate(x):
            tags = None if y is None else tuple(y[place])
            sentence = _sentence(words, tags, place)
            longest, segment = data.max_length, data.tagging_segment
            parts = features(sentence, self.tokenizer, ids, longest, segment)
            made += parts
            origins += [place] * len(parts)
        targets = None if y is None else [_targets(part) for part in made]
        return EncodedExamples(
            [part.ids for part in made],
            [part.segments for part in made],
            data.max_length,
            targets,
            truncated=sum(part.cut > 0 for part in made),
            origins=list(zip(origins, made, strict=True)),
            items=origins,
        )

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """One list of tags for each sentence, in its scheme."""
        learned = self.learned_tags(x, examples, outputs)
        if self.scheme == BIOES:  # or tags that mark no spans
            return learned
        return [to_scheme(tags, self.scheme) for tags in learned]

    def learned_tags(
        self, x: Sequence[Any], examples: EncodedExamples, outputs: list
    ) -> list[list[str]]:
        """Return one list of tags for each sentence, in the scheme of training.

        Args:
            x: The sentences.
            examples: What `examples` made of them.
            outputs: The head's outputs for each example.

        Returns:
            Names of `tags`, one for each word.
        """
        found: list[tuple[list, list]] = [([], []) for _ in x]
        for (place, part), logits_LC in zip(examples.origins, outputs, strict=True):
            found[place][0].append(part)
            found[place][1].append(np.argmax(logits_LC, -1))
        return [join(parts, said, self.tags) for parts, said in found]

    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TokenClassifier":
        """The same with other initial weights."""
        return TokenClassifier(start, self.tags, self.settings, seed, self.scheme)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` takes."""
        return super().get_config() | {
            "tags": list(self.tags),
            "scheme": self.scheme,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TokenClassifier":
        """An equal model, but for its weights."""
        start, settings = from_saved_config(config)
        scheme = config.get("scheme", BIOES)  # models of 0.1 have none
        model = cls(start, config["tags"], settings, scheme=scheme)
        return model.configured(config)


# `.keras` files of release 0.1 name the class `TextTagger`.
keras.saving.get_custom_objects()["electra_tf>TextTagger"] = TokenClassifier


def _sentence(words: Any, tags: tuple[str, ...] | None, place: int) -> Sentence:
    sentence = words if isinstance(words, Sentence) else None
    words = words if sentence is None else sentence.words
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InputError(
            "A sentence is a list of words",
            f"{words!r:.80} at place {place}",
            "Split it: sentence.split()",
        )
    if tags is not None and len(tags) != len(words):
        raise InputError(
            "Every word has a tag",
            f"{len(words)} words and {len(tags)} tags at place {place}",
            "Give lists of one length",
        )
    if sentence is not None:
        return dataclasses.replace(sentence, tags=tags)
    return Sentence(tuple(words), tags, "the given sentences", place + 1)


def _targets(part: TaggedInput) -> list[int]:
    pairs = zip(part.tags, part.tagged, strict=True)
    return [tag if asked else IGNORE_LABEL for tag, asked in pairs]
