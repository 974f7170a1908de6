"""Read questions from SQuAD's JSON, versions 1.1 and 2.0, and from tables.

A row of a table is one question with its context, as the library `datasets` has SQuAD.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.data.files import Notify
from electra_tf.tasks.data.table import Table, read
from electra_tf.tasks.labels import parse_cell
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES, describe_json
from electra_tf.untrusted_files import parse_json

PUBLISHED = {
    name: {split: f"{split}-{version}.json" for split in ("train", "dev")}
    for name, version in (("squad1", "v1.1"), ("squad2", "v2.0"))
}
"""Names of the published files by task and split."""


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
    answers: tuple[Answer, ...] = ()  # gold; empty: impossible or unlabelled
    impossible: bool = False  # whether the context has no answer (SQuAD 2.0)
    title: str = ""  # title of the article; may be empty
    source: str = "the given pairs"  # name of the file

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


def read_squad(path: str | os.PathLike, notify: Notify | None = None) -> list[Question]:
    """Read a file in SQuAD's layout, or a table of questions, one or more.

    An answer whose offset is wrong gets that of the nearest place of its text, and one
    whose text the context lacks -1. `notify` gets the number of both, which training
    needs; scores are independent of offsets.
    """
    parser = _Parser(read(os.fspath(path)), needs_gold=True)
    found = list(parser)
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
    parser = _Parser(table, needs_gold=False)
    found = list(parser)
    without = sum(question.gold is None for question in found)
    if without and (parser.has_wrong_gold or without < len(found)):
        notify(
            f"note: {without:,} of {len(found):,} questions have no valid answers; "
            "predictions do not need them"
        )
    return found


class _Parser:
    """Questions of rows, or of the articles of SQuAD's layout.

    A row has id, question, context and optionally title, is_impossible and answers:
    lists of text and answer_start, in .csv and .tsv written as JSON or by Python. A
    question without `answers` is unlabelled.
    """

    def __init__(self, table: Table, needs_gold: bool):
        self._path, self._needs_gold = table.source, needs_gold
        self._rows = table.records(_parse_cell)
        if is_nested(table):
            self._rows = [(0, article) for article in table.columns["data"][0]]
        self.has_wrong_gold = False  # of a question that became unlabelled
        self.wrong_offsets: list[str] = []  # descriptions of answers
        self.moved = 0  # number of those with another offset
        self._places: dict[str, str] = {}  # of each id

    def __iter__(self) -> Iterator[Question]:
        first = self._rows[0][1] if self._rows else None
        if not isinstance(first, dict) or first.keys().isdisjoint(
            ("paragraphs", "context")
        ):
            found = describe_json(first) if self._rows else "no records"
            raise InputError(
                f"{self._path} must have SQuAD's layout, or id, question, context and "
                f"answers in each row, and has {found}"
            )
        for place, row in self._questions():
            with _at(place):
                yield self._question(place, row)

    def _questions(self) -> Iterator[tuple[str, Any]]:
        """Yield place and row of each question; one of SQuAD's layout becomes a row."""
        is_json = inner_suffix(self._path) in JSON_SUFFIXES
        for number, (line, article) in enumerate(self._rows, 1):
            if isinstance(article, dict) and {"question", "context"} & article.keys():
                place = f", record {number}" if is_json else f":{line}"
                yield f"{self._path}{place}", article
                continue
            place = f"{self._path}, article {number}"
            with _at(place):
                paragraphs = _get(article, "paragraphs", list)
            for index, paragraph in enumerate(paragraphs, 1):
                where = f"{place}, paragraph {index}"
                with _at(where):
                    questions = _get(paragraph, "qas", list)
                for count, qa in enumerate(questions, 1):
                    shared = {"title": article.get("title"), **paragraph}
                    row = shared | qa if isinstance(qa, dict) else qa
                    yield f"{where}, question {count}", row

    def _question(self, place: str, row: Any) -> Question:
        name, question = str(_get(row, "id", str, int)), _get(row, "question", str)
        title = _get(row, "title", str, type(None), blank=True) or ""
        context = _get(row, "context", str)
        if name in self._places:
            raise ValueError(f"{self._places[name]} has the same id")
        self._places[name] = place = f"{place} (id {name})"
        answers, impossible = self._gold(row)
        answers = tuple(self._answer(*pair, context, place) for pair in answers)
        head = name, question, context, answers, impossible
        return Question(*head, title, self._path)

    def _gold(self, row: Any) -> tuple[list[tuple[str, int]], bool]:
        """Return text and offset of the answers, and whether there is none.

        Without need of gold, wrong answers are those of an unlabelled question.
        """
        try:
            return _parse_gold(row)
        except ValueError:
            if self._needs_gold:
                raise
            self.has_wrong_gold |= row.get("answers") != []
            return [], False

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


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None


def _parse_cell(name: str, text: str) -> Any:
    """Return the value of a cell as JSON, if it has one; None: the cell is empty."""
    if name not in ("answers", "is_impossible"):
        return text
    try:
        value = parse_cell(text) if name == "answers" else parse_json(text.lower())
    except ValueError:
        return text.strip() or None
    return bool(value) if name == "is_impossible" and value in (0, 1) else value


def _parse_gold(qa: Any) -> tuple[list[tuple[str, int]], bool]:
    """Return text and offset of the answers, and whether there is none."""
    impossible = _get(qa, "is_impossible", bool, type(None))
    answers = _get(qa, "answers", list, dict, type(None))
    if isinstance(answers, dict):  # `datasets` writes one object of two lists
        texts, starts = _get(answers, "text", list), _get(answers, "answer_start", list)
        if len(texts) != len(starts):
            raise ValueError("`text` and `answer_start` must be of one length")
        pairs = zip(texts, starts, strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in pairs]
        impossible = not answers if impossible is None else impossible
    found = [
        (_get(one, "text", str, blank=True), _get(one, "answer_start", int))
        for one in answers or ()
    ]
    if answers == [] and not impossible:
        raise ValueError(
            "`answers` is empty, but `is_impossible` is not true; set `is_impossible`, "
            "or remove `answers` to predict"
        )
    if answers and impossible:
        raise ValueError("`is_impossible` is true with answers")
    if blank := sum(not text.strip() for text, _ in found):
        raise ValueError(f"{blank} answers are blank")
    return found, bool(impossible)


def _get(record: Any, key: str, *kinds: type, blank: bool = False) -> Any:
    """Return a value of a record; ValueError: it has another type or is blank."""
    if not isinstance(record, dict):
        raise ValueError(f"{record!r:.50} is no object")
    value = record.get(key)
    is_blank = isinstance(value, str) and not value.strip() and not blank
    if type(value) not in kinds or is_blank:
        received = f"is {value!r:.50}" if key in record else "is missing"
        names = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        required = f"{names}, not blank" if is_blank else names
        raise ValueError(f"`{key}` {received}, and must be {required}")
    return value
