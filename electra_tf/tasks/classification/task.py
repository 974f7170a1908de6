"""Task of classifying or scoring texts and pairs of texts, and the tasks of GLUE."""

import collections
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.tasks import glue, metrics
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.splits import drop_places, make_split
from electra_tf.tasks.tables import require_columns
from electra_tf.tasks.task import Split, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.data_errors import DataErrorLog

_MAX_SHOWN = 20


class ClassificationTask(Task):
    """Task of predicting classes or scores of texts or pairs."""

    def __init__(
        self,
        name: str,
        splits: dict[str, Split],
        metrics: Sequence[str],
        labels: Sequence[str] | None = None,
        bounds: tuple[float, float] = (0.0, 1.0),
        unordered: bool = False,
        clipped: bool = True,
    ):
        super().__init__(name, splits, metrics[0])
        self.metrics, self.labels = tuple(metrics), labels and tuple(labels)
        self.bounds, self.unordered, self._clipped = bounds, unordered, clipped

    @property
    def label_counts(self) -> str:
        """Training examples of each class as `2,443 of class '0', ...`.

        An unexpected class in this list is usually a mistake of the file.
        """
        if self.labels is None:
            return ""
        counts = collections.Counter(self.splits["train"].targets)
        words = [f"{counts[label]:,} of class {label!r}" for label in self.labels]
        more = [f"and {len(words) - _MAX_SHOWN:,} more"] * (len(words) > _MAX_SHOWN)
        return ", ".join(words[:_MAX_SHOWN] + more)

    def model(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int
    ) -> TextModel:
        """Create a classifier or a regressor."""
        if self.labels is None:
            return TextRegressor(start, *self.bounds, settings=settings, seed=seed)
        return TextClassifier(start, self.labels, settings, seed)

    def training_examples(self, model: TextModel) -> EncodedExamples:
        """Encode the training split, pairs of an `unordered` task in both orders."""
        train = self.splits["train"]
        texts, targets = list(train.items), list(train.targets or ())
        if self.unordered and model.settings.data.double_unordered:
            texts += [tuple(reversed(pair)) for pair in texts]
            targets *= 2
        return model.examples(texts, targets)

    def score(self, split: Split, predictions: Any) -> dict[str, float]:
        """Compute the metrics of the task, in percent but for `mse`."""
        targets, predicted = self._targets_and_predictions(split, predictions)
        return {
            name: metrics.METRICS[name](targets, predicted) for name in self.metrics
        }

    def degenerate(self, split: Split, predictions: Any) -> str | None:
        """Describe constant or non-finite predictions; None if there are none."""
        targets, predicted = self._targets_and_predictions(split, predictions)
        description = metrics.describe_degenerate(predicted, targets)
        if description and self.labels is not None:
            return f"always predicts {self.labels[int(predicted[0])]}"
        return description

    def write(self, split: Split, predictions: Any, path: str) -> None:
        """Write `PATH.tsv` in GLUE's format, with the source of each row if known."""
        lines = ["index\tprediction", *self.answers(predictions)]
        if split.places is not None:
            rows = zip(lines, ["place", *split.places], strict=True)
            lines = [f"{line}\t{place}" for line, place in rows]
        pathlib.Path(f"{path}.tsv").write_text("\n".join(lines) + "\n", "utf-8")

    def answers(self, predictions: Any) -> list[str]:
        """Format predictions as lines of index and label, or index and score."""
        if self.labels is None:
            words = [f"{score:.7g}" for score in self._scores(predictions)]
        else:
            words = [self.labels[class_id] for class_id in np.argmax(predictions, -1)]
        return [f"{index}\t{word}" for index, word in enumerate(words)]

    def _scores(self, predictions: Any) -> np.ndarray:
        """Return the predicted scores as they are written and compared."""
        scores = np.array(predictions, np.float64)
        return np.clip(scores, *self.bounds) if self._clipped else scores

    def _targets_and_predictions(
        self, split: Split, predictions: Any
    ) -> tuple[Any, Any]:
        """Return targets and predictions, both as scores or both as class ids."""
        targets = split.targets or ()
        if self.labels is None:
            return np.array(targets, np.float64), self._scores(predictions)
        class_ids = [self.labels.index(label) for label in targets]
        return np.array(class_ids), np.argmax(predictions, -1)


def glue_task(name: str, data: str, log: DataErrorLog) -> ClassificationTask:
    """Read the files of a GLUE task."""
    training_name = "mnli" if name == "ax" else name
    if name == "ax":
        glue.require(data, name, glue.TASKS[name].test[0])
    task, splits = glue.TASKS[training_name], {}
    train_path = glue.require(data, training_name, "train")
    splits["train"] = _read_glue_split(training_name, train_path, log)
    glue.require(data, training_name, task.dev[0])
    for stem in task.dev:
        if path := glue.find(data, training_name, stem):
            splits[stem] = _read_glue_split(training_name, path, log)
    tests = {stem: training_name for stem in task.test}
    tests |= {stem: "ax" for stem in glue.TASKS["ax"].test if training_name == "mnli"}
    for stem, test_name in tests.items():
        if path := glue.find(data, test_name, stem):
            splits[stem] = _read_glue_split(test_name, path, log, labelled=False)
    return ClassificationTask(
        name, splits, task.metrics, task.labels, task.range, task.unordered
    )


def _read_glue_split(
    name: str, path: str, log: DataErrorLog, labelled: bool = True
) -> Split:
    task, errors_before = glue.TASKS[name], log.counts.total()
    rows = glue.read(path, name, log)
    target = task.label if labelled else None
    require_columns(rows, (*task.texts, *([target] if labelled else [])))
    split = make_split(
        rows,
        task.texts,
        target,
        log,
        has_scores=task.labels is None,
        labels=task.labels,
        bounds=task.range,
    )
    return drop_places(split, path, log.counts.total() - errors_before)
