"""Answers to questions, extracted from contexts: SQuAD's layouts and metrics."""

import dataclasses
import functools
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from electra_tf.errors import InputError
from electra_tf.tasks.data import squad_json
from electra_tf.tasks.data.held_out import with_dev
from electra_tf.tasks.data.splits import (
    Split,
    find_splits,
    texts_of,
)
from electra_tf.tasks.data.squad_json import PUBLISHED, Question
from electra_tf.tasks.data.table import Table, json_text, read
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.score import Mistake, ScoredSplit
from electra_tf.tasks.spans import QAPrediction
from electra_tf.tasks.squad_metrics import exact, score_v1, score_v2
from electra_tf.tasks.task import (
    Task,
    check_count,
    float_scores,
    write_lines,
)
from electra_tf.tasks.task_data import Labelled, Reading, TaskData
from electra_tf.text.rows import JSON_SUFFIXES, READERS

_COLUMNS = ("question", "context")
_ENDINGS = tuple(dict.fromkeys([*JSON_SUFFIXES[::-1], *READERS]))


class QuestionTask(Task):
    """Questions with contexts, and answers that are spans of these."""

    models, columns = (QuestionAnswerer,), ()
    published: ClassVar = {n: {"epochs": 2, "max_length": 512} for n in PUBLISHED}

    has_nbest = True

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read SQuAD's layout or tables; without a dev file articles are held out."""
        allows_null, parts = name == "squad2", {}
        paths = find_splits(data, True, _ENDINGS, PUBLISHED[name])
        for split, path in paths.items():
            found = squad_json.read_squad(path, reading.notify)
            parts[split] = _question_split(found)
        articles = _articles(parts["train"].items)
        parts = with_dev(parts, name, "questions", reading, articles=articles)
        for question in parts["train"].items:
            if not question.trainable:
                raise InputError(
                    f"{question.place}: its context has none of its answers"
                )
        for split, part in parts.items():
            if split != "train" and any(q.gold is not None for q in part.items):
                _require_gold(part.items, allows_null)
        threshold = 0.0 if allows_null else None
        model = functools.partial(QuestionAnswerer, null_threshold=threshold)
        return TaskData(name, parts, _metrics(allows_null), model)

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
        files = find_splits(data, False, _ENDINGS, PUBLISHED[name])
        for split, file in files.items():
            found = squad_json.read_squad(file)
            _require_gold(found, allows_null)
            splits[split] = _question_split(found)
        if allows_null:
            reading.notify(
                "a question has no answer where its null_odds are above the threshold "
                f"stored with the model, {model.null_threshold:.6g}"
            )
        return Labelled(name, splits, _metrics(allows_null))

    def inputs(
        self, model: QuestionAnswerer, path: str | None, reading: Reading
    ) -> Split:
        """Read a file in SQuAD's layout, or columns of questions and contexts."""
        table = read(path)
        if squad_json.has_articles(table):
            found = squad_json.parse_unlabelled(table, reading.notify)
            ids = Table({"id": [q.id for q in found]}, range(len(found)), table.source)
            return Split(found, [q.gold for q in found], ids)
        names = reading.settings.text_columns if reading.given else _COLUMNS
        check_count(names, [2], model)
        table.require(names)
        pairs = list(zip(*map(table.plain_texts, names), strict=True))
        for index, pair in enumerate(pairs):
            if not all(map(str.strip, pair)):
                place = table.place(index)
                raise InputError(f"{place}: question and context must not be empty")
        return Split(pairs, None, table)

    # Predictions.

    def texts(self, item: Any) -> dict[str, str]:
        """Return the id, if there is one, and the question without its context."""
        own = {"id": item.id} if isinstance(item, Question) else {}
        return own | {"question": texts_of(item)[0]}

    def gold(self, item: Question, target: Any) -> list[str]:
        """Return the texts of all gold answers; the target lacks those not located."""
        return list(dict.fromkeys(answer.text for answer in item.answers))

    def record(
        self, model: QuestionAnswerer, item: Any, details: QAPrediction
    ) -> dict[str, Any]:
        """Return the answer, the score of no answer, and the candidates."""
        text = details.answer_text(model.null_threshold)
        nbest = list(map(dataclasses.asdict, details.nbest))
        return {"answer": text, "null_odds": details.null_odds, "nbest": nbest}

    def cells(
        self, model: QuestionAnswerer, record: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the answer, and the best candidate, which is empty for no answer."""
        empty = {"text": "", "probability": 0.0}
        best = next((one for one in record["nbest"] if one["text"]), empty)
        return {
            "prediction": record["answer"],
            "best": best["text"],
            "probability": round(best["probability"], 6),
            "null_odds": float(f"{record['null_odds']:.6g}"),
        }

    # Scores.

    def scores(self, scored: ScoredSplit) -> dict[str, float]:
        """Compute the official scores; for SQuAD 2.0 with the best thresholds."""
        questions, threshold = scored.split.items, scored.model.null_threshold
        answers = {q.id: p for q, p in zip(questions, scored.details, strict=True)}
        texts = {key: answer.text for key, answer in answers.items()}
        if threshold is None:
            return float_scores(score_v1(questions, texts), scored.metrics)
        # The odds of a diverged model are NaN, which counts as no answer.
        most = sys.float_info.max
        odds = {
            key: answer.null_odds if math.isfinite(answer.null_odds) else most
            for key, answer in answers.items()
        }
        scores = score_v2(questions, texts, odds, threshold)
        return float_scores(scores, scored.metrics)

    def mistakes(self, scored: ScoredSplit) -> Iterator[Mistake]:
        """Yield answers that no gold answer is equal to."""
        for question, answer in zip(scored.split.items, scored.details, strict=True):
            text = answer.answer_text(scored.model.null_threshold)
            golds = [gold.text for gold in question.answers] or [""]
            if any(exact(gold, text) for gold in golds):
                continue
            sizes = (c.probability for c in answer.nbest if c.text == text)
            shown = " / ".join(dict.fromkeys(golds)) or "no answer", text or "no answer"
            yield Mistake(question.question, *shown, max(sizes, default=0.0))

    def degenerate(self, scored: ScoredSplit) -> str | None:
        """Describe predictions that are the same for all questions."""
        threshold = scored.model.null_threshold
        texts = {answer.answer_text(threshold) for answer in scored.details}
        if texts == {""}:
            return "predicts no answer to any question"
        return f"always predicts {texts.pop()!r}" if len(texts) == 1 else None

    def tune(self, scored: ScoredSplit) -> None:
        """Set the threshold of the null odds with the best F1 on dev."""
        if scored.model.null_threshold is None:
            return
        scores = self.scores(scored)
        scored.model.set_decision(scores["best_f1_thresh"])
        if self.scores(scored)["f1"] < scores["best_f1"]:
            # No answer to any question scores best. The official script returns 0 for
            # this case, so choose a threshold below all odds.
            odds = [answer.null_odds for answer in scored.details]
            lowest = min(filter(math.isfinite, odds), default=0.0)
            scored.model.set_decision(lowest - 1.0)

    def write(self, scored: ScoredSplit, path: str) -> None:
        """Write a folder with predictions.json, null_odds.json and nbest.json."""
        os.makedirs(path, exist_ok=True)
        files = {"predictions": "answer", "null_odds": "null_odds", "nbest": "nbest"}
        ids = [question.id for question in scored.split.items]
        records = [self.record(scored.model, None, one) for one in scored.details]
        for name, key in files.items():
            values = (record[key] for record in records)
            content = dict(zip(ids, values, strict=True))
            write_lines(f"{path}/{name}.json", [json_text(content, indent=2)])


def _metrics(allows_null: bool) -> tuple[str]:
    return ("best_f1" if allows_null else "f1",)


def _require_gold(questions: Sequence[Question], allows_null: bool) -> None:
    """Raise an error for a question without gold answers."""
    for one in questions:
        if one.impossible and not allows_null:
            raise InputError(
                f"{one.place}: `is_impossible` is true, so there are no gold answers; "
                "train with --task=squad2"
            )
        if one.gold is None:
            raise InputError(f"{one.place}: no `answers`, so there are no gold answers")


def _question_split(questions: Sequence[Question]) -> Split:
    """Return questions as a split, without targets if no question has gold."""
    is_labelled = any(q.answers or q.impossible for q in questions)
    return Split(questions, [q.located for q in questions] if is_labelled else None)


def _articles(questions: Sequence[Question]) -> list[str]:
    """Return the article of each question, by title or else by context.

    A file whose titles are all equal has an article for each context.
    """
    has_titles = len({question.title for question in questions}) > 1
    return [(has_titles and q.title) or q.context for q in questions]
