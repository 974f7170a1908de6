"""Heads of fine-tuned models: their rows and shapes, and what weights do not say.

Sources: google-research/electra finetune/{classification,qa,tagging}/*_tasks.py, whose
heads have the scope `task_specific/NAME`; transformers modeling_electra.py.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

from electra_tf.config.finetuning import POOLED_VECTORS, Pooler, Pooling
from electra_tf.errors import InputError, format_list
from electra_tf.interop.names import (
    ANSWERABLE,
    CLASSIFICATION_HEADS,
    END_HIDDEN,
    SPAN_HEAD,
    TOKEN_HEAD,
    Format,
    Row,
)

TaskRole = Literal["classifier", "regressor", "token_classifier", "question_answerer"]
TASK_ROLES: tuple[TaskRole, ...] = get_args(TaskRole)
MODEL = "model.keras"  # in the output folder of finetune
_SPAN_HIDDEN = 512  # width of a question answerer's hidden layers, as the original's


@dataclasses.dataclass(frozen=True)
class TaskHead:
    """Head of a fine-tuned model, without its weights."""

    role: TaskRole
    labels: tuple[str, ...] = ()
    """Names of the classes or tags, in the order of the logits."""
    joint_prediction: bool = False
    """Whether the end of an answer is predicted given its start."""
    answerable: bool = False
    """Whether another layer predicts that there is no answer."""
    pooler: Pooler = "none"
    """Hidden layer of a classifier or regressor."""
    pooling: Pooling = "cls"
    """Vector of a text, of a classifier or regressor; other libraries have [CLS]."""
    dropout: float | None = None
    """Dropout rate of a classifier or regressor; None: the default."""
    name: str = ""
    """Name of the task in a TensorFlow 1 checkpoint."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of this package's model: `settings`, `scheme`, `pairs` and others."""

    @property
    def library(self) -> str:
        """Name of the model in transformers: only BERT's head has tanh."""
        return "bert" if self.pooler == "tanh" else "electra"

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows of the weights' names."""
        if self.role == "question_answerer":
            hidden = END_HIDDEN if self.joint_prediction else ()
            return (*SPAN_HEAD, *hidden, *(ANSWERABLE if self.answerable else ()))
        if self.role == "token_classifier":
            return TOKEN_HEAD
        return CLASSIFICATION_HEADS[self.pooler]

    def sizes(self, width: int) -> dict[str, int]:
        """Return sizes of the rows beside those of the encoder."""
        return {
            "pooled": POOLED_VECTORS[self.pooling] * width,
            "units": 1 if self.role == "regressor" else len(self.labels),
            "end": _SPAN_HIDDEN if self.joint_prediction else width,
            "hidden": _SPAN_HIDDEN,
            "two_widths": 2 * width,
        }

    def exists_in(self, format: Format) -> bool:
        """Return whether a library has the same head."""
        if self.pooling != "cls":
            return False
        return all(getattr(row, format) is not None for row in self.rows)


@dataclasses.dataclass(frozen=True)
class HeadOptions:
    """What a user says about the head of a source."""

    task: str | None = None
    """Its task's name in a TensorFlow 1 checkpoint; None: the only one."""
    kind: TaskRole | None = None
    """Its kind, if the released code has no task of that name."""
    labels: tuple[str, ...] = ()
    """Names of its classes or tags; empty: those of the source."""
    pairs: bool = False
    """True: the model takes pairs of texts. Files of other libraries lack this."""


def renamed(head: TaskHead, labels: tuple[str, ...], source: str) -> TaskHead:
    """Return a head with other names of classes or tags."""
    labels = labels or head.labels
    count = 0 if head.role in ("regressor", "question_answerer") else len(head.labels)
    if len(labels) != count or len(set(labels)) != count:
        raise InputError(
            f"The {count} logits of the {head.role} in {source} must have distinct "
            "names",
            format_list(labels) or "none",
            "Run `electra-tf convert` with --labels=NAME,NAME,... in the order of the "
            "logits, and name its result",
        )
    return dataclasses.replace(head, labels=tuple(labels))
