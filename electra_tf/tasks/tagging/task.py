"""Tagging tasks, with one tag for each word: chunks, named entities."""

import collections
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.conll import Sentence, find_columns, without_headers
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.schemes import (
    BIOES,
    OUTSIDE,
    conlleval_spans,
    is_span_scheme,
    scheme_of,
    to_bioes,
)
from electra_tf.tasks.sentences import read_sentences, require_json
from electra_tf.tasks.spelling import other_spelling, several_spellings
from electra_tf.tasks.tag_metrics import score_spans, score_tokens
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.tasks.tagging.preprocessing import tag_vocabulary
from electra_tf.tasks.task import Split, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.data_errors import DataError, DataErrorLog

_SHOWN = 20
_MARKED = re.compile("[A-Z]-.")
_STRAY = 0.01  # up to this share, tags that mark no span are errors


class TaggingTask(Task):
    """Tagging task; scored by spans where the tags mark spans."""

    def __init__(self, name: str, splits: dict[str, Split]):
        self.tags = tag_vocabulary(splits["train"].items)
        self.spans = is_span_scheme(self.tags)
        self.scheme, self._misfits = BIOES, []
        if self.spans:
            self.scheme, self._misfits = scheme_of(splits["train"].targets)
        super().__init__(name, splits, "f1" if self.spans else "accuracy")

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
        train = self.splits["train"]
        counts = collections.Counter(tag for tags in train.targets for tag in tags)
        spellings = several_spellings(counts, "tags", "words")
        lines = [f"{self.name}: warning: {line}" for line in spellings]
        if not self.spans:
            marked = [tag for tag in self.tags if _MARKED.match(tag)]
            odd = [tag for tag in marked if not is_span_scheme({tag})]
            why = "F1 of spans needs tags such as B-NP, I-NP and O"
            if odd and {OUTSIDE, *marked} == {OUTSIDE, *self.tags}:
                why += f"; {format_list(odd, 3)} have another mark than B, I, E and S"
            scoring = f"{len(self.tags):,} tags, scored by accuracy ({why})"
            return [*lines, f"{self.name}: {scoring}"]
        lines.append(
            f"{self.name}: the tags mark spans, in the scheme {self.scheme}: scored by "
            f"F1 of whole spans, predictions are written in {self.scheme}"
        )
        if self._misfits:
            odd = self.splits["train"].items[self._misfits[0]]
            lines.append(
                f"{self.name}: {len(self._misfits):,} of "
                f"{len(self.splits['train']):,} sentences have tags that {self.scheme} "
                f"would write otherwise, the first at {odd.source}:{odd.line}"
            )
        return lines

    def model(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int
    ) -> TextModel:
        """Create a tagger that predicts in the scheme of the training data."""
        return TokenClassifier(start, self.tags, settings, seed, self.scheme)

    def training_examples(self, model: TextModel) -> EncodedExamples:
        """Encode the training sentences."""
        train = self.splits["train"]
        return model.examples(train.items, train.targets)

    def score(self, split: Split, predictions: Any) -> dict[str, float]:
        """Compute the scores of conlleval, or the accuracy of tags."""
        scorer = score_spans if self.spans else score_tokens
        scores = scorer(split.targets, predictions)
        names = ("f1", "precision", "recall", "accuracy")
        return {name: scores[name] for name in names if name in scores}

    def degenerate(self, split: Split, predictions: Any) -> str | None:
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

    def write(self, split: Split, predictions: Any, path: str) -> None:
        """Write columns: word, gold tag if there is one, predicted tag."""
        lines = []
        for sentence, tags in zip(split.items, predictions, strict=True):
            gold = [] if sentence.tags is None else [sentence.tags]
            rows = zip(sentence.words, *gold, tags, strict=True)
            lines += [" ".join(row) for row in rows] + [""]
        pathlib.Path(f"{path}.txt").write_text("\n".join(lines) + "\n", "utf-8")


def tagging_task(
    name: str,
    data: str,
    settings: DataConfig,
    log: DataErrorLog,
    notify: Callable[[str], None] = print,
) -> TaggingTask:
    """Read files of sentences with tags."""
    files = _read(data, settings, log, notify)
    files["train"] = _drop_stray_tags(files["train"], log)
    if "dev" not in files:
        files = _hold_out_dev(files, settings, data)
        notify(
            f"{name}: no dev file; held out as dev: {len(files['dev']):,} of "
            f"{len(files['train']) + len(files['dev']):,} sentences (data.dev_share "
            f"{settings.dev_share:g}, data.split_seed {settings.split_seed})"
        )
    tags = tag_vocabulary(files["train"])
    for split in _without(files, "train"):
        files[split] = [s for s in files[split] if _has_known_tags(s, tags, log)]
        if not files[split]:
            raise InputError(
                f"The tags of {split} must be tags of train",
                f"no sentence of {split} with known tags only; known: "
                f"{format_list(tags)}",
                f"Write the tags of {split} as those of train, or name other columns",
            )
    task = TaggingTask(
        name,
        {
            split: Split(sentences, [s.tags for s in sentences])
            for split, sentences in files.items()
        },
    )
    for line in task.notes:
        notify(line)
    return task


