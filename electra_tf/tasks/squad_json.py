"""Read questions from SQuAD's JSON, versions 1.1 and 2.0, and from flat records.

A flat record is one question with its context, as the library `datasets` writes SQuAD.
"""

import collections
import dataclasses
import os
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.split_column import unused_split_column
from electra_tf.tasks.split_files import find_split
from electra_tf.tasks.tables import print_note, read_json
from electra_tf.text import compression
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.json_records import SUFFIXES, describe_json

STEMS = {"squad1": "-v1.1", "squad2": "-v2.0"}
"""Suffixes of `train` and `dev` in the names of the published files."""

_NEVER_BLANK = ("id", "question", "context")
_FLAT = frozenset(["question", "context"])  # keys of a question that is a record
_KINDS = {str: "a string", list: "a list", int: "an integer", bool: "true or false"}


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """One gold answer."""

    text: str
    start: int
    """Index of its first character in the context; -1 if the context lacks the text.
    Such an answer counts in scores but not in training."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One question on one paragraph."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    """Gold answers; empty for an impossible or unlabelled question."""
    impossible: bool
    """Whether the context does not answer it (SQuAD 2.0)."""
    title: str
    """Title of the article; may be empty."""
    source: str
    """Name of the file."""
    record: int
    """Number of the question in the file, from 1."""

    @property
    def located(self) -> tuple[Answer, ...]:
        """Return the answers whose offset is right."""
        return tuple(
            a for a in self.answers if _occurs_at(a.text, a.start, self.context)
        )

    @property
    def trainable(self) -> bool:
        """Return whether a model can be trained on the question."""
        return self.impossible or bool(self.located)


def _occurs_at(text: str, start: int, context: str) -> bool:
    return bool(text.strip()) and start >= 0 and context.startswith(text, start)


def read_squad(
    path: str | pathlib.Path,
    log: DataErrorLog,
    notify: Callable[[str], None] = print_note,
) -> list[Question]:
    """Read a file in SQuAD's layout, or flat records; plain, .gz or .xz.

    A flat record has id, question, context and optionally title and answers with lists
    of text and answer_start; records are lines, a list, or the list under `data`.
    A question without the key `answers` is unlabelled; it serves for prediction only.
    The kinds of errors are `missing_key`, `wrong_type`, `blank`, `duplicate_id`,
    `no_answers`, `impossible_with_answers`, `blank_answer`, `offset` (the context has
    the text elsewhere or not at all) and `no_offset` (-1, which marks free-form answers
    in CMRC 2018).
    """
    if (suffix := compression.inner_suffix(str(path))) in (".csv", ".tsv"):
        raise InputError(
            "A file of questions must be JSON, .json or .jsonl",
            f"{path}, a {suffix} file",
            "Write each question to a .jsonl as an object with id, question, context "
            "and answers, a list of text and one of answer_start",
        )
    articles = _articles(str(path), log)
    records = [article for article in articles if isinstance(article, dict)]
    if unused := unused_split_column(records, (*_NEVER_BLANK, "title")):
        notify(
            f"warning: {path}: {unused!r} holds names of splits, but is not used: "
            "write each split to a file, train.jsonl, dev.jsonl and test.jsonl"
        )
    return list(_Reader(str(path), log).questions(articles))


class _IgnoreOffsetsLog(DataErrorLog):
    """Log that stops at the first error but ignores wrong answer offsets."""

    def __init__(self):
        super().__init__("stop", "", "A file of questions must have SQuAD's layout")

    def add(self, error: DataError) -> None:
        if error.kind not in ("offset", "no_offset"):
            super().add(error)


def read_squad_ignoring_offsets(
    path: str | pathlib.Path, notify: Callable[[str], None] = print_note
) -> list[Question]:
    """Read a file for prediction or scoring, which do not depend on answer offsets."""
    return read_squad(path, _IgnoreOffsetsLog(), notify)


def find_squad(folder: str, split: str, task: str) -> str | None:
    """Find the file of a split.

    Returns:
        Path of the file; None if there is none.
    """
    published = os.path.join(folder, f"{split}{STEMS[task]}.json")
    for suffix in compression.SUFFIXES:
        if os.path.isfile(published + suffix):
            return published + suffix
    return find_split(folder, split, SUFFIXES)


def drop_untrainable(
    questions: Sequence[Question], log: DataErrorLog
) -> list[Question]:
    """Drop answerable questions without an answer in their context."""
    trainable = []
    for question in questions:
        if question.trainable:
            trainable.append(question)
            continue
        log.add(
            DataError(
                f"{question.source}, question {question.id}",
                0,
                "untrainable",
                "its context has none of its answers; left out of training",
                "Correct the answers, or remove the question",
            )
        )
    return trainable


def split_by_article(
    questions: Sequence[Question], share: float, seed: int
) -> tuple[list[Question], list[Question]]:
    """Split questions into train and dev so that each article is in one of them.

    Args:
        questions: Questions in any order. Each context is an article if there are not
            several titles.
        share: Approximate share of the questions for dev, between 0 and 1: whole
            articles in random order are added until it is reached.
        seed: Seed of the order of the articles.

    Returns:
        (train, dev), each in the given order.
    """
    has_titles = len({question.title for question in questions}) > 1

    def article_of(question: Question) -> str:
        return (has_titles and question.title) or question.context

    sizes = collections.Counter(map(article_of, questions))
    if len(sizes) < 2 or not 0 < share < 1:
        raise InputError(
            "A split by article must have two or more articles and 0 < data.dev_share "
            "< 1",
            f"{len(sizes)} articles, data.dev_share {share}",
            "Pass a folder with train.json and dev.json"
            if len(sizes) < 2
            else "Change data.dev_share",
        )
    articles = list(sizes)
    random.Random(seed).shuffle(articles)
    dev_articles: set[str] = set()
    count = 0
    for article in articles[:-1]:
        if count >= share * len(questions):
            break
        dev_articles.add(article)
        count += sizes[article]
    train = [q for q in questions if article_of(q) not in dev_articles]
    return train, [q for q in questions if article_of(q) in dev_articles]


def _articles(path: str, log: DataErrorLog) -> list[Any]:
    """Return the articles under `data`, or flat records."""
    values = [value for _, value in read_json(path, log)]
    if len(values) == 1 and isinstance(values[0], dict) and "data" in values[0]:
        values = values[0]["data"]
    is_list = isinstance(values, list)
    first = values[0] if is_list and values else None
    if isinstance(first, dict) and ("paragraphs" in first or "context" in first):
        return values
    raise InputError(
        "A file of questions must have SQuAD's layout, or a JSON object with id, "
        "question, context and answers on each line",
        f"{path} with "
        + ("no records" if values == [] else describe_json(first or values)),
        "Name a file of questions, or write its questions in one of these layouts",
    )


class _BadRecordError(Exception):
    """An error in a record, which is left out."""

    def __init__(self, kind: str, detail: str, remedy: str):
        super().__init__(kind, detail, remedy)
        self.kind, self.detail, self.remedy = kind, detail, remedy


def _get(record: Any, key: str, kind: type, default: Any = None) -> Any:
    """Return the value of a key of a JSON object; raise if its type is wrong.

    Null is like a missing key where there is a default.
    """
    if not isinstance(record, dict):
        raise _BadRecordError(
            "wrong_type", f"{record!r:.50} is not a JSON object", "Write an object"
        )
    if default is not None and record.get(key) is None:
        return default
    if key not in record:
        raise _BadRecordError("missing_key", f"no `{key}`", f"Add the key `{key}`")
    value = record[key]
    has_type = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if has_type and key in _NEVER_BLANK and not value.strip():
        raise _BadRecordError(
            "blank", f"`{key}` is {value!r:.50}", f"Give `{key}` a text"
        )
    if not has_type:
        detail = f"`{key}` is {value!r:.50}"
        raise _BadRecordError("wrong_type", detail, f"Set `{key}` to {_KINDS[kind]}")
    return value


def _id(qa: Any) -> str:
    """Return the id of a question; an integer as text."""
    if isinstance(qa, dict) and type(qa.get("id")) is int:
        return str(qa["id"])
    return _get(qa, "id", str)


def _transposed(answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the answers of lists of texts and offsets."""
    texts, starts = _get(answers, "text", list), _get(answers, "answer_start", list)
    if len(texts) != len(starts):
        raise _BadRecordError(
            "wrong_type",
            f"`answers` has {len(texts)} `text` and {len(starts)} `answer_start`",
            "Write one `answer_start` for each `text`",
        )
    pairs = zip(texts, starts, strict=True)
    return [{"text": text, "answer_start": start} for text, start in pairs]


