"""SQuAD's JSON, versions 1.1 and 2.0, as questions."""

import dataclasses
import json
import os
import pathlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.text.compression import BROKEN, SUFFIXES, open_compressed
from electra_tf.text.data_errors import DataError, DataErrorLog

STEMS = {"squad1": "-v1.1", "squad2": "-v2.0"}
"""What the published files' names have behind `train` and `dev`."""

_NEVER_BLANK = ("id", "question", "context")
_KINDS = {str: "a string", list: "a list", int: "a whole number", bool: "true or false"}


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """One gold answer."""

    text: str
    start: int
    """Its first character in the context; -1 where the text does not stand there: such
    an answer counts in scores, but nothing can be trained on it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One question on one paragraph."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    """Empty where the question is impossible, or where the file has no answers."""
    impossible: bool
    """The context does not answer it (SQuAD 2.0)."""
    title: str
    """Of the article; empty if it has none."""
    source: str
    """The file."""
    record: int
    """Number of the question in the file, from 1."""

    @property
    def located(self) -> tuple[Answer, ...]:
        """The answers that stand in the context where they say they do."""
        return tuple(a for a in self.answers if _stands(a.text, a.start, self.context))

    @property
    def trainable(self) -> bool:
        """Whether there is something to learn: an answer in the context, or none."""
        return self.impossible or bool(self.located)


def _stands(text: str, start: int, context: str) -> bool:
    return bool(text.strip()) and start >= 0 and context.startswith(text, start)


def read_squad(path: str | pathlib.Path, log: DataErrorLog) -> list[Question]:
    """Reads a file of SQuAD's layout, plain, .gz or .xz.

    A question without the key `answers` is test data and only good for prediction.
    Problems are `missing_key`, `wrong_type`, `blank`, `duplicate_id`, `no_answers` and
    `impossible_with_answers`, then `offset` (the text stands elsewhere, or nowhere),
    `no_offset` (-1, as CMRC 2018 marks answers in free form) and `blank_answer`.

    Args:
        path: The file.
        log: Takes the problems with file, article, paragraph and question.

    Returns:
        The questions in the file's order.

    Raises:
        InputError: The file as a whole cannot be read, or `log` stops at a problem.
    """
    return list(_Reader(str(path), log).questions(_articles(path)))


def find_squad(folder: str, part: str, task: str) -> str | None:
    """Find the file of a part.

    Args:
        folder: Where it is looked for.
        part: `train`, `dev` or `test`.
        task: `squad1` or `squad2`.

    Returns:
        Its path; None if there is none.
    """
    for stem in (f"{part}{STEMS[task]}", part):
        for suffix in SUFFIXES:
            path = os.path.join(folder, f"{stem}.json{suffix}")
            if os.path.isfile(path):
                return path
    return None


def for_training(questions: Sequence[Question], log: DataErrorLog) -> list[Question]:
    """Leaves out, and counts as `untrainable`, what has no answer in its context.

    Args:
        questions: What `read_squad` returned.
        log: Takes one problem for each question that is left out.

    Returns:
        The others, in order.

    Raises:
        InputError: `log` stops at a problem.
    """
    kept = []
    for question in questions:
        if question.trainable:
            kept.append(question)
            continue
        log.add(
            DataError(
                f"{question.source}, question {question.id}",
                0,
                "untrainable",
                "none of its answers stands in its context; left out of training",
                "Correct the answers, or remove the question",
            )
        )
    return kept


def split_by_article(
    questions: Sequence[Question], share: float, seed: int
) -> tuple[list[Question], list[Question]]:
    """Parts questions so that no article has some on both sides.

    Args:
        questions: In any order; what has no title is an article for each context.
        share: Of the questions for the second part, about: whole articles in random
            order are added until it is reached.
        seed: Decides the articles.

    Returns:
        (train, dev), each in the given order.

    Raises:
        InputError: There are no two articles, or the share is not between 0 and 1.
    """
    sizes: dict[str, int] = {}
    for question in questions:
        article = _article(question)
        sizes[article] = sizes.get(article, 0) + 1
    if len(sizes) < 2 or not 0 < share < 1:
        raise InputError(
            "A split by article takes two articles or more and a share within 0 to 1",
            f"{len(sizes)} articles, a share of {share}",
            "Give two files instead, or another share",
        )
    names = list(sizes)
    random.Random(seed).shuffle(names)
    chosen: set[str] = set()
    count = 0
    for name in names[:-1]:
        if count >= share * len(questions):
            break
        chosen.add(name)
        count += sizes[name]
    train = [q for q in questions if _article(q) not in chosen]
    return train, [q for q in questions if _article(q) in chosen]


def _article(question: Question) -> str:
    return question.title or question.context


def _articles(path: str | pathlib.Path) -> list[Any]:
    """The list under `data`."""
    required = "A SQuAD file is UTF-8 JSON with a list of articles under `data`"
    remedy = "Check the path; compressed files end with .gz or .xz"
    try:
        with open_compressed(path) as file:
            content = file.read()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            required, f"{path}: {error}", "Save the file in UTF-8"
        ) from error
    except (OSError, *BROKEN) as error:
        raise InputError(required, f"{path}: {error}", remedy) from error
    if not text.strip():
        raise InputError(required, f"{path}, which is empty", remedy)
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        arrived = f"{path}, which is no JSON: {error}"
        raise InputError(required, arrived, "Check the file") from error
    articles = loaded.get("data") if isinstance(loaded, dict) else None
    if not isinstance(articles, list) or not articles:
        found = (
            "the keys " + ", ".join(map(repr, loaded))
            if isinstance(loaded, dict)
            else f"a {type(loaded).__name__}"
        )
        raise InputError(required, f"{path} with {found:.200}", "Check the file")
    return articles


class _BadRecordError(Exception):
    """What is wrong with a record that is left out."""

    def __init__(self, kind: str, detail: str, remedy: str):
        super().__init__(kind, detail, remedy)
        self.kind, self.detail, self.remedy = kind, detail, remedy


def _get(record: Any, key: str, kind: type) -> Any:
    """A value of a JSON object that is there and of its type."""
    if not isinstance(record, dict):
        raise _BadRecordError(
            "wrong_type", f"no JSON object but {record!r:.50}", "Write an object"
        )
    if key not in record:
        raise _BadRecordError("missing_key", f"no `{key}`", f"Add the key `{key}`")
    value = record[key]
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if right and key in _NEVER_BLANK and not value.strip():
        raise _BadRecordError("blank", f"`{key}` is {value!r:.50}", "Write a text")
    if not right:
        detail = f"`{key}` is {value!r:.50}"
        raise _BadRecordError("wrong_type", detail, f"Write {_KINDS[kind]} there")
    return value


class _Reader:
    """Turns articles into questions and tells where one is wrong."""

    def __init__(self, path: str, log: DataErrorLog):
        self._path, self._log = path, log
        self._ids: dict[str, str] = {}  # each with its place
        self._record = 0

    def questions(self, articles: list[Any]) -> Iterator[Question]:
        """Those of all articles."""
        for number, article in enumerate(articles, 1):
            place = f"{self._path}, article {number}"
            try:
                paragraphs = _get(article, "paragraphs", list)
                title = _get({"title": "", **article}, "title", str)
            except _BadRecordError as bad:
                self._tell(place, bad)
                continue
            for paragraph_number, paragraph in enumerate(paragraphs, 1):
                where = f"{place}, paragraph {paragraph_number}"
                try:
                    context = _get(paragraph, "context", str)
                    asked = _get(paragraph, "qas", list)
                except _BadRecordError as bad:
                    self._tell(where, bad)
                    continue
                for asked_number, qa in enumerate(asked, 1):
                    yield from self._question(
                        qa, context, title, f"{where}, question {asked_number}"
                    )

    def _question(
        self, qa: Any, context: str, title: str, place: str
    ) -> Iterator[Question]:
        self._record += 1
        try:
            name = _get(qa, "id", str)
            place = f"{place} (id {name})"
            text = _get(qa, "question", str)
            if name in self._ids:
                raise _BadRecordError(
                    "duplicate_id",
                    f"the id is that of {self._ids[name]}",
                    "Give each question an id of its own",
                )
            impossible = "is_impossible" in qa and _get(qa, "is_impossible", bool)
            given = self._given(qa, impossible)
        except _BadRecordError as bad:
            self._tell(place, bad)
            return
        self._ids[name] = place
        if given and impossible:
            self._log.add(
                DataError(
                    place,
                    0,
                    "impossible_with_answers",
                    "is_impossible is true, but there are answers; they are left out",
                    "Correct is_impossible, or empty the list of answers",
                )
            )
            given = []
        answers = tuple(self._answer(*pair, context, place) for pair in given)
        yield Question(
            name, text, context, answers, impossible, title, self._path, self._record
        )

    def _given(self, qa: dict[str, Any], impossible: bool) -> list[tuple[str, int]]:
        """Text and offset of each answer, as they stand in the file."""
        if "answers" not in qa:
            return []
        given = [
            (_get(answer, "text", str), _get(answer, "answer_start", int))
            for answer in _get(qa, "answers", list)
        ]
        if not given and not impossible:
            raise _BadRecordError(
                "no_answers",
                "the list of answers is empty, but is_impossible is not true",
                "Add an answer, or set is_impossible; test data has no key `answers`",
            )
        return given

    def _answer(self, text: str, start: int, context: str, place: str) -> Answer:
        """An answer where it stands; each other one is told."""
        if _stands(text, start, context):
            return Answer(text, start)
        unused = "it counts in scores but is left out of training"
        if not text.strip():
            kind, detail, found = "blank_answer", f"an answer is blank; {unused}", -1
        elif start == -1:
            kind, found = "no_offset", -1
            detail = f"the answer {text!r:.80} has the offset -1; {unused}"
        else:
            kind, found = "offset", _nearest(text, context, start)
            there = context[max(0, start) : max(0, start) + len(text)]
            done = f"taken from {found} instead" if found >= 0 else unused
            detail = f"at {start} there is not {text!r:.80} but {there!r:.80}; {done}"
        self._log.add(
            DataError(
                place,
                0,
                kind,
                detail,
                "Correct answer_start, which counts characters (code points) from 0",
            )
        )
        return Answer(text, found)

    def _tell(self, place: str, bad: _BadRecordError) -> None:
        detail = f"{bad.detail}; left out"
        self._log.add(DataError(place, 0, bad.kind, detail, bad.remedy))


def _nearest(text: str, context: str, start: int) -> int:
    """Where `text` stands nearest to `start`; -1: nowhere."""
    before = context.rfind(text, 0, max(0, start) + len(text))
    after = context.find(text, max(0, start))
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: abs(place - start), default=-1)
