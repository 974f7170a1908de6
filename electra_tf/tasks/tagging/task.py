"""Tagging tasks, with one tag for each word: chunks, named entities."""

import collections
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.errors import InputError, listed
from electra_tf.tasks.batching import EncodedExamples
from electra_tf.tasks.data.conll import (
    Sentence,
    find_columns,
    read_conll,
    without_headers,
)
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.tagging.metrics import score_spans, score_tokens
from electra_tf.tasks.tagging.model import TokenClassifier
from electra_tf.tasks.tagging.preprocessing import tag_vocabulary
from electra_tf.tasks.tagging.schemes import (
    BIOES,
    OUTSIDE,
    conlleval_spans,
    is_span_scheme,
    scheme_of,
    to_bioes,
)
from electra_tf.tasks.task import Split, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.data_errors import DataError, DataErrorLog

_SHOWN = 20
_MARKED = re.compile("[A-Z]-.")
_STRAY = 0.01  # a share of tags without a span's mark that is a mistake


class TaggingTask(Task):
    """Tagging task; scored by spans where the tags mark spans.

    Args:
        name: Value of --task.
        parts: By name; items are sentences, targets their tags.
    """

    def __init__(self, name: str, parts: dict[str, Split]):
        self.tags = tag_vocabulary(parts["train"].items)
        self.spans = is_span_scheme(self.tags)
        self.scheme, self._misfits = BIOES, []
        if self.spans:
            self.scheme, self._misfits = scheme_of(parts["train"].targets)
        super().__init__(name, parts, "f1" if self.spans else "accuracy")

    @property
    def label_counts(self) -> str:
        """Counts of the training tags, `55,081 of tag B-NP`, most frequent first."""
        train = self.splits["train"]
        counts = collections.Counter(tag for tags in train.targets for tag in tags)
        words = [f"{n:,} of tag {tag}" for tag, n in counts.most_common()]
        more = [f"and {len(words) - _SHOWN:,} more"] * (len(words) > _SHOWN)
        return ", ".join(words[:_SHOWN] + more)

    @property
    def notes(self) -> list[str]:
        """Lines on the detected scheme and the scoring of the tags."""
        if not self.spans:
            marked = [tag for tag in self.tags if _MARKED.match(tag)]
            odd = [tag for tag in marked if not is_span_scheme({tag})]
            why = "F1 of spans needs tags such as B-NP, I-NP and O"
            if odd and {OUTSIDE, *marked} == {OUTSIDE, *self.tags}:
                why += f"; {listed(odd, 3)} have another mark than B, I, E and S"
            return [f"{self.name}: {len(self.tags):,} tags, scored by accuracy ({why})"]
        lines = [
            f"{self.name}: the tags mark spans, in the scheme {self.scheme}: scored by "
            f"F1 of whole spans, predictions are written in {self.scheme}"
        ]
        if self._misfits:
            odd = self.splits["train"].items[self._misfits[0]]
            lines.append(
                f"{self.name}: {len(self._misfits):,} of "
                f"{len(self.splits['train']):,} sentences have tags that {self.scheme} "
                f"would write otherwise, the first one at {odd.source}:{odd.line}"
            )
        return lines

    def model(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int
    ) -> TextModel:
        """Create a tagger that predicts in the scheme of the training data."""
        return TokenClassifier(start, self.tags, settings, seed, self.scheme)

    def training_examples(self, model: TextModel) -> EncodedExamples:
        """Encode the training sentences."""
        part = self.splits["train"]
        return model.examples(part.items, part.targets)

    def score(self, part: Split, predictions: Any) -> dict[str, float]:
        """Compute the scores of conlleval, or the accuracy of tags."""
        scorer = score_spans if self.spans else score_tokens
        scores = scorer(part.targets, predictions)
        names = ("f1", "precision", "recall", "accuracy")
        return {name: scores[name] for name in names if name in scores}

    def degenerate(self, part: Split, predictions: Any) -> str | None:
        """Describe predictions of one tag only, or of one span per sentence."""
        predicted = {tag for tags in predictions for tag in tags}
        if len(predicted) > 1:
            return self._one_span(predictions)
        if predicted == {OUTSIDE}:
            return "predicts no span"
        return f"always predicts {predicted.pop()}"

    def _one_span(self, predictions: Any) -> str | None:
        """Describe predictions of I-X for all words: one span in each sentence."""
        if not self.spans:
            return None
        kinds = set()
        for tags in filter(len, predictions):
            spans = conlleval_spans(tags)
            if [span[:2] for span in spans] != [(0, len(tags) - 1)]:
                return None
            kinds.add(spans[0].kind)
        return f"always predicts one span of {kinds.pop()}" if len(kinds) == 1 else None

    def write(self, part: Split, predictions: Any, path: str) -> None:
        """Write columns: word, gold tag if there is one, predicted tag."""
        lines = []
        for sentence, tags in zip(part.items, predictions, strict=True):
            gold = [] if sentence.tags is None else [sentence.tags]
            rows = zip(sentence.words, *gold, tags, strict=True)
            lines += [" ".join(row) for row in rows] + [""]
        pathlib.Path(f"{path}.txt").write_text("\n".join(lines) + "\n", "utf-8")


