"""From what the head says about a question's windows to its answer."""

import dataclasses
import json
import math
import pathlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from electra_tf.errors import InputError
from electra_tf.tasks.squad.preprocessing import QAFeature, split_words
from electra_tf.tasks.squad.reader import Question
from electra_tf.text.normalization import UNIT, CharacterTable
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CONTINUATION, UNKNOWN


@dataclasses.dataclass(frozen=True)
class DecodingConfig:
    """How spans are chosen; the numbers are the original's.

    Args:
        n_best: Answers that are kept and, where the end does not depend on the start,
            starts and ends that are tried.
        max_answer_length: Word pieces an answer may have.
        text: `exact`: the characters that the pieces are made of. `original`: what
            `final_text` finds; where a piece is [UNK], or a character becomes none or
            two, it gives whole words, in a script without spaces the whole paragraph.
    """

    n_best: int = 20
    max_answer_length: int = 30
    text: Literal["exact", "original"] = "exact"

    def __post_init__(self):
        wrong = self.n_best < 1 or self.max_answer_length < 1
        if wrong or self.text not in ("exact", "original"):
            raise InputError(
                "n_best and max_answer_length are 1 or more, text is exact or original",
                f"{self.n_best}, {self.max_answer_length}, {self.text!r}",
                "Leave them out for the original's numbers and exact text",
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One possible answer."""

    text: str
    probability: float
    """Among the candidates that are kept."""
    start_logit: float
    """Log-probability of the start in its window; the bare logit where the end does
    not depend on the start."""
    end_logit: float
    """The same of the end."""


@dataclasses.dataclass(frozen=True, slots=True)
class QAPrediction:
    """What is said about one question."""

    text: str
    """The best text; empty where no span was possible at all."""
    null_odds: float
    """How much speaks for there being no answer; the larger, the more."""
    nbest: tuple[Candidate, ...]
    """Best first."""

    def decided(self, threshold: float | None) -> str:
        """The text, empty where the odds exceed the threshold; None: always the text.

        Args:
            threshold: Of `null_odds`.

        Returns:
            What is said of the question.
        """
        if threshold is not None and self.null_odds > threshold:
            return ""
        return self.text


class _Span(NamedTuple):
    window: QAFeature
    start: int
    end: int
    start_logit: np.float32
    end_logit: np.float32

    @property
    def score(self) -> np.float32:
        return self.start_logit + self.end_logit


def decode_answers(
    question: Question,
    windows: Sequence[QAFeature],
    outputs: Mapping[str, np.ndarray],
    tokenizer: Tokenizer,
    settings: DecodingConfig = DecodingConfig(),
) -> QAPrediction:
    """Chooses among the spans of all windows (the original's qa_metrics.py).

    The odds of no answer are the smallest answerability logit of the windows. A head
    without one gives the score of position 0, smallest over the windows, less that of
    the best span; where its ends depend on the starts, only the start of position 0 is
    known and counts.

    Args:
        question: Whose context the text is taken from.
        windows: All windows of the question.
        outputs: What `SpanHead` returned without right starts, a row for each window.
        tokenizer: What the windows were made with.
        settings: How spans are chosen.

    Returns:
        The answer. Where no span is possible its text is empty (the original writes
        the word `empty`).
    """
    spelling = _Spelling(question.context, tokenizer, settings.text == "exact")
    chosen: dict[str, _Span] = {}
    for span in _spans(windows, outputs, settings):
        if len(chosen) >= settings.n_best:
            break
        text = spelling.text(span)
        chosen.setdefault(text, span)  # an earlier span of the same text is better
    shares = _softmax([float(span.score) for span in chosen.values()])
    nbest = tuple(
        Candidate(text, share, float(span.start_logit), float(span.end_logit))
        for (text, span), share in zip(chosen.items(), shares, strict=True)
    )
    best = next((entry for entry in nbest if entry.text), None)
    odds = _null_score(outputs)
    if "answerable_logit_B" not in outputs and best:
        odds -= best.start_logit + best.end_logit
    return QAPrediction(best.text if best else "", odds, nbest)


def _spans(
    windows: Sequence[QAFeature],
    outputs: Mapping[str, np.ndarray],
    settings: DecodingConfig,
) -> list[_Span]:
    """The possible spans of all windows, best first."""
    spans = []
    for row, window in enumerate(windows):
        for start, end, start_logit, end_logit in _pairs(row, outputs, settings.n_best):
            last = window.piece(end)
            if (
                window.piece(start) is not None
                and last is not None
                and window.max_context[start]
                and 0 <= end - start < settings.max_answer_length
            ):
                spans.append(_Span(window, start, end, start_logit, end_logit))
    return sorted(spans, key=lambda span: span.score, reverse=True)


def _pairs(
    row: int, outputs: Mapping[str, np.ndarray], n_best: int
) -> Iterator[tuple[int, int, np.float32, np.float32]]:
    """Each start with each of its ends, and what the head gives them."""
    if "end_logits_BL" in outputs:
        start_L, end_L = (outputs[f"{at}_logits_BL"][row] for at in ("start", "end"))
        starts_S, ends_K = (
            np.argsort(-logits_L, kind="stable")[:n_best]
            for logits_L in (start_L, end_L)
        )
        for start in starts_S.tolist():
            for end in ends_K.tolist():
                yield start, end, start_L[start], end_L[end]
        return
    starts_S = outputs["start_top_index_BS"][row].tolist()
    ends_SK = outputs["end_top_index_BSK"][row].tolist()
    start_S = outputs["start_top_log_probs_BS"][row]
    end_SK = outputs["end_top_log_probs_BSK"][row]
    for s, start in enumerate(starts_S):
        for k, end in enumerate(ends_SK[s]):
            yield start, end, start_S[s], end_SK[s, k]


def _null_score(outputs: Mapping[str, np.ndarray]) -> float:
    if "answerable_logit_B" in outputs:
        return float(np.min(outputs["answerable_logit_B"]))
    start_BL = outputs["start_logits_BL"].astype(np.float64)
    if "end_logits_BL" in outputs:
        return float(np.min(start_BL[:, 0] + outputs["end_logits_BL"][:, 0]))
    total_B = np.log(np.exp(start_BL - start_BL.max(1, keepdims=True)).sum(1))
    return float(np.min(start_BL[:, 0] - start_BL.max(1) - total_B))


class _Spelling:
    """Spans as they stand in one context, white space as single spaces."""

    def __init__(self, context: str, tokenizer: Tokenizer, exact: bool):
        self._context, self._tokenizer, self._exact = context, tokenizer, exact
        self._characters = CharacterTable(tokenizer.settings)
        self._words: dict[tuple[int, int], list[tuple[int, int]] | None] = {}

    def text(self, span: _Span) -> str:
        """A span's text."""
        first = self._piece(span.window, span.start) if self._exact else None
        last = self._piece(span.window, span.end) if self._exact else None
        if first and last:
            return self._joined(first[0], last[1])
        tokens = self._tokenizer.vocabulary.tokens
        ids = span.window.ids[span.start : span.end + 1]
        pieces = " ".join(tokens[index] for index in ids)
        pieces = pieces.replace(f" {CONTINUATION}", "").replace(CONTINUATION, "")
        words = self._joined(*span.window.characters(span.start, span.end))
        return get_final_text(" ".join(pieces.split()), words, self._characters)

    def _joined(self, first: int, last: int) -> str:
        text = self._context[first:last]
        return " ".join(text[slice(*word)] for word in split_words(text))

    def _piece(self, window: QAFeature, position: int) -> tuple[int, int] | None:
        """The characters of one piece in the context."""
        piece = first = window.piece(position)
        word = window.spans[piece]
        while first and window.spans[first - 1] == word:
            first -= 1
        if word not in self._words:
            text = self._context[slice(*word)]
            self._words[word] = piece_characters(
                text, self._tokenizer, self._characters
            )
        spans = self._words[word]
        if spans is None:
            return None
        start, end = spans[piece - first]
        return word[0] + start, word[0] + end


def piece_characters(
    text: str, tokenizer: Tokenizer, characters: CharacterTable
) -> list[tuple[int, int]] | None:
    """Tells for each piece of a text which characters it is made of.

    Args:
        text: Any text.
        tokenizer: What cuts it into pieces.
        characters: The tokenizer's rules.

    Returns:
        The first character of each piece and the one beyond its last, combining marks
        with the letter before them; None where the rules tell no way back.
    """
    places: list[int] = []  # where each character that WordPiece sees comes from
    words: list[str] = []
    for unit in UNIT.finditer(text):
        words += characters.words(unit.group())
        for place in range(*unit.span()):
            made = characters[ord(text[place])]
            places += [place] * (len(made) - made.count(" "))
    spans, ids, first = [], [], 0
    for word in words:
        own = tokenizer.encode(word)
        tokens = [tokenizer.vocabulary.tokens[index] for index in own]
        lengths = [len(token.removeprefix(CONTINUATION)) for token in tokens]
        if tokens == [UNKNOWN]:
            lengths = [len(word)]
        for length in lengths:
            spans.append((first, first + length))
            first += length
        ids += own
    if first != len(places) or ids != tokenizer.encode(text):
        return None
    return [(places[a], _after(places[b - 1], text)) for a, b in spans]


def _after(place: int, text: str) -> int:
    """The place beyond a character and its combining marks."""
    place += 1
    while place < len(text) and unicodedata.category(text[place]).startswith("M"):
        place += 1
    return place


def get_final_text(predicted: str, original: str, characters: CharacterTable) -> str:
    """Finds what was predicted in the words it was predicted from.

    The original's `get_final_text`: the words are tokenised as the prediction was, and
    if that leaves as many characters as they have, each belongs to one of theirs.

    Args:
        predicted: Word pieces as text, lower-cased and without accents if the
            tokenizer makes it so.
        original: Words of the context.
        characters: The tokenizer's rules.

    Returns:
        The part of `original` that `predicted` stands for; all of it where the two do
        not match.
    """
    units = UNIT.findall(original)
    tokenised = " ".join(word for unit in units for word in characters.words(unit))
    start = tokenised.find(predicted)
    places = [i for i, character in enumerate(original) if character != " "]
    if (
        not predicted
        or start < 0
        or len(places) != len(tokenised) - tokenised.count(" ")
    ):
        return original
    first = start - tokenised.count(" ", 0, start)
    length = len(predicted) - predicted.count(" ")
    return original[places[first] : places[first + length - 1] + 1]


def _softmax(scores: Sequence[float]) -> list[float]:
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def best_threshold(
    null_odds: Mapping[str, float],
    scores: Mapping[str, float],
    has_answer: Mapping[str, bool],
    predictions: Mapping[str, str],
) -> tuple[float, float]:
    """The threshold of the odds that scores best, found as the official script does.

    A question is left unanswered if its odds exceed the threshold. As there, the
    threshold is 0 where answering nothing scores best, and questions of the same odds
    are taken one by one, which flatters the score where odds are often the same.

    Args:
        null_odds: For each question, how much speaks for no answer.
        scores: For each question, exact match or F1 (0 to 1) of its prediction.
        has_answer: For each question, whether it has one.
        predictions: For each question, the text, which may be empty.

    Returns:
        The score that is reached, in percent, and the threshold.
    """
    current = best = float(sum(not has for has in has_answer.values()))
    threshold = 0.0
    for name in sorted(null_odds, key=lambda name: null_odds[name]):
        if name not in scores:
            continue
        if has_answer[name]:
            current += scores[name]
        elif predictions[name]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[name]
    return 100.0 * best / len(scores), threshold


def write_predictions(
    folder: str | pathlib.Path,
    answered: Mapping[str, QAPrediction],
    threshold: float | None = None,
) -> None:
    """Writes `predictions.json`, `null_odds.json` and `nbest.json`, each by id.

    Args:
        folder: Where; it is made if need be.
        answered: For each question's id, what `answers` returned.
        threshold: Odds above it leave a question unanswered, with an empty text; None:
            each is answered (SQuAD 1.1).
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: one.decided(threshold) for name, one in answered.items()}
    contents = {
        "predictions": texts,
        "null_odds": {name: one.null_odds for name, one in answered.items()},
        "nbest": {
            name: [dataclasses.asdict(entry) for entry in one.nbest]
            for name, one in answered.items()
        },
    }
    for name, content in contents.items():
        text = json.dumps(content, indent=2) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
