"""Keras model that predicts a tag for each word: chunks, names, parts of speech."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError, format_list
from electra_tf.model.heads import TokenClassificationHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.data import schemes
from electra_tf.tasks.data.conll import Sentence, as_sentence
from electra_tf.tasks.examples import (
    IGNORE_LABEL,
    EncodedExamples,
    IdRows,
    check_num_targets,
)
from electra_tf.tasks.graph_spans import GraphSpans
from electra_tf.tasks.inputs import to_single_texts
from electra_tf.tasks.labels import LabelIds, names_of
from electra_tf.tasks.losses import Loss, weighted_sums
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.encoding import RaggedRows, to_array, to_list
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CLS, PAD, SEP, UNKNOWN


class Entity(NamedTuple):
    """A span of a text with a type, such as a name."""

    type: str
    """The type in the tags of the span: PER of B-PER."""
    start: int
    """Index of the first character (code point) in the text."""
    end: int
    """Index after the last one."""
    text: str
    """The characters between them, unchanged."""
    score: float
    """Mean probability of the predicted tags of its words."""


class TaggedWords(NamedTuple):
    """Prediction for the words of a sentence."""

    tags: list[str]
    entities: list[Entity] | None
    """Entities of a text; None: the sentence is a list of words."""
    probabilities: np.ndarray
    """Probabilities of the learned tags [W, C]."""


@keras.saving.register_keras_serializable("electra_tf")
class TokenClassifier(TextModel):
    """Token classification model: one tag for each word of a sentence.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        tags: Names of the tags; for spans BIOES tags (see `tag_vocabulary`).
        settings: As for `TextModel`.
        seed: As for `TextModel`.
        scheme: The scheme of the tags that `predict` returns, one of
            `schemes.SCHEMES`; BIOES returns the learned tags unchanged.
        options: `name`, `dtype` and `trainable`, as for `TextModel`.

    Example:
        import electra_tf

        tags = ["O", "S-PER"]
        model = electra_tf.TokenClassifier.from_preset("run", tags=tags)
        sentences = [["Anna", "sings"], ["they", "sing"]] * 8
        model.fit(sentences, [["S-PER", "O"], ["O", "O"]] * 8, epochs=2)
        model.predict([["Anna", "sings"]])  # a list of tags for each sentence
    """

    kind = "token_classifier"
    rate_scale = 2.0
    own_arguments = ("tags", "scheme")
    head_arguments = ("tags",)
    required_argument = "tags"
    metric_kind = "classes"
    input_form = "words"

    def __init__(
        self,
        start: PretrainedEncoder,
        tags: Sequence[str],
        settings: Any = None,
        seed: int = 0,
        scheme: str = schemes.BIOES,
        **options: Any,
    ):
        self.tags = self.output_names = names_of(tags, "tags")
        self.scheme = scheme
        if len(set(self.tags)) != len(self.tags) or not self.tags:
            raise InputError(f"tags must be distinct names, not {self.tags}")
        if scheme not in schemes.SCHEMES:
            raise InputError(f"scheme must be one of {schemes.SCHEMES}, not {scheme!r}")
        super().__init__(start, settings, seed, **options)

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        tags: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        **options: Any,
    ) -> "TokenClassifier":
        """Load a saved model, or create one with a pre-trained encoder.

        Args:
            path_or_name: As for `TextModel.from_preset`.
            tags: Names of the tags, a list or a dictionary as for the labels of
                `TextClassifier`; None: those of the saved model.
            labels: Another name of `tags`.
            options: Other arguments of `TextModel.from_preset`.
        """
        if tags is not None and labels is not None:
            raise InputError(f"labels={labels} and tags={tags} are the same; pass tags")
        tags = labels if tags is None else tags
        if tags is not None:
            options["tags"] = names_of(tags, "tags")
        return super().from_preset(path_or_name, **options)

    def make_head(self, seed: int) -> TokenClassificationHead:
        """Create the head, with a logit for each tag."""
        return TokenClassificationHead(self.shape.width, len(self.tags), seed)

    def head_outputs(
        self, x_BLD: Any, inputs: IdRows, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Return float32 logits [B, L, C]."""
        return self.head(x_BLD)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Return the cross-entropy of the tags at first wordpieces."""
        tagged_BL = tf.cast(targets != IGNORE_LABEL, tf.float32) * weights_B[:, None]
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        losses_BL = cross_entropy(tf.maximum(targets, 0), outputs)
        return weighted_sums(losses_BL, tagged_BL)

    def named_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return `logits` and `probabilities` [B, L, C] and `labels` [B, L]."""
        best_BL = tf.argmax(outputs, -1)
        return {
            "logits": outputs,
            "probabilities": tf.nn.softmax(outputs),
            "labels": tf.gather(tf.constant(self.tags), best_BL),
        }

    def served_metadata(self) -> dict[str, Any]:
        """Return the learned tags, and what else decides the tags of words."""
        segment = self.settings.data.tagging_segment
        return {"labels": list(self.tags), "scheme": self.scheme, "segment": segment}

    def graph_spans(self) -> GraphSpans:
        """Return the graph that finds the spans of tags, for serving."""
        return GraphSpans(self.tags, self.scheme)

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return tags and probabilities of all positions; weights are 0 at no word."""
        is_word_BL = tf.cast(targets != IGNORE_LABEL, weights_B.dtype)
        weights_X = tf.reshape(is_word_BL * weights_B[:, None], [-1])
        probabilities_XC = tf.reshape(tf.nn.softmax(outputs), [-1, len(self.tags)])
        return tf.reshape(targets, [-1]), probabilities_XC, weights_X

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Encode sentences (lists of words), with a tag for each word.

        A sentence that is too long becomes several examples.
        """
        check_num_targets(x, y, "sentences")
        data, origins = self.settings.data, []
        targets: list[list[int]] | None = None if y is None else []
        for index, words in enumerate(x):
            tags = None if y is None else self._tag_names(y[index], index)
            sentence = as_sentence(words, tags, index)
            if targets is not None and data.split_words:
                self._tag_ids(sentence)  # names the line of a wrong tag
                sentence = split_sentence(sentence, self.tokenizer)
            parts = encode_words(sentence.words, self.tokenizer, data.max_length)
            origins += [(index, part) for part in parts]
            if targets is not None:
                gold = self._tag_ids(sentence)
                targets += [part.targets(gold) for part in parts]
        parts = [part for _, part in origins]
        return EncodedExamples(
            RaggedRows.of(
                [part.ids for part in parts], self.tokenizer.vocabulary.ids[PAD]
            ),
            [[data.tagging_segment] * len(part.ids) for part in parts],
            data.max_length,
            targets,
            truncated=sum(part.cut > 0 for part in parts),
            origins=origins,
            items=[index for index, _ in origins],
        )

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Return one list of tags for each sentence, in the scheme of the model."""
        return [found.tags for found in self.decode_details(x, examples, outputs)]

    def entities(self, texts: Any, batch_size: int | None = None) -> list[list[Entity]]:
        """Find the entities of raw texts.

        Words are split as the tokenizer splits them, punctuation apart. Invalid
        sequences of tags are read as the scorer of CoNLL does. Of tags that mark no
        spans, all but O are types of entities.

        Args:
            texts: A list, array or Series of strings.
            batch_size: Examples per batch; None: the settings' value.

        Returns:
            The entities of each text in order.

        Raises:
            InputError: `texts` is one string, or has an element that is not a string.

        Example:
            import electra_tf

            model = electra_tf.TokenClassifier.from_preset("run", tags=["O", "S-PER"])
            model.entities(["Anna sings."])  # [[Entity(type="PER", start=0, end=4, ...
        """
        rows = to_single_texts(texts, "call predict for lists of words")
        split = [split_text(text, self.tokenizer) for text in rows]
        details = self.predict_details(split, self._batch_size(batch_size))
        return [found.entities for found in details]

    def decode_details(
        self, x: Sequence[Any], examples: EncodedExamples, outputs: list
    ) -> list[TaggedWords]:
        """Return tags, entities and probabilities for each element of `x`."""
        parts = [[np.zeros([0, len(self.tags)], np.float32)] for _ in x]
        for (index, part), logits_LC in zip(examples.origins, outputs, strict=True):
            parts[index].append(logits_LC[part.starts])
        predictions, span_tags = [], schemes.as_span_tags(self.tags)
        for sentence, logits_WC in zip(map(as_sentence, x), parts, strict=True):
            logits_WC = np.concatenate(logits_WC)
            best_W, entities = logits_WC.argmax(-1), None
            probabilities_WC = tf.nn.softmax(logits_WC).numpy()
            tags = [self.tags[tag] for tag in best_W]
            if sentence.text is not None:
                spans = [span_tags[tag] for tag in best_W]
                entities = find_entities(sentence, spans, probabilities_WC.max(-1))
            if self.scheme != schemes.BIOES:  # also for tags that mark no spans
                tags = schemes.to_scheme(tags, self.scheme)
            predictions.append(TaggedWords(tags, entities, probabilities_WC))
        return predictions

    def _tag_names(self, row: Sequence[Any], index: int) -> tuple[str, ...]:
        """Return the names of a sentence's tags, which may be written as numbers."""
        tags = to_list(to_array(row))
        if all(isinstance(tag, str) for tag in tags):
            return tuple(tags)
        ids = list(map(LabelIds(self.tags), tags))
        if None in ids:
            raise InputError(
                f"A tag must be one of {format_list(self.tags)}, or a number below "
                f"{len(self.tags)}, not {tags[ids.index(None)]} at index {index}"
            )
        return tuple(self.tags[number] for number in ids)

    def _tag_ids(self, sentence: Sentence) -> list[int]:
        """Return the ids of a sentence's tags; tags of spans in the learned scheme."""
        ids = {tag: index for index, tag in enumerate(self.tags)}
        scheme, tags = None, sentence.tags
        if schemes.is_span_scheme(ids) and schemes.is_span_scheme(tags):
            scheme = schemes.learned_scheme(ids)
            tags = schemes.to_scheme(tags, scheme)
        for word, tag in enumerate(tags):
            if tag not in ids:
                given = sentence.tags[word]
                converted = "" if tag == given else f" ({tag!r} in {scheme})"
                raise InputError(
                    f"{sentence.source}:{sentence.line_of(word)}: the tag {given!r}"
                    f"{converted} is none of the {len(ids)} tags of the model: "
                    f"{format_list(sorted(ids))}"
                )
        return [ids[tag] for tag in tags]


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedWords:
    """One input: [CLS], the wordpieces of consecutive words, [SEP]; not padded."""

    ids: list[int]
    starts: list[int]  # position of the first wordpiece of each word
    words: range  # indices of the words in the sentence
    cut: int  # number of dropped wordpieces of a word that is longer than an input

    def targets(self, gold: Sequence[int]) -> list[int]:
        """Return the tag ids of a sentence's words at their first wordpieces."""
        row = [IGNORE_LABEL] * len(self.ids)
        for position, word in zip(self.starts, self.words, strict=True):
            row[position] = gold[word]
        return row


