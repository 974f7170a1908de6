"""Heads of fine-tuned models: their rows and shapes, and what weights do not say.

Source: transformers modeling_electra.py.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from electra_tf.config import finetuning
from electra_tf.errors import InputError, format_list
from electra_tf.interop.names import (
    ANSWERABLE,
    END_HIDDEN,
    SPAN_HEAD,
    TEXT_HEAD,
    TOKEN_HEAD,
    Row,
    pooler_head,
)

_SPAN_HIDDEN = 512  # width of a question answerer's hidden layers, as the original's
_ARGUMENTS = ("settings", "name", "trainable")  # of every model
_SCORE = "LABEL_0"  # transformers' name of a single output
_TEXT = ("pooler", "pooling", "head_dropout")  # settings of heads on a text's vector
_SPANS = ("joint_prediction", "answerable")
_LIBRARY = "huggingface"  # the only one with heads


@dataclasses.dataclass(frozen=True)
class HeadKind:
    """Properties of the heads of all models of a kind."""

    model: str  # class of this package
    transformers: str  # end of the class's name, after `Electra`
    rows: Callable[["TaskHead"], tuple[Row, ...]]  # layers of a head
    transformers_settings: Mapping[str, Any]  # of `settings`, as transformers has them
    settings: tuple[str, ...] = ()  # below `model`, which a head has
    has_labels: bool = False  # whether outputs have names; False: one unit
    arguments: tuple[str, ...] = ()  # of the class, which are stored beside names
    problem_types: Mapping[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )
    """Values of `problem_type` in config.json, each with the arguments it implies."""
    other_problem_types: tuple[str, ...] = ()
    """Values with which the same weights are another head."""
    dropout_keys: tuple[str, ...] = ()  # keys of the head's dropout rate in config.json
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Other keys of config.json."""


def _text_kind(
    model: str, transformers: str, pooler: str, output: str, **more: Any
) -> HeadKind:
    """Return a kind of heads on the vector of a text, by the layers in ELECTRA."""
    return HeadKind(
        model,
        transformers,
        lambda head: (
            TEXT_HEAD if head.pooler == "none" else pooler_head(pooler, output)
        ),
        {"pooling": "cls", "pooler": "gelu"},
        _TEXT,
        **more,
    )


_OF_CLASSIFIER = {
    "transformers": "ForSequenceClassification",
    "pooler": "classifier.dense",
    "output": "classifier.out_proj",
    "dropout_keys": ("classifier_dropout",),
}
TASK_HEADS: dict[str, HeadKind] = {
    "regressor": _text_kind(
        "TextRegressor",
        **_OF_CLASSIFIER,
        arguments=("pairs", "low", "high"),
        problem_types={"regression": {}},
        other_problem_types=("multi_label_classification",),
        config={"id2label": {"0": _SCORE}, "label2id": {_SCORE: 0}},
    ),
    "classifier": _text_kind(
        "TextClassifier",
        **_OF_CLASSIFIER,
        has_labels=True,
        arguments=("pairs", "multi_label"),
        problem_types={
            "multi_label_classification": {"multi_label": True},
            "single_label_classification": {},
        },
        other_problem_types=("regression",),
    ),
    "choice_classifier": _text_kind(
        "ChoiceClassifier",
        "ForMultipleChoice",
        "sequence_summary.summary",
        "classifier",
        arguments=("num_choices",),
    ),
    "question_answerer": HeadKind(
        "QuestionAnswerer",
        "ForQuestionAnswering",
        lambda head: (
            *SPAN_HEAD,
            *(END_HIDDEN if head.joint_prediction else ()),
            *(ANSWERABLE if head.answerable else ()),
        ),
        dict.fromkeys(_SPANS, False),
        _SPANS,
        arguments=("null_threshold",),
    ),
    "token_classifier": HeadKind(
        "TokenClassifier",
        "ForTokenClassification",
        lambda _: TOKEN_HEAD,
        {},
        has_labels=True,
        arguments=("scheme",),
    ),
}
"""Heads by the kind of the model, `TextModel.kind`.

The first one whose layers a file of transformers has is the head of the file.
"""