def _read(
    data: str, settings: DataConfig, log: DataErrorLog, notify: Callable[[str], None]
) -> dict[str, list[Sentence]]:
    """Read the files of all splits, without header lines."""
    files = {}
    path = find_columns(data, "train")
    if path and (settings.text_columns or settings.label_column or settings.tag_names):
        require_json(path)
    for split in ("train", "dev", "test"):
        if path := find_columns(data, split):
            files[split] = read_sentences(path, settings, log, notify)
    if "train" not in files:
        raise InputError(
            "--data must be a file of sentences, or a folder with train.txt and "
            "optionally dev.txt and test.txt (also .conll, .tsv, .bio, .jsonl, .gz, "
            ".xz)",
            f"{data!r} without train",
            "Check the path, or rename the file of the training data to train.txt (or "
            "train with its own suffix)",
        )
    files = without_headers(files, notify)
    for split, sentences in files.items():
        if not sentences:
            raise InputError(
                "Each file must have one or more valid sentences",
                f"{find_columns(data, split)} with none",
                "Correct the reported errors",
            )
    if settings.word_column == 0 and _has_word_numbers(files["train"]):
        raise InputError(
            "The word column must contain words",
            f"{files['train'][0].source} with the words '1', '2', ... in each sentence",
            "Set the right columns; for CoNLL-U pass --set data.word_column=1 and "
            "--set data.tag_column=3",
        )
    return files


def _has_word_numbers(sentences: list[Sentence]) -> bool:
    """Return whether the words are the word numbers of CoNLL-U."""
    longer = [s.words for s in sentences if len(s.words) > 1]
    return bool(longer) and all(words[:2] == ("1", "2") for words in longer)


def _drop_stray_tags(sentences: list[Sentence], log: DataErrorLog) -> list[Sentence]:
    """Drop sentences with a tag that marks no span, if nearly all tags mark spans."""
    tags = [tag for sentence in sentences for tag in sentence.tags]
    strays = [tag for tag in tags if not is_span_scheme({tag})]
    are_errors = len(strays) <= max(1, _STRAY * len(tags))
    if not are_errors or set(tags) <= {OUTSIDE, *strays}:
        return sentences
    valid = []
    for sentence in sentences:
        odd = [n for n, t in enumerate(sentence.tags) if not is_span_scheme({t})]
        if not odd:
            valid.append(sentence)
            continue
        detail = f"{sentence.tags[odd[0]]!r}; its sentence is dropped"
        remedy = (
            "Correct that line, or delete it if it is a header; nearly all other tags "
            "are O, or B, I, E or S with a hyphen and a type"
        )
        where = sentence.source, sentence.line_of(odd[0])
        log.add(DataError(*where, "a tag that marks no span", detail, remedy))
    if not valid:
        raise InputError(
            "Each file must have one or more valid sentences",
            f"{sentences[0].source} with none",
            "Correct its tags",
        )
    return valid


def _hold_out_dev(
    files: dict[str, list[Sentence]], settings: DataConfig, data: str
) -> dict[str, list[Sentence]]:
    """Move a random share of train to dev."""
    sentences = files["train"]
    rng = np.random.default_rng(settings.split_seed)
    count = max(1, round(len(sentences) * settings.dev_share))
    held_out = set(rng.permutation(len(sentences))[:count].tolist())
    if count >= len(sentences):
        raise InputError(
            "Training data without a dev file must have two or more sentences",
            f"{len(sentences)} in {data}",
            "Add sentences, or a dev file",
        )
    dev = [s for index, s in enumerate(sentences) if index in held_out]
    train = [s for index, s in enumerate(sentences) if index not in held_out]
    return {"train": train, "dev": dev, **_without(files, "train")}


def _has_known_tags(sentence: Sentence, tags: Sequence[str], log: DataErrorLog) -> bool:
    """Return whether train has all tags of a sentence; report one that it lacks."""
    converted = sentence.tags
    if is_span_scheme(tags) and is_span_scheme(converted):
        converted = to_bioes(converted)
    for index, tag in enumerate(converted):
        if tag not in tags:
            tag = sentence.tags[index]
            detail = f"{tag!r}{other_spelling(tag, tags)}; its sentence is dropped"
            known = format_list(tags)
            remedy = f"Correct it, or add it to the training data; known: {known}"
            where = sentence.source, sentence.line_of(index)
            log.add(DataError(*where, "a tag training does not have", detail, remedy))
            return False
    return True


def _without(files: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in files.items() if key != name}