def tagging_task(
    name: str,
    data: str,
    settings: DataConfig,
    log: DataErrorLog,
    tell: Callable[[str], None] = print,
) -> TaggingTask:
    """Read column files.

    Args:
        name: `chunking` or `tagging`.
        data: A folder with train.txt, and perhaps dev.txt and test.txt (or .conll and
            other endings, .gz or .xz); or a file.
        settings: The columns; the share of train that becomes dev without a dev file.
        log: Collects bad lines.
        tell: Called with lines about header lines, the scheme of the tags and dev.

    Returns:
        The task.

    Raises:
        InputError: No such files, a bad line, a file without a usable sentence.
    """
    found = _read(data, settings, log, tell)
    found["train"] = _usable(found["train"], log)
    if "dev" not in found:
        found = _split(found, settings, data)
        tell(
            f"{name}: no dev file; held out as dev: {len(found['dev']):,} of "
            f"{len(found['train']) + len(found['dev']):,} sentences (data.dev_share "
            f"{settings.dev_share:g}, data.split_seed {settings.split_seed})"
        )
    tags = tag_vocabulary(found["train"])
    for part in _without(found, "train"):
        found[part] = [s for s in found[part] if _is_known(s, tags, log)]
        if not found[part]:
            raise InputError(
                f"The training data has the tags of a sentence of {part} or more",
                f"none of them; known: {listed(tags)}",
                "Check that both have the same kind of tags",
            )
    task = TaggingTask(name, {part: _part(s) for part, s in found.items()})
    for line in task.notes:
        tell(line)
    return task


def _read(
    data: str, settings: DataConfig, log: DataErrorLog, tell: Callable[[str], None]
) -> dict[str, list[Sentence]]:
    """Read the files of all parts, without header lines."""
    found = {}
    for part in ("train", "dev", "test"):
        if path := find_columns(data, part):
            columns = settings.word_column, settings.tag_column
            found[part] = read_conll(path, *columns, log, tell=tell)
    if "train" not in found:
        raise InputError(
            "--data is a column file, or a folder with train.txt and perhaps dev.txt "
            "and test.txt (also .conll, .tsv, .bio, .gz, .xz)",
            f"{data!r}, where there is no such file",
            "Check the path",
        )
    found = without_headers(found, tell)
    for part, sentences in found.items():
        if not sentences:
            raise InputError(
                "Each file has one usable sentence or more",
                f"{find_columns(data, part)} with none",
                "Mend what was told of it",
            )
    if settings.word_column == 0 and _numbered(found["train"]):
        raise InputError(
            "The word column holds words",
            f"{found['train'][0].source} with the words '1', '2', ... in each sentence",
            "Name the right columns; for CoNLL-U pass --set data.word_column=1 and "
            "--set data.tag_column=3",
        )
    return found


def _numbered(sentences: list[Sentence]) -> bool:
    """Whether the words of each sentence are its words' numbers, as in CoNLL-U."""
    longer = [s.words for s in sentences if len(s.words) > 1]
    return bool(longer) and all(words[:2] == ("1", "2") for words in longer)


def _usable(sentences: list[Sentence], log: DataErrorLog) -> list[Sentence]:
    """Drop sentences with a tag that marks no span, where nearly all tags do."""
    tags = [tag for sentence in sentences for tag in sentence.tags]
    strays = [tag for tag in tags if not is_span_scheme({tag})]
    mistakes = len(strays) <= max(1, _STRAY * len(tags))
    if not mistakes or set(tags) <= {OUTSIDE, *strays}:
        return sentences
    kept = []
    for sentence in sentences:
        odd = [n for n, t in enumerate(sentence.tags) if not is_span_scheme({t})]
        if not odd:
            kept.append(sentence)
            continue
        detail = f"{sentence.tags[odd[0]]!r}; its sentence not read"
        remedy = (
            "Correct that line, or delete it if it is a header; nearly all other tags "
            "are O, or B, I, E or S with a hyphen and a type"
        )
        where = sentence.source, sentence.line + odd[0]
        log.add(DataError(*where, "a tag that marks no span", detail, remedy))
    if not kept:
        raise InputError(
            "Each file has one usable sentence or more",
            f"{sentences[0].source} with none",
            "Correct its tags",
        )
    return kept


def _split(found: dict[str, Any], settings: DataConfig, data: str) -> dict[str, Any]:
    """Splits dev off."""
    sentences = found["train"]
    draw = np.random.default_rng(settings.split_seed)
    count = max(1, round(len(sentences) * settings.dev_share))
    held_out = set(draw.permutation(len(sentences))[:count].tolist())
    if count >= len(sentences):
        raise InputError(
            "Training data is two sentences or more, where dev is split off it",
            f"{len(sentences)} in {data}",
            "Give more, or a dev file",
        )
    dev = [s for place, s in enumerate(sentences) if place in held_out]
    train = [s for place, s in enumerate(sentences) if place not in held_out]
    return {"train": train, "dev": dev, **_without(found, "train")}


def _is_known(sentence: Sentence, tags: Sequence[str], log: DataErrorLog) -> bool:
    """Whether the training data has all tags of a sentence; tells where not."""
    own = sentence.tags
    if is_span_scheme(tags) and is_span_scheme(own):
        own = to_bioes(own)
    for place, tag in enumerate(own):
        if tag not in tags:
            detail = f"{sentence.tags[place]!r}; its sentence not read"
            remedy = f"Mend it, or add to the training data; known: {listed(tags)}"
            where = sentence.source, sentence.line + place
            log.add(DataError(*where, "a tag training does not have", detail, remedy))
            return False
    return True


def _part(sentences: list[Sentence]) -> Split:
    return Split(sentences, [sentence.tags for sentence in sentences])


def _without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name}