class _Reader:
    """Reader of the articles of one file, which reports errors with their place."""

    def __init__(self, path: str, log: DataErrorLog):
        self._path, self._log = path, log
        self._ids: dict[str, str] = {}  # place of each id
        self._record = 0

    def questions(self, articles: list[Any]) -> Iterator[Question]:
        """Yield the questions of all articles."""
        for number, article in enumerate(articles, 1):
            if isinstance(article, dict) and not _FLAT.isdisjoint(article):
                yield from self._flat(article, f"{self._path}, record {number}")
                continue
            place = f"{self._path}, article {number}"
            try:
                paragraphs = _get(article, "paragraphs", list)
                title = _get(article, "title", str, "")
            except _BadRecordError as bad:
                self._report(place, bad)
                continue
            for paragraph_number, paragraph in enumerate(paragraphs, 1):
                where = f"{place}, paragraph {paragraph_number}"
                try:
                    context = _get(paragraph, "context", str)
                    qas = _get(paragraph, "qas", list)
                except _BadRecordError as bad:
                    self._report(where, bad)
                    continue
                for qa_number, qa in enumerate(qas, 1):
                    yield from self._question(
                        qa, context, title, f"{where}, question {qa_number}"
                    )

    def _flat(self, record: dict[str, Any], place: str) -> Iterator[Question]:
        """Yield the question of a record with its context; no answer: impossible."""
        try:
            context = _get(record, "context", str)
            title = _get(record, "title", str, "")
        except _BadRecordError as bad:
            self._report(place, bad)
            return
        answers = record.get("answers")
        if "is_impossible" not in record and isinstance(answers, dict):
            record = {**record, "is_impossible": answers.get("text") == []}
        yield from self._question(record, context, title, place)

    def _question(
        self, qa: Any, context: str, title: str, place: str
    ) -> Iterator[Question]:
        self._record += 1
        try:
            name = _id(qa)
            place = f"{place} (id {name})"
            text = _get(qa, "question", str)
            if name in self._ids:
                raise _BadRecordError(
                    "duplicate_id",
                    f"{self._ids[name]} has the same id",
                    "Give each question a unique id",
                )
            impossible = _get(qa, "is_impossible", bool, False)
            pairs = self._answer_pairs(qa, impossible)
        except _BadRecordError as bad:
            self._report(place, bad)
            return
        self._ids[name] = place
        if pairs and impossible:
            self._log.add(
                DataError(
                    place,
                    0,
                    "impossible_with_answers",
                    "`is_impossible` is true, but `answers` is not empty; the answers "
                    "are left out",
                    "Correct `is_impossible`, or empty `answers`",
                )
            )
            pairs = []
        answers = tuple(self._answer(*pair, context, place) for pair in pairs)
        yield Question(
            name, text, context, answers, impossible, title, self._path, self._record
        )

    def _answer_pairs(
        self, qa: dict[str, Any], impossible: bool
    ) -> list[tuple[str, int]]:
        """Return text and offset of each answer in the file."""
        answers = qa.get("answers")
        if answers is None:
            return []
        if isinstance(answers, dict):  # of datasets: lists, not a list of objects
            answers = _transposed(answers)
        else:
            answers = _get(qa, "answers", list)
        pairs = [
            (_get(answer, "text", str), _get(answer, "answer_start", int))
            for answer in answers
        ]
        if not pairs and not impossible:
            raise _BadRecordError(
                "no_answers",
                "`answers` is empty, but `is_impossible` is not true",
                "Add an answer, or set `is_impossible`; unlabelled data has no key "
                "`answers`",
            )
        return pairs

    def _answer(self, text: str, start: int, context: str, place: str) -> Answer:
        """Return an answer with its offset corrected; report a wrong offset."""
        if _occurs_at(text, start, context):
            return Answer(text, start)
        unused = "it counts in scores but is left out of training"
        remedy = "Correct `answer_start`, which counts characters (code points) from 0"
        nearest = -1
        if not text.strip():
            kind, detail = "blank_answer", f"an answer is blank; {unused}"
            remedy = "Write the text of the answer, or remove it"
        elif start == -1:
            kind = "no_offset"
            detail = f"the answer {text!r:.80} has the offset -1; {unused}"
        else:
            kind, nearest = "offset", _nearest_occurrence(text, context, start)
            actual = context[max(0, start) : max(0, start) + len(text)]
            effect = f"{nearest} is used instead" if nearest >= 0 else unused
            detail = (
                f"the answer is {text!r:.80}, but the context has {actual!r:.80} at "
                f"{start}; {effect}"
            )
        if text.strip() and text not in context:
            remedy = "Correct the text of the answer, which its context must have"
        self._log.add(DataError(place, 0, kind, detail, remedy))
        return Answer(text, nearest)

    def _report(self, place: str, bad: _BadRecordError) -> None:
        detail = f"{bad.detail}; left out"
        self._log.add(DataError(place, 0, bad.kind, detail, bad.remedy))


def _nearest_occurrence(text: str, context: str, start: int) -> int:
    """Return the index of `text` that is nearest to `start`; -1: none."""
    before = context.rfind(text, 0, max(0, start) + len(text))
    after = context.find(text, max(0, start))
    indices = [index for index in (before, after) if index >= 0]
    return min(indices, key=lambda index: abs(index - start), default=-1)
