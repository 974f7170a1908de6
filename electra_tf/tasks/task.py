"""What every task is: parts of data, a model, scores."""

import abc
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.tasks.batching import EncodedExamples
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.text_model import TextModel


@dataclasses.dataclass(frozen=True)
class Split:
    """A split of a task's data, read."""

    items: Sequence[Any]
    """What a model's `examples` and `predict` take."""
    targets: Sequence[Any] | None
    """What should be said of each; None: not known."""
    places: Sequence[str] | None = dataclasses.field(default=None, compare=False)
    """FILE:LINE of each; None: its number among the items is its row's number."""

    def __len__(self) -> int:
        return len(self.items)


class Task(abc.ABC):
    """Data, read and checked, with what is to be learnt of it.

    Args:
        name: As typed.
        parts: By name: `train`, unless a trained model is evaluated; those that are
            measured on, those that are not labelled.
        metric: The name of the score that tells trials apart; more is better.

    Raises:
        InputError: Nothing to learn from, or nothing to measure on.
    """

    def __init__(self, name: str, parts: Mapping[str, Split], metric: str):
        self.name, self.splits, self.metric = name, dict(parts), metric
        empty = "train" in self.splits and not len(self.splits["train"])
        if empty or not self.eval_splits:
            raise InputError(
                "A task has examples to learn from, and a labelled part to measure on",
                ", ".join(f"{part} with {len(p)}" for part, p in self.splits.items())
                + f"; labelled beside train: {', '.join(self.eval_splits) or 'none'}",
                "Check the files, and what was left out of them",
            )

    @property
    def eval_splits(self) -> dict[str, Split]:
        """The labelled parts that are not trained on; the first one is dev."""
        return {
            name: part
            for name, part in self.splits.items()
            if name != "train" and part.targets is not None and len(part)
        }

    @property
    def monitor(self) -> str:
        """The dev part's metric, as logs name it: `dev_mcc`."""
        return f"{next(iter(self.eval_splits))}_{self.metric}"

    @property
    def label_counts(self) -> str:
        """What the training part holds of each class, in words; empty: no classes."""
        return ""

    @property
    def fingerprint(self) -> str:
        """A checksum of all parts, wherever their files lie."""
        digest = hashlib.sha256()
        for name, part in self.splits.items():
            digest.update(f"{name} {len(part)} {part.targets is None}\n".encode())
            for item in part.items:
                if dataclasses.is_dataclass(item):
                    item = dataclasses.replace(item, source="")
                digest.update(repr(item).encode())
            for target in part.targets or ():
                digest.update(repr(target).encode())
        return digest.hexdigest()

    @abc.abstractmethod
    def model(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int
    ) -> TextModel:
        """A model of this task on an encoder."""

    @abc.abstractmethod
    def training_examples(self, model: TextModel) -> EncodedExamples:
        """What the model is trained on."""

    def predictions(self, model: TextModel, part: Split) -> Any:
        """What the model says of a part, as `score` and `lines` take it.

        Args:
            model: Of this task.
            part: Any.

        Returns:
            What its `predict` returns, unless a task needs more.
        """
        return model.predict(part.items)

    def tune_threshold(self, model: TextModel, predictions: Any) -> Any:
        """Sets what a trained model decides by.

        Args:
            model: Of this task, trained.
            predictions: What it says of the first measured part.

        Returns:
            The predictions, decided so.
        """
        return predictions

    @abc.abstractmethod
    def score(self, part: Split, predictions: Any) -> dict[str, float]:
        """Scores of what the model's `predict` said, by name."""

    @abc.abstractmethod
    def degenerate(self, part: Split, predictions: Any) -> str | None:
        """What is wrong with a model that learnt nothing, in words."""

    @abc.abstractmethod
    def write(self, part: Split, predictions: Any, path: str) -> None:
        """What the model said as files; the path lacks their ending."""
