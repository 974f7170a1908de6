"""Read questions from SQuAD's JSON, versions 1.1 and 2.0, and from tables.

A row of a table is one question with its context, as the library `datasets` has SQuAD.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.data.files import Notify
from electra_tf.tasks.data.table import Table, read
from electra_tf.tasks.labels import parse_cell
from electra_tf.text.data_errors import data_error
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES, describe_json
from electra_tf.untrusted_files import parse_json

PUBLISHED = {
    name: {split: f"{split}-{version}.json" for split in ("train", "dev")}
    for name, version in (("squad1", "v1.1"), ("squad2", "v2.0"))
}
"""Names of the published files by task and split."""


"""Errors of which scores are independent."""


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
    answers: tuple[Answer, ...]  # gold; empty: impossible or unlabelled
    impossible: bool  # whether the context has no answer (SQuAD 2.0)
    title: str  # title of the article; may be empty
    source: str  # name of the file
    record: int  # number of the question in the file, from 1

    @property
    def texts(self) -> tuple[str, str]:
        """Question and context."""
        return self.question, self.context

    @property
    def place(self) -> str:
        """File and id."""
        return f"{self.source}, question {self.id}"

    @property
    def gold(self) -> tuple[Answer, ...] | None:
        """Return the gold answers; None: the question is unlabelled."""
        return self.answers if self.answers or self.impossible else None

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


class _InvalidError(Exception):
    """The reason why a record is invalid."""


def read_squad(path: str | os.PathLike, notify: Notify | None = None) -> list[Question]:
    """Read a file in SQuAD's layout, or a table of questions, one or more.

    An answer whose offset is wrong gets that of the nearest place of its text, and one
    whose text the context lacks -1. `notify` gets the number of both, which training
    needs; scores are independent of offsets.
    """
    parser, found = _parsed(read(os.fspath(path)), needs_gold=True)
    if not found:
        raise InputError(f"{path} must have a valid question, and has none")
    if notify and (wrong := parser.wrong_offsets):
        notify(
            f"{path}: {len(wrong):,} answers have a wrong offset: {parser.moved:,} are "
            "used where the context has them, others in scores alone; the first: "
            f"{wrong[0]}"
        )
    return found


def is_nested(table: Table) -> bool:
    """Return whether a table has the one object of a file in SQuAD's layout."""
    return len(table) == 1 and isinstance(table.columns.get("data", [None])[0], list)


def has_articles(table: Table) -> bool:
    """Return whether a table is in SQuAD's layout, whole or with an article a row."""
    lists = (isinstance(v, list) for v in table.columns.get("paragraphs", ()))
    return is_nested(table) or ("context" not in table.columns and any(lists))


def parse_unlabelled(table: Table, notify: Notify) -> list[Question]:
    """Return the questions of a table to predict for.

    A question with wrong answers is unlabelled, and a note counts the unlabelled ones,
    unless no question has answers.
    """
    parser, found = _parsed(table, needs_gold=False)
    without = sum(question.gold is None for question in found)
    if without and (parser.has_wrong_gold or without < len(found)):
        notify(
            f"note: {without:,} of {len(found):,} questions have no valid answers; "
            "predictions do not need them"
        )
    return found


def _parsed(table: Table, needs_gold: bool) -> tuple["_Parser", list[Question]]:
    """Return the questions of rows, or of the articles of SQuAD's layout.

    A row has id, question, context and optionally title, is_impossible and answers:
    lists of text and answer_start, in .csv and .tsv written as JSON or by Python. A
    question without `answers` is unlabelled.
    """
    path, rows = table.source, table.records(_parse_cell)
    if is_nested(table):
        rows = [(0, article) for article in table.columns["data"][0]]
    first = rows[0][1] if rows else None
    if not isinstance(first, dict) or first.keys().isdisjoint(
        ("paragraphs", "context")
    ):
        found = describe_json(first) if rows else "no records"
        raise InputError(
            f"{path} must have SQuAD's layout, or id, question, context and answers in "
            f"each row, and has {found}"
        )
    parser = _Parser(path, needs_gold)
    return parser, list(parser.questions(rows))


def _parse_cell(name: str, text: str) -> Any:
    """Return the value of a cell as JSON, if it has one; None: the cell is empty."""
    if name not in ("answers", "is_impossible"):
        return text
    try:
        value = parse_cell(text) if name == "answers" else parse_json(text.lower())
    except ValueError:
        return text.strip() or None
    return bool(value) if name == "is_impossible" and value in (0, 1) else value


