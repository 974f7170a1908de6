"""Score texts with the main network of a pre-trained model."""

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf import sources
from electra_tf.config.objectives import Scoring
from electra_tf.errors import InputError, format_list
from electra_tf.interop.keras_networks import load_networks
from electra_tf.model.electra import ElectraPair, MaskedLMPair
from electra_tf.pretraining.objectives.all_tokens_mlm import log_mixture
from electra_tf.pretraining.vocabulary_softmax import log_probabilities
from electra_tf.tasks.data.files import opened
from electra_tf.tasks.data.table import cell_text, json_text
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.tokenizer import Tokenizer
from electra_tf.text.checks import UnknownCounter
from electra_tf.text.encoding import RaggedRows
from electra_tf.text.files import HEAD_BYTES, check_markup, inner_suffix
from electra_tf.text.lines import OpenFile, numbered_lines
from electra_tf.text.rows import READERS, TEXT, RowBatch, begins_json, read_rows
from electra_tf.text.vocab import CLS, MASK, SEP

RULES: dict[Scoring, str] = {
    "pseudo_log_likelihood": "pseudo-log-likelihood: the sum of log p(token), each "
    "token masked in turn, all others visible",
    "log_probability": "log-probability: the sum of log p(token) on the unmasked text, "
    "in one pass",
    "log_original": "originality: the sum of log P(original) of the discriminator, in "
    "one pass; not a likelihood",
    "negative_energy": "negative energy: minus the sum of the energies, in one pass; "
    "not normalised",
}
"""Rules of scoring with their descriptions."""
_LINES = 1 << 10  # that are read at once


class TextScore(NamedTuple):
    """Score of a text."""

    score: float
    """Sum over its tokens; larger is better."""
    tokens: int
    """Number of its wordpieces, without special tokens."""


