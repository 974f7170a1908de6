"""Read questions from SQuAD's JSON, versions 1.1 and 2.0, and from flat records.

A flat record is one question with its context, as the library `datasets` writes SQuAD.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import pydantic

from electra_tf.errors import InputError
from electra_tf.tasks.data.files import TFDS
from electra_tf.tasks.data.records import read_json
from electra_tf.tasks.data.splits import warn_of_unused_splits
from electra_tf.tasks.data.table import print_note
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix, load_tfds
from electra_tf.text.rows import describe_json

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
    answers: tuple[Answer, ...]
    """Gold answers; empty for an impossible or unlabelled question."""
    impossible: bool
    """Whether the context has no answer (SQuAD 2.0)."""
    title: str
    """Title of the article; may be empty."""
    source: str
    """Name of the file."""
    record: int
    """Number of the question in the file, from 1."""

    @property
    def texts(self) -> tuple[str, str]:
        """Question and context."""
        return self.question, self.context

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


class _BlankError(ValueError):
    """A text of nothing but white space."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise _BlankError("must not be blank")
    return text


def _as_list(value: Any) -> Any:
    """Return answers as a list of objects; `datasets` writes an object of two lists."""
    if not isinstance(value, dict):
        return value
    lists = [value.get(name) for name in ("text", "answer_start")]
    if (
        not all(isinstance(items, list) for items in lists)
        or len(set(map(len, lists))) != 1
    ):
        raise ValueError("must have lists `text` and `answer_start` of one length")
    pairs = zip(*lists, strict=True)
    return [{"text": text, "answer_start": start} for text, start in pairs]


_Text = Annotated[str, pydantic.AfterValidator(_not_blank)]
_Id = Annotated[
    _Text, pydantic.BeforeValidator(lambda v: str(v) if type(v) is int else v)
]


class _Answer(pydantic.BaseModel):
    text: str
    answer_start: int


class _Qa(pydantic.BaseModel):
    id: _Id
    question: _Text
    is_impossible: bool | None = None
    answers: Annotated[list[_Answer] | None, pydantic.BeforeValidator(_as_list)] = None


class _Paragraph(pydantic.BaseModel):
    context: _Text
    qas: list[Any]


class _Article(pydantic.BaseModel):
    title: str | None = None
    paragraphs: list[Any]


def read_squad(
    path: str | os.PathLike,
    log: DataErrorLog,
    notify: Callable[[str], None] = print_note,
    ignored: Sequence[str] = (),
) -> list[Question]:
    """Read a file in SQuAD's layout, or flat records; plain, .gz or .xz.

    A flat record has id, question, context and optionally title and answers with lists
    of text and answer_start; records are lines, a list, or the list under `data`.
    A question without the key `answers` is unlabelled; it serves for prediction only.
    The kinds of errors are `missing_key`, `wrong_value`, `blank`, `duplicate_id`,
    `no_answers`, `impossible_with_answers`, `blank_answer`, `offset` (the context has
    the text elsewhere or not at all) and `no_offset` (-1, which marks free-form answers
    in CMRC 2018); `ignored` ones are not reported.
    """
    path = os.fspath(path)
    if path.startswith(TFDS):
        return _read_tfds(path)
    if (suffix := inner_suffix(path)) in (".csv", ".tsv"):
        raise InputError(
            "A file of questions must be JSON, .json or .jsonl",
            f"{path}, a {suffix} file",
            "Write each question to a .jsonl as an object with id, question, context "
            "and answers, a list of text and one of answer_start",
        )
    articles = _articles(path, log)
    records = [article for article in articles if isinstance(article, dict)]
    used = ("id", "question", "context", "title")
    columns = {key: [r.get(key) for r in records] for key in records[0]}
    warn_of_unused_splits(columns, used, path, notify)
    return list(_Reader(path, log, ignored).questions(articles))


def read_squad_ignoring_offsets(
    path: str | os.PathLike, notify: Callable[[str], None] = print_note
) -> list[Question]:
    """Read a file for prediction or scoring, which do not depend on answer offsets."""
    log = DataErrorLog("stop", "", "A file of questions must have SQuAD's layout")
    return read_squad(path, log, notify, ignored=("offset", "no_offset"))


def _read_tfds(source: str) -> list[Question]:
    """Read a split of a SQuAD that TFDS has prepared on this machine."""
    name, _, split = source.removeprefix(TFDS).partition("@")
    dataset, _ = load_tfds(name, split)
    questions = []
    for record, row in enumerate(dataset.as_numpy_iterator(), 1):
        texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
        pairs = zip(texts, starts, strict=True)
        answers = tuple(Answer(text.decode(), int(start)) for text, start in pairs)
        fields = (row[key].decode() for key in ("id", "question", "context"))
        impossible = bool(row.get("is_impossible", False))
        title = row["title"].decode()
        questions.append(Question(*fields, answers, impossible, title, source, record))
    return questions


def _articles(path: str, log: DataErrorLog) -> list[Any]:
    """Return the articles under `data`, or flat records."""
    values = [value for _, value in read_json(path, log)]
    if len(values) == 1 and isinstance(values[0], dict) and "data" in values[0]:
        values = values[0]["data"]
    first = values[0] if isinstance(values, list) and values else None
    if isinstance(first, dict) and ("paragraphs" in first or "context" in first):
        return values
    raise InputError(
        "A file of questions must have SQuAD's layout, or a JSON object with id, "
        "question, context and answers on each line",
        f"{path} with "
        + ("no records" if values == [] else describe_json(first or values)),
        "Name a file of questions, or write its questions in one of these layouts",
    )