def encode_words(
    words: Sequence[str], tokenizer: WordPieceTokenizer, max_length: int
) -> list[EncodedWords]:
    """Pack the words of a sentence, each once, into one input or several.

    The first wordpiece of a word represents it, or [UNK] if it has none. A long
    sentence is split between words (the original drops those that do not fit); a word
    longer than an input keeps its first wordpieces.
    """
    vocabulary = tokenizer.vocabulary.ids
    cls, sep, unknown = (vocabulary[name] for name in (CLS, SEP, UNKNOWN))
    room = max_length - 2  # for wordpieces
    inputs, row, starts = [], [cls], []

    def end_at(word: int) -> None:
        """Add the input of the words before one."""
        part, cut = range(word - len(starts), word), max(0, len(row) - 1 - room)
        inputs.append(EncodedWords([*row[: room + 1], sep], starts, part, cut))

    for word, text in enumerate(words):
        pieces = tokenizer.encode(text) or [unknown]
        if starts and len(row) - 1 + len(pieces) > room:
            end_at(word)
            row, starts = [cls], []
        starts.append(len(row))
        row += pieces
    if starts:
        end_at(len(words))
    return inputs


def tag_vocabulary(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Return the tags of a model, sorted; of spans all BIOES tags of each type."""
    vocabulary = {tag for sentence in sentences for tag in sentence.tags}
    if schemes.is_span_scheme(vocabulary):
        kinds = {tag.partition("-")[2] for tag in vocabulary - {schemes.OUTSIDE}}
        vocabulary = {f"{mark}-{kind}" for mark in schemes.MARKS for kind in kinds}
        vocabulary.add(schemes.OUTSIDE)
    return tuple(sorted(vocabulary))


def split_text(text: str, tokenizer: WordPieceTokenizer) -> Sentence:
    """Split a text into words, with `Tokenizer.word_offsets`."""
    offsets = tokenizer.word_offsets(text)
    words = tuple(text[slice(*word)] for word in offsets)
    return Sentence(words, None, "the given texts", 1, text, offsets)


def split_sentence(sentence: Sentence, tokenizer: WordPieceTokenizer) -> Sentence:
    """Split the words of a sentence as those of a text; spans cover the same text."""
    words, tags, firsts = [], [], []
    for word, tag in zip(sentence.words, sentence.tags, strict=True):
        parts = split_text(word, tokenizer).words or (word,)
        firsts.append(len(words))
        words += parts
        tags += [tag] * len(parts)
    if schemes.is_span_scheme(tags):
        firsts.append(len(words))
        spans = [
            span._replace(first=firsts[span.first], last=firsts[span.last + 1] - 1)
            for span in schemes.conlleval_spans(sentence.tags)
        ]
        tags = schemes.write_spans(spans, len(words))
    return Sentence(tuple(words), tuple(tags), sentence.source, sentence.line)


def find_entities(
    split: Sentence, tags: Sequence[str], probabilities: Sequence[float]
) -> list[Entity]:
    """Return the entities of a text, given the span tag of each word and its score."""
    entities = []
    for span in schemes.conlleval_spans(tags):
        start, end = split.offsets[span.first][0], split.offsets[span.last][1]
        score = float(np.mean(probabilities[span.first : span.last + 1]))
        entities.append(Entity(span.kind, start, end, split.text[start:end], score))
    return entities