@dataclasses.dataclass(frozen=True)
class TextScorer:
    """Scorer of texts by the rule of the objective that a model was trained with.

    Example:
        import electra_tf

        scorer = electra_tf.TextScorer.from_preset("run")
        scorer.rule  # such as "pseudo_log_likelihood"
        scorer.score(["The cat sat.", "The cat sit."])  # [TextScore(...), ...]
    """

    rule: Scoring
    """One of `RULES`."""
    tokenizer: Tokenizer
    max_tokens: int
    """Wordpieces of a text, at most."""
    token_scores: Callable[..., tf.Tensor]
    """Function of ids, padding mask and positions to score; float32 of the ids' or the
    positions' shape."""
    batch_size: int = 32
    """Rows that are computed together."""
    window: int = 8192
    """Texts that are sorted by length together."""

    @functools.cached_property
    def unknown(self) -> UnknownCounter:
        """Counter of the [UNK] of all scored texts."""
        return UnknownCounter(self.tokenizer)

    @classmethod
    def from_preset(cls, path: str | os.PathLike, batch_size: int = 32) -> "TextScorer":
        """Load a pre-trained model.

        Args:
            path: A checkpoint, a run, or a model of another library.
            batch_size: Rows that are computed together.

        Returns:
            A scorer.

        Raises:
            InputError: The model has no head to score with, or no update of the
                discriminator.
        """
        source = sources.open_pretrained(path)
        run = source.run
        model = load_networks(run)
        run.check_discriminator()
        tokenizer = Tokenizer.of(run.tokenizer)
        rule = run.config.objective.scoring
        mask = tokenizer.vocabulary.ids[MASK]
        scores = _token_scores(model, rule, mask)
        limit = run.config.model.max_positions - 2
        return cls(rule, tokenizer, limit, tf.function(scores), batch_size)

    def score(
        self, texts: Iterable[str], names: Callable[[int], str] = "text {}".format
    ) -> list[TextScore]:
        """Score texts.

        Args:
            texts: One or more.
            names: Function that names a text by its index, for messages.

        Returns:
            A score for each text.

        Raises:
            InputError: A text has no tokens, or more than the model has positions.
        """
        results: list[TextScore] = []
        iterator = enumerate(texts)
        while window := list(itertools.islice(iterator, self.window)):
            rows = [self._encode(text, names(index)) for index, text in window]
            self.unknown.add(rows)
            totals = np.zeros(len(rows))
            for owners, values in self._batches(rows):
                np.add.at(totals, owners, values)
            results += map(TextScore, map(float, totals), (len(r) for r in rows))
        return results

    def _encode(self, text: str, name: str) -> list[int]:
        ids = self.tokenizer.encode(text)
        if not 0 < len(ids) <= self.max_tokens:
            raise InputError(
                f"{name} must have 1 to {self.max_tokens} tokens, not {len(ids)}: "
                f"{text[:60]!r}"
            )
        return ids

    def _batches(
        self, rows: Sequence[list[int]]
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yield scores with the indices of the rows that they belong to."""
        ids, length = self.tokenizer.vocabulary.ids, self.max_tokens + 2
        framed = RaggedRows.of([[ids[CLS], *row, ids[SEP]] for row in rows])
        segments = RaggedRows(np.zeros_like(framed.values), framed.lengths)
        examples = EncodedExamples(framed, segments, length)
        masks_each = self.rule == "pseudo_log_likelihood"
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        items = (
            (i, t + 1) for i in order for t in range(len(rows[i]) if masks_each else 1)
        )
        while batch := list(itertools.islice(items, self.batch_size)):
            owners, positions = zip(*batch, strict=True)
            inputs, _, _ = examples.batch(owners, self.batch_size)
            positions_B1 = np.zeros((self.batch_size, 1), np.int32)
            positions_B1[: len(batch), 0] = positions
            mask_BL = inputs["padding_mask"]
            scores = self.token_scores(inputs["token_ids"], mask_BL, positions_B1)
            scores = scores.numpy().astype(np.float64)
            if not masks_each:
                ends = (len(rows[i]) + 1 for i in owners)
                scores = [row[1:end] for row, end in zip(scores, ends, strict=False)]
            sums = [row.sum() for row in scores[: len(batch)]]
            yield list(owners), np.array(sums)


def score_lines(
    scorer: TextScorer, source: str | None, form: str = "text"
) -> Iterator[str]:
    """Score each line of a file, or each row of its column `text`; yield a line."""
    for places, texts in _read(source):
        scores = scorer.score(texts, places.__getitem__)
        for text, (score, tokens) in zip(texts, scores, strict=True):
            if form == "text":
                line = re.sub("[\r\n]+", " ", text)
                yield f"{score:.4f}\t{line}"
            else:
                values = {"text": text, "score": score, "tokens": tokens}
                yield json_text(values | {"rule": scorer.rule})


def _read(source: str | None) -> Iterator[tuple[list[str], list[str]]]:
    """Yield places and texts of rows."""
    with opened(source) as file:
        suffix, head = inner_suffix(file.path), file.file.peek(HEAD_BYTES)
        check_markup(file.path, suffix, head)
        has_rows = suffix in READERS or head.startswith(b'{"')  # of objects
        for numbers, columns in read_rows(file) if has_rows else _lines(file):
            if TEXT not in columns:
                names = format_list(columns, 30)
                raise InputError(
                    f"{file.path} must have the column {TEXT!r}, and has {names}"
                )
            places = [f"{file.path}:{number}" for number in numbers]
            yield places, list(map(cell_text, columns[TEXT]))


def _lines(file: OpenFile) -> Iterator[RowBatch]:
    """Yield the lines of a file of texts, of which some may look like JSON."""
    lines = numbered_lines(file)
    while batch := list(itertools.islice(lines, _LINES)):
        numbers, texts = zip(*batch, strict=True)
        if numbers[0] == 1 and begins_json(texts[0]):
            raise InputError(
                f"{file.path}:1 begins JSON, and must be a line of text: "
                f"{texts[0]!r:.60}; name JSON .jsonl or .json"
            )
        yield numbers, {TEXT: texts}


def _token_scores(model: Any, rule: Scoring, mask: int) -> Callable[..., tf.Tensor]:
    """Return the function that computes the scores of tokens by a rule."""

    def mask_one(ids_BL, mask_BL, positions_B1):
        rows = tf.range(tf.shape(ids_BL)[0])[:, None]
        where_BX = tf.concat([rows, positions_B1], 1)
        labels_B1 = tf.gather_nd(ids_BL, where_BX)[:, None]
        masked_BL = tf.tensor_scatter_nd_update(
            ids_BL, where_BX, tf.fill([tf.shape(ids_BL)[0]], mask)
        )
        logits_B1V = model(masked_BL, tf.zeros_like(ids_BL), mask_BL, positions_B1)
        return tf.gather(tf.nn.log_softmax(logits_B1V), labels_B1, batch_dims=2)

    def read_whole(ids_BL, mask_BL, positions_B1):
        del positions_B1  # all tokens are scored
        x_BLD = model.encoder(ids_BL, tf.zeros_like(ids_BL), mask_BL)
        ids_X = tf.reshape(ids_BL, [-1])
        scores_X = log_probabilities(
            model.main.head.outputs(x_BLD),
            tf.convert_to_tensor(model.encoder.embeddings.word_embeddings),
            model.main.head.logit_bias,
            ids_X,
            ids_X,
        ).label_X
        if model.gate is not None:
            gate_X = tf.reshape(model.gate(x_BLD), [-1])
            scores_X = log_mixture(gate_X, scores_X, tf.ones_like(ids_X, tf.bool))
        return tf.reshape(scores_X, ids_BL.shape)

    def discriminate(ids_BL, mask_BL, positions_B1):
        del positions_B1  # all tokens are scored
        logits_BL = model.discriminator(ids_BL, tf.zeros_like(ids_BL), mask_BL)
        if rule == "negative_energy":
            return -logits_BL
        return tf.math.log_sigmoid(-logits_BL)

    if isinstance(model, MaskedLMPair):
        return read_whole
    return discriminate if isinstance(model, ElectraPair) else mask_one
