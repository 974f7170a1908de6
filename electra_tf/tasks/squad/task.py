"""SQuAD tasks: questions about paragraphs; in version 2.0 some have no answer."""

import dataclasses
import math
import os
import sys

from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.spans import QAPrediction, write_predictions
from electra_tf.tasks.squad_json import (
    STEMS,
    Answer,
    Question,
    drop_untrainable,
    find_squad,
    read_squad,
    split_by_article,
)
from electra_tf.tasks.squad_metrics import score_v1, score_v2
from electra_tf.tasks.tables import TFDS
from electra_tf.tasks.task import Split, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.sources import load_tfds

_MAX_ODDS = sys.float_info.max


@dataclasses.dataclass(frozen=True)
class SquadPredictions:
    """Predictions for the questions of a split."""

    answers: list[QAPrediction]
    """One prediction for each question, in order."""
    threshold: float | None
    """Threshold of the null odds, above which the answer is empty; None: never
    empty."""


class SquadTask(Task):
    """Question answering task, scored by the official rules."""

    def __init__(self, name: str, splits: dict[str, Split]):
        self._allows_null = name == "squad2"
        super().__init__(name, splits, "best_f1" if self._allows_null else "f1")
        # Score empty predictions, so that missing gold raises before training.
        for split in self.eval_splits.values():
            empty = [QAPrediction("", 0.0, ())] * len(split)
            self.score(split, SquadPredictions(empty, 0.0))

    def model(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int
    ) -> TextModel:
        """Create a question answerer."""
        threshold = 0.0 if self._allows_null else None
        return QuestionAnswerer(start, threshold, settings, seed)

    def training_examples(self, model: TextModel) -> EncodedExamples:
        """Encode the training questions."""
        train = self.splits["train"]
        return model.examples(train.items, train.targets)

    def predictions(self, model: TextModel, split: Split) -> SquadPredictions:
        """Predict the best answers of each question."""
        return SquadPredictions(model.predict_nbest(split.items), model.null_threshold)

    def tune_threshold(
        self, model: TextModel, predictions: SquadPredictions
    ) -> SquadPredictions:
        """Set the model's threshold to the one with the best F1 on dev."""
        if not self._allows_null:
            return predictions
        dev = next(iter(self.eval_splits.values()))
        scores = self.score(dev, predictions)
        tuned = SquadPredictions(predictions.answers, scores["best_f1_thresh"])
        if self.score(dev, tuned)["f1"] < scores["best_f1"]:
            # No answer to any question scores best. The official script returns 0 for
            # this case, so choose a threshold below all odds.
            odds = [answer.null_odds for answer in predictions.answers]
            tuned = SquadPredictions(predictions.answers, min(odds) - 1.0)
        model.null_threshold = tuned.threshold
        return tuned

    def score(self, split: Split, predictions: SquadPredictions) -> dict[str, float]:
        """Compute the official scores; for SQuAD 2.0 with the best thresholds."""
        pairs = list(zip(split.items, predictions.answers, strict=True))
        texts = {question.id: answer.text for question, answer in pairs}
        if not self._allows_null:
            return score_v1(split.items, texts)
        # The odds of a diverged model are NaN, which counts as no answer.
        odds = {
            question.id: p.null_odds if math.isfinite(p.null_odds) else _MAX_ODDS
            for question, p in pairs
        }
        threshold = 0.0 if predictions.threshold is None else predictions.threshold
        scores = score_v2(split.items, texts, odds, threshold)
        # The metric comes first. Counts of questions are not scores.
        scores = {"best_f1": scores.pop("best_f1"), **scores}
        return {name: v for name, v in scores.items() if not name.endswith("total")}

    def degenerate(self, split: Split, predictions: SquadPredictions) -> str | None:
        """Describe predictions that are the same for all questions."""
        threshold = predictions.threshold
        texts = {answer.answer_text(threshold) for answer in predictions.answers}
        if texts == {""}:
            return "predicts no answer to any question"
        return f"always predicts {texts.pop()!r}" if len(texts) == 1 else None

    def write(self, split: Split, predictions: SquadPredictions, path: str) -> None:
        """Write a folder with predictions.json, null_odds.json and nbest.json."""
        pairs = zip(split.items, predictions.answers, strict=True)
        by_id = {question.id: answer for question, answer in pairs}
        write_predictions(path, by_id, predictions.threshold)


def squad_task(
    name: str, data: str, settings: DataConfig, log: DataErrorLog
) -> SquadTask:
    """Read files in SQuAD's layout."""
    if data.startswith(TFDS):
        tfds_names = {"train": "train", "dev": "validation"}
        splits = {split: _read_tfds(data, n) for split, n in tfds_names.items()}
    elif os.path.isfile(data):
        questions = read_squad(data, log)
        share, seed = settings.dev_share, settings.split_seed
        train, dev = split_by_article(questions, share, seed)
        splits = {"train": train, "dev": dev}
    else:
        paths = {
            split: find_squad(data, split, name) for split in ("train", "dev", "test")
        }
        splits = {s: read_squad(path, log) for s, path in paths.items() if path}
        missing = {"train", "dev"} - splits.keys()
        if missing:
            raise InputError(
                f"--data must be a file of questions, or a folder with train.json and "
                f"dev.json (or .jsonl, train{STEMS[name]}.json)",
                f"{data!r} without {' and '.join(sorted(missing))}",
                "Add the missing files, or name the file of questions itself, of which "
                "whole articles become dev",
            )
    splits["train"] = drop_untrainable(splits["train"], log)
    return SquadTask(name, {split: _split(qs) for split, qs in splits.items()})


def _split(questions: list[Question]) -> Split:
    """Return questions as a split, without targets if no question has gold."""
    is_labelled = any(q.answers or q.impossible for q in questions)
    answers = [q.located for q in questions]
    return Split(questions, answers if is_labelled else None)


def _read_tfds(data: str, split: str) -> list[Question]:
    """Read a split of a prepared TFDS data set."""
    dataset, _ = load_tfds(data.removeprefix(TFDS), split)
    questions = []
    for record, row in enumerate(dataset.as_numpy_iterator(), 1):
        texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
        answers = tuple(
            Answer(text.decode(), int(start))
            for text, start in zip(texts, starts, strict=True)
        )
        fields = (row[key].decode() for key in ("id", "question", "context"))
        impossible = bool(row.get("is_impossible", False))
        title, source = row["title"].decode(), f"{data}@{split}"
        questions.append(Question(*fields, answers, impossible, title, source, record))
    return questions
