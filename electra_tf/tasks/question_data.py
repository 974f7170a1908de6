"""Read questions in SQuAD's layout."""

import functools
import os
from collections.abc import Sequence

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.score import AnswerScorer
from electra_tf.tasks.splits import Split, find_splits, hold_out_groups
from electra_tf.tasks.squad_json import PUBLISHED, Question, read_squad
from electra_tf.tasks.squad_metrics import require_gold
from electra_tf.tasks.task_data import SPLITS, TaskData
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.rows import JSON_SUFFIXES


def question_split(questions: Sequence[Question]) -> Split:
    """Return questions as a split, without targets if no question has gold."""
    is_labelled = any(q.answers or q.impossible for q in questions)
    return Split(questions, [q.located for q in questions] if is_labelled else None)


def read_questions(
    name: str, data: str, settings: DataConfig, log: DataErrorLog
) -> TaskData:
    """Read files in SQuAD's layout; a single file is split by article."""
    paths = find_splits(data, SPLITS, JSON_SUFFIXES, PUBLISHED[name])
    splits = {split: read_squad(path, log) for split, path in paths.items()}
    if os.path.isfile(data):
        splits = _split_by_article(splits["train"], settings)
    if missing := {"train", "dev"} - splits.keys():
        raise InputError(
            f"--data must be a file of questions, or a folder with train.json and "
            f"dev.json (or .jsonl, {PUBLISHED[name]['train']})",
            f"{data!r} without {' and '.join(sorted(missing))}",
            "Add the missing files, or name the file of questions itself, of which "
            "whole articles become dev",
        )
    splits["train"] = _without_untrainable(splits["train"], log)
    allows_null = name == "squad2"
    parts = {split: question_split(questions) for split, questions in splits.items()}
    threshold = 0.0 if allows_null else None
    model = functools.partial(QuestionAnswerer, null_threshold=threshold)
    task = TaskData(name, parts, AnswerScorer(allows_null), model)
    for split in task.eval_splits.values():
        require_gold(split.items, allows_null)
    return task


def _split_by_article(
    questions: Sequence[Question], settings: DataConfig
) -> dict[str, list[Question]]:
    """Split questions so that each article is in train or in dev.

    Each context is an article if there are not several titles.
    """
    has_titles = len({question.title for question in questions}) > 1
    articles = [(has_titles and q.title) or q.context for q in questions]
    if len(set(articles)) < 2:
        raise InputError(
            "A split by article must have two or more articles",
            f"{len(set(articles))} articles",
            "Pass a folder with train.json and dev.json",
        )
    dev = set(hold_out_groups(articles, settings.dev_share, settings.split_seed))
    splits: dict[str, list[Question]] = {"train": [], "dev": []}
    for index, question in enumerate(questions):
        splits["dev" if index in dev else "train"].append(question)
    return splits


def _without_untrainable(
    questions: Sequence[Question], log: DataErrorLog
) -> list[Question]:
    """Drop answerable questions without an answer in their context."""
    for question in questions:
        if not question.trainable:
            detail = "its context has none of its answers; left out of training"
            remedy = "Correct the answers, or remove the question"
            place = f"{question.source}, question {question.id}"
            log.add(place, 0, "untrainable", detail, remedy)
    return [question for question in questions if question.trainable]