class _Reader:
    def __init__(self, path: str, log: DataErrorLog, ignored: Sequence[str]):
        self._path, self._log, self._ignored = path, log, ignored
        self._ids: dict[str, str] = {}  # place of each id
        self._record = 0

    def questions(self, articles: list[Any]) -> Iterator[Question]:
        """Yield the questions of all articles."""
        for number, article in enumerate(articles, 1):
            if isinstance(article, dict) and {"question", "context"} & article.keys():
                yield from self._flat(article, f"{self._path}, record {number}")
                continue
            place = f"{self._path}, article {number}"
            parsed = self._parse(_Article, article, place)
            for index, value in enumerate(parsed.paragraphs if parsed else (), 1):
                where = f"{place}, paragraph {index}"
                paragraph = self._parse(_Paragraph, value, where)
                for qa_index, qa in enumerate(paragraph.qas if paragraph else (), 1):
                    qa_place = f"{where}, question {qa_index}"
                    context, title = paragraph.context, parsed.title or ""
                    yield from self._question(qa, context, title, qa_place)

    def _flat(self, record: dict[str, Any], place: str) -> Iterator[Question]:
        """Yield the question of a record with its context; no answer: impossible."""
        answers = record.get("answers")
        if "is_impossible" not in record and isinstance(answers, dict):
            record = {**record, "is_impossible": answers.get("text") == []}
        article = self._parse(_Article, {**record, "paragraphs": []}, place)
        paragraph = article and self._parse(_Paragraph, {**record, "qas": []}, place)
        if paragraph:
            title = article.title or ""
            yield from self._question(record, paragraph.context, title, place)

    def _question(
        self, value: Any, context: str, title: str, place: str
    ) -> Iterator[Question]:
        self._record += 1
        if (qa := self._parse(_Qa, value, place)) is None:
            return
        place = f"{place} (id {qa.id})"
        impossible, answers = bool(qa.is_impossible), qa.answers or []
        if qa.id in self._ids:
            detail = f"{self._ids[qa.id]} has the same id; left out"
            self._report(place, "duplicate_id", detail, "Give it a unique id")
            return
        if qa.answers == [] and not impossible:
            detail = "`answers` is empty, but `is_impossible` is not true; left out"
            remedy = (
                "Add an answer, set `is_impossible`, or remove `answers` to predict"
            )
            self._report(place, "no_answers", detail, remedy)
            return
        self._ids[qa.id] = place
        if answers and impossible:
            detail = "`is_impossible` is true with answers, which are left out"
            remedy = "Correct `is_impossible`, or empty `answers`"
            self._report(place, "impossible_with_answers", detail, remedy)
            answers = []
        located = tuple(self._answer(answer, context, place) for answer in answers)
        head = (qa.id, qa.question, context, located)
        yield Question(*head, impossible, title, self._path, self._record)

    def _answer(self, answer: _Answer, context: str, place: str) -> Answer:
        """Return an answer with its offset corrected; report a wrong offset."""
        text, start, nearest = answer.text, answer.answer_start, -1
        if _occurs_at(text, start, context):
            return Answer(text, start)
        effect = "it counts in scores but is left out of training"
        remedy = "Correct `answer_start`, which counts characters (code points) from 0"
        if not text.strip():
            kind, detail = "blank_answer", "an answer is blank"
            remedy = "Write the text of the answer, or remove it"
        elif start == -1:
            kind, detail = "no_offset", f"the answer {text!r:.80} has the offset -1"
        else:
            kind, nearest = "offset", _nearest_occurrence(text, context, start)
            actual = context[max(0, start) : max(0, start) + len(text)]
            effect = f"{nearest} is used instead" if nearest >= 0 else effect
            detail = f"the answer is {text!r:.80}, but at {start} is {actual!r:.80}"
        if text.strip() and text not in context:
            remedy = "Correct the text of the answer, which its context must have"
        self._report(place, kind, f"{detail}; {effect}", remedy)
        return Answer(text, nearest)

    def _parse(self, kind: type, value: Any, place: str) -> Any:
        """Return a record, or report why it is left out and return None."""
        try:
            return kind.model_validate(value, strict=True)
        except pydantic.ValidationError as errors:
            error = errors.errors()[0]
        key = ".".join(map(str, error["loc"])) or "the record"
        detail = f"`{key}`: {error['msg']}, received {error['input']!r:.50}; left out"
        remedy = f"Correct `{key}`, or remove the record"
        name = "missing_key" if error["type"] == "missing" else "wrong_value"
        if isinstance(error.get("ctx", {}).get("error"), _BlankError):
            name = "blank"
        self._report(place, name, detail, remedy)
        return None

    def _report(self, place: str, kind: str, detail: str, remedy: str) -> None:
        if kind not in self._ignored:
            self._log.add(place, 0, kind, detail, remedy)


def _nearest_occurrence(text: str, context: str, start: int) -> int:
    """Return the index of `text` that is nearest to `start`; -1: none."""
    before = context.rfind(text, 0, max(0, start) + len(text))
    after = context.find(text, max(0, start))
    indices = [index for index in (before, after) if index >= 0]
    return min(indices, key=lambda index: abs(index - start), default=-1)
