"""Answers to questions, extracted from contexts: SQuAD's layouts and metrics."""

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data import squad_json
from electra_tf.tasks.data.duplicates import EqualTexts
from electra_tf.tasks.data.held_out import hold_out_groups, join_groups
from electra_tf.tasks.data.splits import (
    Split,
    find_labelled,
    find_training,
    texts_of,
)
from electra_tf.tasks.data.squad_json import PUBLISHED, Question
from electra_tf.tasks.data.table import READERS, Table, read
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.score import AnswerScorer
from electra_tf.tasks.spans import QAPrediction
from electra_tf.tasks.squad_metrics import has_gold
from electra_tf.tasks.task import Item, Task, check_count
from electra_tf.tasks.task_data import Labelled, Reading, TaskData
from electra_tf.text.data_errors import data_error
from electra_tf.text.rows import JSON_SUFFIXES

_COLUMNS = ("question", "context")
_ENDINGS = tuple(dict.fromkeys([*JSON_SUFFIXES[::-1], *READERS]))


class QuestionTask(Task):
    """Questions with contexts, and answers that are spans of these."""

    models = (QuestionAnswerer,)
    published: ClassVar = {n: {"epochs": 2, "max_length": 512} for n in PUBLISHED}

    length_setting = "max_query_length"

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read SQuAD's layout or tables; a single file is split by article."""
        allows_null = name == "squad2"
        paths = find_training(data, _ENDINGS, PUBLISHED[name])
        found = {
            split: squad_json.read_squad(path, reading.notify)
            for split, path in paths.items()
        }
        parts = {s: _question_split(questions) for s, questions in found.items()}
        equal, dev = EqualTexts(parts, reading.tokenizer), []
        if data == paths["train"]:
            dev = _articles_of_dev(found["train"], reading.settings, equal.train)
            held = set(dev)
            sides: dict[str, list[Question]] = {"train": [], "dev": []}
            for index, question in enumerate(found["train"]):
                sides["dev" if index in held else "train"].append(question)
            parts = {side: _question_split(own) for side, own in sides.items()}
        if "dev" not in parts:
            raise InputError(
                f"--data must be a file of questions, or a folder with a dev file, and "
                f"{data!r} is without dev"
            )
        for line in equal.lines(name, "questions", dev):
            reading.notify(line)
        for question in parts["train"].items:
            if not question.trainable:
                detail = "its context has none of its answers"
                raise data_error(question.place, 0, "untrainable", detail)
        for split, part in parts.items():
            if split != "train" and any(q.gold is not None for q in part.items):
                _require_gold(part.items, allows_null)
        threshold = 0.0 if allows_null else None
        model = functools.partial(QuestionAnswerer, null_threshold=threshold)
        return TaskData(name, parts, AnswerScorer(allows_null), model)

    def decision_settings(self, model: QuestionAnswerer) -> dict[str, float]:
        """Return the threshold of the null odds, if there is one."""
        known = model.null_threshold is not None
        return {"null_threshold": model.null_threshold} if known else {}

    def labelled_data(
        self, model: QuestionAnswerer, name: str | None, data: str, reading: Reading
    ) -> Labelled:
        """Read questions, each with gold answers."""
        allows_null, splits = model.null_threshold is not None, {}
        name = "squad2" if allows_null else "squad1"
        files = find_labelled(data, _ENDINGS, PUBLISHED[name])
        for split, file in files.items():
            found = squad_json.read_squad(file)
            _require_gold(found, allows_null)
            splits[split] = _question_split(found)
        if allows_null:
            reading.notify(
                "a question has no answer where its null_odds are above the threshold "
                f"stored with the model, {model.null_threshold:.6g}"
            )
        return Labelled(name, splits, AnswerScorer(allows_null))

    def inputs(
        self, model: QuestionAnswerer, path: str | None, reading: Reading
    ) -> Sequence[Item]:
        """Read a file in SQuAD's layout, or columns of questions and contexts."""
        table = read(path)
        if squad_json.has_articles(table):
            found = squad_json.parse_unlabelled(table, reading.notify)
            return [Item(q, q.gold, {"id": q.id}) for q in found]
        return self.rows_as_items(model, table, reading)

    def _text_columns(
        self, model: Any, table: Table, reading: Reading
    ) -> tuple[str, ...]:
        names = reading.settings.text_columns if reading.given else _COLUMNS
        check_count(names, [2], model)
        table.require(names)
        return names

    def parse(self, model: Any, texts: tuple[str, ...]) -> Any:
        """Return question and context, neither of them empty."""
        for name, text in zip(_COLUMNS, texts, strict=True):
            if not text.strip():
                raise ValueError(f"the {name} must not be empty")
        return texts

    def max_nbest(self, model: QuestionAnswerer) -> int:
        """Return the number of candidates of each question."""
        return model.settings.model.n_best

    def text_cells(self, item: Any) -> dict[str, str]:
        """Return the id, if there is one, and the question without its context."""
        own = {"id": item.id} if isinstance(item, Question) else {}
        return own | {"question": texts_of(item)[0]}

    def line(self, model: QuestionAnswerer, item: Any, prediction: QAPrediction) -> str:
        """Return the answer, empty for none, on one line."""
        return " ".join(prediction.answer_text(model.null_threshold).split())

    def record(
        self, model: QuestionAnswerer, item: Any, prediction: QAPrediction
    ) -> dict[str, Any]:
        """Return the answer, and the score of no answer."""
        text = prediction.answer_text(model.null_threshold)
        return {"answer": text, "null_odds": prediction.null_odds}

    def nbest(self, prediction: QAPrediction) -> list[dict[str, Any]]:
        """Return the best candidates."""
        return list(map(dataclasses.asdict, prediction.nbest))

    def cells(self, model: QuestionAnswerer, prediction: Any) -> dict[str, Any]:
        """Return the answer, and the best candidate, which is empty for no answer."""
        best = next((c for c in prediction.nbest if c.text), None)
        return {
            "prediction": prediction.answer_text(model.null_threshold),
            "best": best.text if best else "",
            "probability": round(best.probability, 6) if best else 0.0,
            "null_odds": float(f"{prediction.null_odds:.6g}"),
        }

    def gold_json(self, gold: Any) -> list[str]:
        """Return the texts of the gold answers."""
        return list(dict.fromkeys(answer.text for answer in gold))

    def gold_cell(self, model: QuestionAnswerer, item: Any, gold: Any) -> str:
        """Return the gold answers as a JSON list."""
        gold = getattr(item, "gold", gold)  # `located` of a split lacks some answers
        return json.dumps(self.gold_json(gold), ensure_ascii=False)


