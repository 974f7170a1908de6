"""Data of a task: its splits, its metrics and its model."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, join_first
from electra_tf.tasks.data.files import Notify
from electra_tf.tasks.data.splits import Split, texts_of
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.tokenizer import WordPieceTokenizer

UNBOUNDED = (-np.inf, np.inf)
_SHOWN = 20  # classes or tags per message
_ROWS = 4096  # of which a checksum is updated at once


@dataclasses.dataclass(frozen=True)
class Reading:
    """Settings and messages of the readers of a task."""

    settings: DataConfig
    notify: Notify
    tokenizer: WordPieceTokenizer | None = None
    """Splits texts with spans of characters into words; None: BERT's rules."""
    given: Collection[str] = ()  # settings that replace those of a trained model


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Labelled data to score a model on."""

    name: str  # name of the task
    splits: Mapping[str, Split]
    metrics: Sequence[str]  # names of scores; the first one compares trials
    bounds: tuple[float, float] = dataclasses.field(default=UNBOUNDED, kw_only=True)
    """Lowest and highest score that is predicted."""


@dataclasses.dataclass(frozen=True)
class TaskData(Labelled):
    """Data of a task, validated, with its model."""

    model: Callable[..., TextModel]  # function of encoder, `settings` and `seed`
    unordered: bool = False  # whether the texts may be exchanged (paraphrases)
    label_counts: str = ""  # training examples of each class, to look for mistakes

    def __post_init__(self):
        if not len(self.splits["train"]) or not self.eval_splits:
            counts = ", ".join(f"{len(s)} of {name}" for name, s in self.splits.items())
            raise InputError(
                f"{self.name} must have training examples, and labelled examples "
                f"beside train, and has {counts}, labelled beside train: "
                f"{', '.join(self.eval_splits) or 'none'}"
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
        return f"{next(iter(self.eval_splits))}_{self.metrics[0]}"

    @property
    def fingerprint(self) -> str:
        """Return a checksum of all splits, independent of the files' locations."""
        digest = hashlib.sha256()
        for name, split in self.splits.items():
            digest.update(f"{name} {len(split)}\n".encode())
            for start in range(0, len(split), _ROWS):
                rows = slice(start, start + _ROWS)
                items, targets = split.items[rows], (split.targets or ())[rows]
                gold = [getattr(item, "gold", None) for item in items]
                content = [list(map(texts_of, items)), targets, gold]
                text = json.dumps(content, default=dataclasses.astuple)
                digest.update(text.encode())
        return digest.hexdigest()

    def training_examples(self, model: TextModel) -> EncodedExamples:
        """Encode the training split, pairs of an `unordered` task in both orders."""
        train = self.splits["train"]
        items, targets = list(train.items), list(train.targets)
        if self.unordered and model.settings.data.double_unordered:
            items += [tuple(reversed(pair)) for pair in items]
            targets *= 2
        examples = model.examples(items, targets)
        if rule := model.settings.training.class_weight:
            return examples.weighted(model.class_weights(targets, rule))
        return examples


def format_counts(counts: Mapping[str, int]) -> str:
    """Return the number of each class or tag as text, the first ones by name."""
    return join_first((f"{number:,} of {n}" for n, number in counts.items()), _SHOWN)
