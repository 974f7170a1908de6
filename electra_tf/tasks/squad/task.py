"""SQuAD as a task: questions on paragraphs, some of them without an answer."""

import dataclasses
import math
import os
import sys

from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.tasks.batching import EncodedExamples
from electra_tf.tasks.data.tables import TFDS
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.squad.decoding import QAPrediction, write_predictions
from electra_tf.tasks.squad.metrics import score_v1, score_v2
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.squad.reader import (
    STEMS,
    Answer,
    Question,
    find_squad,
    for_training,
    read_squad,
    split_by_article,
)
from electra_tf.tasks.task import Split, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.sources import load_tfds

_SURELY = sys.float_info.max


@dataclasses.dataclass(frozen=True)
class SquadPredictions:
    """What a model says of a part's questions."""

    answers: list[QAPrediction]
    """In the questions' order."""
    threshold: float | None
    """Odds above which there is no answer; None: there always is one."""


class SquadTask(Task):
    """Questions, scored by the official rules.

    Args:
        name: `squad1` or `squad2`.
        parts: By name; items are questions, targets their answers.

    Raises:
        InputError: As `Task`; a measured question without gold.
    """

    def __init__(self, name: str, parts: dict[str, Split]):
        self._nulls = name == "squad2"
        super().__init__(name, parts, "best_f1" if self._nulls else "f1")
        # What cannot be scored is told now, not after the first epoch.
        for part in self.eval_splits.values():
            self.score(
                part, SquadPredictions([QAPrediction("", 0.0, ())] * len(part), 0.0)
            )

    def model(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int
    ) -> TextModel:
        """An answerer."""
        threshold = 0.0 if self._nulls else None
        return QuestionAnswerer(start, threshold, settings, seed)

    def training_examples(self, model: TextModel) -> EncodedExamples:
        """Windows of the training questions."""
        part = self.splits["train"]
        return model.examples(part.items, part.targets)

    def predictions(self, model: TextModel, part: Split) -> SquadPredictions:
        """The best answers of each question."""
        return SquadPredictions(model.answered(part.items), model.null_threshold)

    def tune_threshold(
        self, model: TextModel, predictions: SquadPredictions
    ) -> SquadPredictions:
        """Takes the threshold with the best F1 on dev, for `predict` and the files."""
        if not self._nulls:
            return predictions
        dev = next(iter(self.eval_splits.values()))
        found = self.score(dev, predictions)
        tuned = SquadPredictions(predictions.answers, found["best_f1_thresh"])
        if self.score(dev, tuned)["f1"] < found["best_f1"]:
            # Answering nothing is best, for which the official script says 0.
            odds = [one.null_odds for one in predictions.answers]
            tuned = SquadPredictions(predictions.answers, min(odds) - 1.0)
        model.null_threshold = tuned.threshold
        return tuned

    def score(self, part: Split, predictions: SquadPredictions) -> dict[str, float]:
        """The official scores; for SQuAD 2 with the thresholds that are best here."""
        pairs = list(zip(part.items, predictions.answers, strict=True))
        texts = {question.id: said.text for question, said in pairs}
        if not self._nulls:
            return score_v1(part.items, texts)
        # A diverged model's odds are no numbers: it counts as answering nothing.
        odds = {
            question.id: said.null_odds if math.isfinite(said.null_odds) else _SURELY
            for question, said in pairs
        }
        limit = 0.0 if predictions.threshold is None else predictions.threshold
        found = score_v2(part.items, texts, odds, limit)
        # The score that tells trials apart stands first; how many questions there are
        # is no score.
        found = {"best_f1": found.pop("best_f1"), **found}
        return {name: v for name, v in found.items() if not name.endswith("total")}

    def degenerate(self, part: Split, predictions: SquadPredictions) -> str | None:
        """Whether it answers nothing, or says the same to all questions."""
        limit = predictions.threshold
        said = {one.decided(limit) for one in predictions.answers}
        if said == {""}:
            return "answers no question"
        return f"always says {said.pop()!r}" if len(said) == 1 else None

    def write(self, part: Split, predictions: SquadPredictions, path: str) -> None:
        """A folder with predictions.json, null_odds.json and nbest.json."""
        pairs = zip(part.items, predictions.answers, strict=True)
        named = {question.id: said for question, said in pairs}
        write_predictions(path, named, predictions.threshold)


def squad_task(
    name: str, data: str, settings: DataConfig, log: DataErrorLog
) -> SquadTask:
    """Reads files of SQuAD's layout.

    Args:
        name: `squad1` or `squad2`.
        data: A folder with train.json (or train-v2.0.json), dev and perhaps test; or
            a file, of which whole articles become dev; or `tfds:squad/v2.0`.
        settings: The share of them.
        log: Where bad records are told.

    Returns:
        The task.

    Raises:
        InputError: No such files, a bad record.
    """
    if data.startswith(TFDS):
        splits = {"train": "train", "dev": "validation"}
        found = {part: _of_tfds(data, split) for part, split in splits.items()}
    elif os.path.isfile(data):
        questions = read_squad(data, log)
        share, seed = settings.dev_share, settings.split_seed
        train, dev = split_by_article(questions, share, seed)
        found = {"train": train, "dev": dev}
    else:
        paths = {
            part: find_squad(data, part, name) for part in ("train", "dev", "test")
        }
        found = {p: read_squad(path, log) for p, path in paths.items() if path}
        missing = {"train", "dev"} - found.keys()
        if missing:
            raise InputError(
                f"--data is a file of questions, or a folder with train.json and "
                f"dev.json (or train{STEMS[name]}.json)",
                f"{data!r} without {' and '.join(sorted(missing))}",
                "Check the path; a single file is split by article",
            )
    found["train"] = for_training(found["train"], log)
    return SquadTask(name, {part: _part(qs) for part, qs in found.items()})


def _part(questions: list[Question]) -> Split:
    known = any(q.answers or q.impossible for q in questions)
    answers = [q.located for q in questions]
    return Split(questions, answers if known else None)


def _of_tfds(data: str, split: str) -> list[Question]:
    name = data.removeprefix(TFDS)
    found, _ = load_tfds(name, split)
    questions = []
    for record, row in enumerate(found.as_numpy_iterator(), 1):
        texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
        answers = tuple(
            Answer(text.decode(), int(start))
            for text, start in zip(texts, starts, strict=True)
        )
        words = (row[key].decode() for key in ("id", "question", "context"))
        impossible = bool(row.get("is_impossible", False))
        title, source = row["title"].decode(), f"{data}@{split}"
        questions.append(Question(*words, answers, impossible, title, source, record))
    return questions