def _require_gold(questions: Sequence[Question], allows_null: bool) -> None:
    """Raise an error for a question without gold answers."""
    for one in questions:
        if not has_gold(one, allows_null):
            found = "`is_impossible` is true" * one.impossible or "no `answers`"
            detail = f"{found}, so there are no gold answers"
            remedy = "train with --task=squad2" * one.impossible
            raise data_error(one.place, 0, "no_answers", detail, remedy)


def _question_split(questions: Sequence[Question]) -> Split:
    """Return questions as a split, without targets if no question has gold."""
    is_labelled = any(q.answers or q.impossible for q in questions)
    return Split(questions, [q.located for q in questions] if is_labelled else None)


def _articles_of_dev(
    questions: Sequence[Question], settings: DataConfig, first_equal: np.ndarray
) -> list[int]:
    """Return the questions of the articles for dev.

    An article has one title or, if there are not several titles, one context. Those
    with equal questions on equal contexts are one.
    """
    has_titles = len({question.title for question in questions}) > 1
    articles = [(has_titles and q.title) or q.context for q in questions]
    articles = join_groups(articles, first_equal)
    if len(set(articles)) < 2:
        raise InputError(
            "--data must have two or more articles, without questions that are in "
            f"both, to hold dev out, and has {len(set(articles))}; pass a folder with "
            "train.json and dev.json"
        )
    return hold_out_groups(articles, settings.dev_share, settings.split_seed)
