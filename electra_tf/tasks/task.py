"""Base class of the fine-tuning tasks: splits of data, a model, scores."""

import abc
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.warnings import UnknownCounter


@dataclasses.dataclass(frozen=True)
class Split:
    """A split of a task's data."""

    items: Sequence[Any]
    """Inputs of the model's `examples` and `predict`."""
    targets: Sequence[Any] | None
    """Target of each item; None: unlabelled."""
    places: Sequence[str] | None = dataclasses.field(default=None, compare=False)
    """FILE:LINE of each item; None: row numbers equal the indices of the items."""

    def __len__(self) -> int:
        return len(self.items)


class Task(abc.ABC):
    """Data of a task, validated, with its model and its scores."""

    def __init__(self, name: str, splits: Mapping[str, Split], metric: str):
        self.name, self.splits, self.metric = name, dict(splits), metric
        empty = "train" in self.splits and not len(self.splits["train"])
        if empty or not self.eval_splits:
            raise InputError(
                "A task must have training examples and a labelled split to evaluate "
                "on",
                ", ".join(f"{n} with {len(s)}" for n, s in self.splits.items())
                + f"; labelled beside train: {', '.join(self.eval_splits) or 'none'}",
                "Check the files, and the rows that were dropped",
            )

    @property
    def eval_splits(self) -> dict[str, Split]:
        """Return the labelled splits other than `train`; the first one is dev."""
        return {
            name: split
            for name, split in self.splits.items()
            if name != "train" and split.targets is not None and len(split)
        }

    @property
    def monitor(self) -> str:
        """Return the name of the dev split's metric, such as `dev_mcc`."""
        return f"{next(iter(self.eval_splits))}_{self.metric}"

    @property
    def label_counts(self) -> str:
        """Return the training examples of each class, as text; empty: no classes."""
        return ""

    @property
    def fingerprint(self) -> str:
        """Return a checksum of all splits, independent of the files' locations."""
        digest = hashlib.sha256()
        for name, split in self.splits.items():
            digest.update(f"{name} {len(split)} {split.targets is None}\n".encode())
            for item in split.items:
                if dataclasses.is_dataclass(item):
                    item = dataclasses.replace(item, source="")
                digest.update(repr(item).encode())
            for target in split.targets or ():
                digest.update(repr(target).encode())
        return digest.hexdigest()

    @abc.abstractmethod
    def model(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int
    ) -> TextModel:
        """Create a model of this task on an encoder."""

    def describe_inputs(
        self, model: TextModel, name: str, examples: EncodedExamples
    ) -> list[str]:
        """Return lines about truncated inputs and [UNK] of a split."""
        # SQuAD's long contexts become several windows; only questions are truncated.
        squad = self.name.startswith("squad")
        setting = "max_query_length" if squad else "max_length"
        unknown = UnknownCounter(model.tokenizer)
        unknown.add(examples.ids)
        lines = unknown.lines(name)
        if examples.truncated:
            lines.append(
                f"{name}: {examples.truncated:,} of {len(examples):,} inputs were "
                f"truncated to data.{setting}={getattr(model.settings.data, setting)}"
            )
        return lines

    @abc.abstractmethod
    def training_examples(self, model: TextModel) -> EncodedExamples:
        """Encode the training split."""

    def predictions(self, model: TextModel, split: Split) -> Any:
        """Return a model's predictions, as `score` and `write` take them."""
        return model.predict(split.items)

    def tune_threshold(self, model: TextModel, predictions: Any) -> Any:
        """Set the decision threshold of a trained model, if it has one."""
        return predictions

    @abc.abstractmethod
    def score(self, split: Split, predictions: Any) -> dict[str, float]:
        """Compute the scores of predictions, by name."""

    @abc.abstractmethod
    def degenerate(self, split: Split, predictions: Any) -> str | None:
        """Describe predictions of a degenerate model, such as a constant; else None."""

    @abc.abstractmethod
    def write(self, split: Split, predictions: Any, path: str) -> None:
        """Write predictions to files named `path` plus a suffix."""
