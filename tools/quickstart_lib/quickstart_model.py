"""Show what the networks of a run do with held-out sentences.

Words are masked, and a proposal of the trained generator replaces each. Two
discriminators, an untrained one and the trained one, get the same text.
"""

import os
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import electra_tf

BEFORE, AFTER = "before", "after"
NUM_SENTENCES, NUM_PROPOSALS = 5, 5
_TOKENS = range(16, 31)  # of a sentence; the records have up to 30
_SHARE = 0.15  # of the words is masked
_CHOICES = 20  # proposals from which the replacement is drawn
_MASK = "[MASK]"

Span = tuple[int, int]


class Piece(NamedTuple):
    space: str  # between the wordpiece before and this one
    text: str
    original: str | None  # the word, if the generator replaced it; at its first piece
    probability: float  # that it was replaced


def make_examples(run: str, lines: Sequence[str]) -> dict[str, Any]:
    """Return sentences with replaced words, and proposals for a word, by stage."""
    trained = electra_tf.Electra.from_preset(run)
    untrained = electra_tf.Electra(trained.settings)
    untrained.build()
    models = {BEFORE: untrained, AFTER: trained}
    tokenizer = trained.encoder.tokenizer
    for model in models.values():
        model.encoder.tokenizer = model.generator.encoder.tokenizer = tokenizer
    rng = random.Random(0)
    sentences, proposals = [], []
    for line in choose_lines(lines, tokenizer):
        spans = choose_words(line, tokenizer, rng)
        masked = _replace(line, spans, [_MASK] * len(spans))[0]
        sentences.append(replaced_words(line, spans, masked, models, rng))
        proposals.append({"masked": masked, "word": line[slice(*spans[0])]})
        for stage, model in models.items():
            first = model.generator.fill_mask(masked, top_k=NUM_PROPOSALS)[0]
            proposals[-1][stage] = [(p.token, p.probability) for p in first]
    return {"sentences": sentences, "proposals": proposals}


def choose_lines(
    lines: Sequence[str], tokenizer: electra_tf.Tokenizer
) -> Sequence[str]:
    sizes = zip(lines, map(len, map(tokenizer.encode, lines)), strict=True)
    fitting = [line for line, n in sizes if n in _TOKENS and _MASK not in line]
    return fitting[:: max(1, len(fitting) // NUM_SENTENCES)][:NUM_SENTENCES]


def choose_words(
    line: str, tokenizer: electra_tf.Tokenizer, rng: random.Random
) -> list[Span]:
    """Return the characters of the words to mask, two at least."""
    spans = tokenizer.word_offsets(line)
    words = [span for span in spans if line[slice(*span)].isalpha()]
    return sorted(rng.sample(words, max(2, round(_SHARE * len(words)))))


def replaced_words(
    line: str,
    spans: Sequence[Span],
    masked: str,
    models: Mapping[str, electra_tf.Electra],
    rng: random.Random,
) -> dict[str, list[Piece]]:
    words = []
    for slot in models[AFTER].generator.fill_mask(masked, top_k=_CHOICES):
        found = [p for p in slot if p.token.isalpha()] or slot
        (drawn,) = rng.choices(found, [p.probability for p in found])
        words.append(drawn.token)
    corrupted, starts = _replace(line, spans, words)
    originals = {}
    for start, span, word in zip(starts, spans, words, strict=True):
        original = line[slice(*span)]
        if word.lower() != original.lower():
            originals[start] = original
    stages: dict[str, list[Piece]] = {}
    for stage, model in models.items():
        end, stages[stage] = 0, []
        for token in model.replaced_tokens([corrupted])[0]:
            space, text = (
                corrupted[end : token.start],
                corrupted[token.start : token.end],
            )
            piece = Piece(space, text, originals.get(token.start), token.probability)
            stages[stage].append(piece)
            end = token.end
    return stages


def _replace(
    line: str, spans: Sequence[Span], words: Sequence[str]
) -> tuple[str, list[int]]:
    text, end, starts = "", 0, []
    for span, word in zip(spans, words, strict=True):
        text += line[end : span[0]]
        starts.append(len(text))
        text, end = text + word, span[1]
    return text + line[end:], starts
