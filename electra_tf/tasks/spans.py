"""Decode the answer of a question from the outputs for its windows."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from electra_tf.config.finetuning import TaskModelConfig
from electra_tf.tasks.data.squad_json import Question
from electra_tf.tasks.windows import QAFeature, split_words
from electra_tf.text.tokenizer import WordPieceTokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate answer; its logits are log-probabilities in joint prediction."""

    text: str
    probability: float
    """Probability among the candidates of the question."""
    start_logit: float
    end_logit: float


@dataclasses.dataclass(frozen=True, slots=True)
class QAPrediction:
    """Prediction for one question."""

    text: str
    """Text of the best span; empty if no span is valid."""
    null_odds: float
    """Score of no answer; larger is more likely."""
    nbest: tuple[Candidate, ...]
    """Candidates, best first."""

    def answer_text(self, threshold: float | None) -> str:
        """Return the text, or an empty string where `null_odds` exceeds a threshold."""
        if threshold is not None and self.null_odds > threshold:
            return ""
        return self.text


def decode_answers(
    question: Question,
    windows: Sequence[QAFeature],
    outputs: Sequence[Mapping[str, np.ndarray]],
    tokenizer: WordPieceTokenizer,
    settings: TaskModelConfig = TaskModelConfig(),
) -> QAPrediction:
    """Choose the answer among the spans of all windows; its text is empty without any.

    `outputs`: those of `SpanHead` for each window, without the axis of the batch.
    `null_odds` is the smallest answerability logit of the windows; without that logit
    the smallest score of position 0 (in joint prediction of its start alone) minus the
    score of the best span. The original's qa_metrics.py returns the word `empty` where
    no span is valid, and whole words where it cannot match wordpieces.
    """
    context, offsets = question.context, tokenizer.piece_offsets(question.context)
    best_spans: dict[str, tuple[np.float32, np.float32]] = {}
    for window, first, last, *logits in _valid_spans(windows, outputs, settings):
        if len(best_spans) >= settings.n_best:
            break
        start, end = offsets[window.piece(first)][0], offsets[window.piece(last)][1]
        text = context[start:end]
        text = " ".join(text[slice(*word)] for word in split_words(text))
        best_spans.setdefault(text, logits)  # spans are sorted by score
    scores = [float(start + end) for start, end in best_spans.values()]
    powers = [math.exp(score - max(scores)) for score in scores]
    nbest = tuple(
        Candidate(text, power / sum(powers), *map(float, logits))
        for power, (text, logits) in zip(powers, best_spans.items(), strict=True)
    )
    best = next((candidate for candidate in nbest if candidate.text), None)
    odds = float(np.min(list(map(_null_score, outputs))))
    if "answerable_logit_B" not in outputs[0] and best:
        odds -= best.start_logit + best.end_logit
    return QAPrediction(best.text if best else "", odds, nbest)


def _valid_spans(
    windows: Sequence[QAFeature],
    outputs: Sequence[Mapping[str, np.ndarray]],
    settings: TaskModelConfig,
) -> list[tuple[QAFeature, int, int, np.float32, np.float32]]:
    """Return window, positions and logits of the valid spans, best first."""
    spans = [
        (window, start, end, *logits)
        for window, output in zip(windows, outputs, strict=True)
        for start, end, *logits in _pairs(output, settings.n_best)
        if window.piece(start) is not None
        and window.piece(end) is not None
        and window.max_context[start]
        and 0 <= end - start < settings.max_answer_length
    ]
    return sorted(spans, key=lambda span: span[3] + span[4], reverse=True)


def _pairs(
    output: Mapping[str, np.ndarray], n_best: int
) -> Iterator[tuple[int, int, np.float32, np.float32]]:
    """Yield start, end and their logits for each start and each of its ends."""
    if "end_logits_BL" in output:
        start_L, end_L = output["start_logits_BL"], output["end_logits_BL"]
        starts_S, ends_K = (
            np.argsort(-side_L, kind="stable")[:n_best] for side_L in (start_L, end_L)
        )
        for start in starts_S.tolist():
            for end in ends_K.tolist():
                yield start, end, start_L[start], end_L[end]
        return
    starts_S = output["start_top_index_BS"].tolist()
    ends_SK = output["end_top_index_BSK"].tolist()
    start_S = output["start_top_log_probs_BS"]
    end_SK = output["end_top_log_probs_BSK"]
    for s, start in enumerate(starts_S):
        for k, end in enumerate(ends_SK[s]):
            yield start, end, start_S[s], end_SK[s, k]


def _null_score(output: Mapping[str, np.ndarray]) -> np.floating:
    """Return the score of no answer in a window."""
    if "answerable_logit_B" in output:
        return output["answerable_logit_B"]
    start_L = output["start_logits_BL"].astype(np.float64)
    if "end_logits_BL" in output:
        return start_L[0] + output["end_logits_BL"][0]
    total = np.log(np.exp(start_L - start_L.max()).sum())
    return start_L[0] - start_L.max() - total