@dataclasses.dataclass(frozen=True)
class TaskHead:
    """Head of a fine-tuned model, without its weights."""

    role: str  # its kind, one of `TASK_HEADS`
    labels: tuple[str, ...] = ()  # of classes or tags, in the order of the logits
    joint_prediction: bool = False  # of an answer's end, given its start
    answerable: bool = False  # whether another layer predicts that there is no answer
    pooler: finetuning.Pooler = "none"  # hidden layer on the vector of a text
    pooling: finetuning.Pooling = "cls"  # vector of a text; other libraries have [CLS]
    head_dropout: float | None = None  # rate for that vector; None: default
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of this package's model: `settings`, `scheme`, `pairs` and others."""

    @classmethod
    def of_model(cls, role: str, arguments: Mapping[str, Any]) -> "TaskHead":
        """Return the head of a model of this package, by its stored arguments."""
        kind = TASK_HEADS[role]
        defaults = dataclasses.asdict(finetuning.TaskModelConfig())
        chosen = {**defaults, **arguments["settings"].get("model", {})}
        return cls(
            role,
            tuple(arguments.get("labels", arguments.get("tags", ()))),
            **{name: chosen[name] for name in kind.settings},
            settings=_selected(arguments, kind),
        )

    @property
    def kind(self) -> HeadKind:
        """Properties of all heads of its kind."""
        return TASK_HEADS[self.role]

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its layers."""
        return self.kind.rows(self)

    def sizes(self, width: int) -> dict[str, int]:
        """Return sizes of the rows beside those of the encoder."""
        return {
            "pooled": finetuning.POOLED_VECTORS[self.pooling] * width,
            "units": len(self.labels) if self.kind.has_labels else 1,
            "end": _SPAN_HIDDEN if self.joint_prediction else width,
            "hidden": _SPAN_HIDDEN,
            "two_widths": 2 * width,
        }

    def exists_in(self, format: str) -> bool:
        """Return whether a format has the same head."""
        return format == "electra_tf" or (format == _LIBRARY and not self._changes)

    @property
    def _changes(self) -> dict[str, Any]:
        """Settings below `model` in which transformers differs, with its values."""
        theirs = self.kind.transformers_settings.items()
        return {name: value for name, value in theirs if getattr(self, name) != value}

    def remedies(self, prefix: str = "model.") -> list[str]:
        """Return the settings to fine-tune with for a head that transformers has."""
        return [
            f"{prefix}{n}={str(value).lower()}" for n, value in self._changes.items()
        ]

    @property
    def foreign_settings(self) -> str:
        """Settings of the head that transformers does not have."""
        return ", ".join(f"{n}={str(getattr(self, n)).lower()}" for n in self._changes)

    @property
    def model_settings(self) -> dict[str, Any]:
        """Settings below `model` that the head decides."""
        values = {name: getattr(self, name) for name in self.kind.settings}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of this package's model, as far as they are stored."""
        return _selected(self.settings, self.kind)

    def describe_way_back(self, format: str) -> str:
        """Return a line on a head that `convert` cannot write; empty: it can.

        `format` is that of the encoder's source.
        """
        if self.exists_in(format):
            return ""
        sets = ", ".join(self.remedies())
        if format == _LIBRARY:
            return (
                f"note: `convert` cannot write this head to {format}, which lacks "
                f"{self.foreign_settings}; set {sets} to convert the model back"
            )
        return (
            f"note: `convert` writes no head of a {self.role} to {format}; to "
            f"{_LIBRARY} it does" + f" if you set {sets}" * bool(sets)
        )


def role_of(model: str) -> str | None:
    """Return the role of the head of a class of this package; None: it has none."""
    return next((role for role, one in TASK_HEADS.items() if one.model == model), None)


def _selected(arguments: Mapping[str, Any], kind: HeadKind) -> dict[str, Any]:
    names = (*_ARGUMENTS, *kind.arguments)
    return {name: arguments[name] for name in names if name in arguments}


@dataclasses.dataclass(frozen=True)
class HeadOptions:
    """What a user says about the head of a source."""

    labels: tuple[str, ...] = ()
    """Names of its classes or tags; empty: those of the source."""
    pairs: bool = False  # whether it takes pairs, which other files do not say

    def applied_to(self, head: TaskHead, source: str) -> TaskHead:
        """Return a head with these facts."""
        labels = self.labels or head.labels
        count = len(head.labels) if head.kind.has_labels else 0
        if len(labels) != count or len(set(labels)) != count:
            raise InputError(
                f"the {count} logits of the {head.role} in {source} must have distinct "
                f"names, not {format_list(labels) or 'none'}; run `electra-tf convert` "
                "with --labels=NAME,NAME,... in the order of the logits, and name its "
                "result"
            )
        pairs = {"pairs": True} if self.pairs else {}
        settings = {**head.settings, **pairs}
        return dataclasses.replace(head, labels=tuple(labels), settings=settings)