class _Parser:
    def __init__(self, path: str, needs_gold: bool):
        self._path, self._needs_gold = path, needs_gold
        self.has_wrong_gold = False  # of a question that became unlabelled
        self.wrong_offsets: list[str] = []  # descriptions of answers
        self.moved = 0  # number of those with another offset
        self._ids: dict[str, str] = {}  # place of each id
        self._record = 0

    def questions(self, rows: list[tuple[int, Any]]) -> Iterator[Question]:
        """Yield the questions of all articles, or of rows with their numbers."""
        is_json = inner_suffix(self._path) in JSON_SUFFIXES
        for number, (line, article) in enumerate(rows, 1):
            if isinstance(article, dict) and {"question", "context"} & article.keys():
                place = f"{self._path}, record {number}"
                place = place if is_json else f"{self._path}:{line}"
                yield self._question(article, article, article, place)
                continue
            place = f"{self._path}, article {number}"
            for index, value in enumerate(self._list(article, "paragraphs", place), 1):
                where = f"{place}, paragraph {index}"
                for count, qa in enumerate(self._list(value, "qas", where), 1):
                    where_qa = f"{where}, question {count}"
                    yield self._question(qa, value, article, where_qa)

    def _list(self, record: Any, key: str, place: str) -> list[Any]:
        try:
            return _get(record, key, list)
        except _InvalidError as error:
            raise data_error(place, 0, "wrong_value", str(error)) from None

    def _question(self, qa: Any, paragraph: Any, article: Any, place: str) -> Question:
        """Return a question."""
        self._record += 1
        try:
            title = _get(article, "title", str, type(None), blank=True) or ""
            context = _get(paragraph, "context", str)
            name, question = str(_get(qa, "id", str, int)), _get(qa, "question", str)
            answers, impossible = self._gold(qa)
        except _InvalidError as error:
            raise data_error(place, 0, "wrong_value", str(error)) from None
        place = f"{place} (id {name})"
        if name in self._ids:
            detail = f"{self._ids[name]} has the same id"
            raise data_error(place, 0, "duplicate_id", detail)
        if answers == [] and not impossible:
            detail = "`answers` is empty, but `is_impossible` is not true"
            remedy = "set `is_impossible`, or remove `answers` to predict"
            raise data_error(place, 0, "no_answers", detail, remedy)
        self._ids[name] = place
        if answers and impossible:
            detail = "`is_impossible` is true with answers"
            raise data_error(place, 0, "impossible_with_answers", detail)
        if blank := sum(not text.strip() for text, _ in answers or ()):
            raise data_error(place, 0, "blank_answer", f"{blank} answers are blank")
        located = tuple(self._answer(*pair, context, place) for pair in answers or ())
        head = (name, question, context, located)
        return Question(*head, impossible, title, self._path, self._record)

    def _gold(self, qa: Any) -> tuple[list[tuple[str, int]] | None, bool]:
        """Return text and offset of the answers, and whether there is none.

        Without need of gold, wrong answers are those of an unlabelled question.
        """
        try:
            answers, impossible = _parse_gold(qa)
        except _InvalidError:
            if self._needs_gold:
                raise
            self.has_wrong_gold = True
            return None, False
        texts = [text.strip() for text, _ in answers or ()]
        if self._needs_gold or (all(texts) and bool(texts) != impossible):
            return answers, impossible
        self.has_wrong_gold |= bool(texts)
        return None, False

    def _answer(self, text: str, start: int, context: str, place: str) -> Answer:
        """Return an answer with its offset corrected; note a wrong offset."""
        if _occurs_at(text, start, context):
            return Answer(text, start)
        nearest, detail = -1, f"the answer {text!r:.80} has the offset -1"
        if start != -1:
            before = context.rfind(text, 0, max(0, start) + len(text))
            after = context.find(text, max(0, start))
            places = [place for place in (before, after) if place >= 0]
            nearest = min(places, key=lambda place: abs(place - start), default=-1)
            actual = context[max(0, start) : max(0, start) + len(text)]
            detail = f"the answer is {text!r:.80}, but at {start} is {actual!r:.80}"
        self.wrong_offsets.append(f"{place}: {detail}")
        self.moved += nearest >= 0
        return Answer(text, nearest)


def _parse_gold(qa: Any) -> tuple[list[tuple[str, int]] | None, bool]:
    impossible = _get(qa, "is_impossible", bool, type(None))
    answers = _get(qa, "answers", list, dict, type(None))
    if isinstance(answers, dict):
        answers = _as_list(answers)
        if impossible is None:
            impossible = not answers
    if answers is not None:
        starts = [_get(answer, "answer_start", int) for answer in answers]
        texts = [_get(answer, "text", str, blank=True) for answer in answers]
        answers = list(zip(texts, starts, strict=True))
    return answers, bool(impossible)


def _get(record: Any, key: str, *kinds: type, blank: bool = False) -> Any:
    """Return a value of a record; raise an error for another type and a blank text."""
    if not isinstance(record, dict):
        raise _InvalidError(f"{record!r:.50} is no object")
    value = record.get(key)
    is_blank = isinstance(value, str) and not value.strip() and not blank
    if type(value) not in kinds or is_blank:
        received = f"is {value!r:.50}" if key in record else "is missing"
        names = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        required = f"{names}, not blank" if is_blank else names
        raise _InvalidError(f"`{key}` {received}, and must be {required}")
    return value


def _as_list(answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return answers as objects; `datasets` writes one object of two lists."""
    texts, starts = _get(answers, "text", list), _get(answers, "answer_start", list)
    if len(texts) != len(starts):
        raise _InvalidError(
            "`answers` must have `text` and `answer_start` of one length"
        )
    pairs = zip(texts, starts, strict=True)
    return [{"text": text, "answer_start": start} for text, start in pairs]
