"""Heads of fine-tuned models: their rows and shapes, and what weights do not say.

Source: transformers modeling_electra.py.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from electra_tf.config import finetuning
from electra_tf.errors import InputError, format_list
from electra_tf.interop.names import (
    ANSWERABLE,
    END_HIDDEN,
    LAYOUTS,
    SPAN_HEAD,
    TEXT_HEAD,
    TOKEN_HEAD,
    Row,
    pooler_head,
)

MODEL = "model.keras"  # in the output folder of finetune
_SPAN_HIDDEN = 512  # width of a question answerer's hidden layers, as the original's
_ARGUMENTS = ("settings", "name", "trainable")  # of every model


@dataclasses.dataclass(frozen=True)
class HeadForm:
    """Layers of a head, by some of the settings of the model."""

    rows: tuple[Row, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of `TaskHead`, and settings below `model`, which choose this form."""

    def exists_in(self, format: str) -> bool:
        """Return whether a library has the same layers."""
        column = LAYOUTS[format].column
        return all(getattr(row, column) is not None for row in self.rows)


@dataclasses.dataclass(frozen=True)
class HeadKind:
    """Properties of the heads of all models of a kind."""

    model: str  # class of this package
    transformers: str  # end of the class's name, after `Electra`
    forms: tuple[HeadForm, ...]  # the first of a library is to be fine-tuned for it
    has_labels: bool = False  # whether outputs have names; False: one unit
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Fields of `TaskHead` by the names of settings below `model`."""
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


def text_forms(pooler: str, output: str) -> tuple[HeadForm, ...]:
    """Return the forms of a head of a text, by the names of its layers in ELECTRA."""
    return (
        HeadForm(TEXT_HEAD, {"pooler": "none"}),
        HeadForm(pooler_head(pooler, output), {"pooler": "gelu"}),
    )


def _span_form(joint_prediction: bool, answerable: bool) -> HeadForm:
    hidden = END_HIDDEN if joint_prediction else ()
    return HeadForm(
        (*SPAN_HEAD, *hidden, *(ANSWERABLE if answerable else ())),
        {"joint_prediction": joint_prediction, "answerable": answerable},
    )


TEXT_FIELDS = {"pooler": "pooler", "pooling": "pooling", "head_dropout": "dropout"}
"""`HeadKind.fields` of heads on the vector of a text."""
_TEXT_FORMS = text_forms("classifier.dense", "classifier.out_proj")
_SCORE = "LABEL_0"  # transformers' name of a single output

TASK_HEADS: dict[str, HeadKind] = {
    "classifier": HeadKind(
        "TextClassifier",
        "ForSequenceClassification",
        _TEXT_FORMS,
        has_labels=True,
        fields=TEXT_FIELDS,
        arguments=("pairs", "multi_label"),
        problem_types={
            "multi_label_classification": {"multi_label": True},
            "single_label_classification": {},
        },
        other_problem_types=("regression",),
        dropout_keys=("classifier_dropout",),
    ),
    "regressor": HeadKind(
        "TextRegressor",
        "ForSequenceClassification",
        _TEXT_FORMS,
        fields=TEXT_FIELDS,
        arguments=("pairs", "low", "high"),
        problem_types={"regression": {}},
        other_problem_types=("multi_label_classification",),
        dropout_keys=("classifier_dropout",),
        config={"id2label": {"0": _SCORE}, "label2id": {_SCORE: 0}},
    ),
    "token_classifier": HeadKind(
        "TokenClassifier",
        "ForTokenClassification",
        (HeadForm(TOKEN_HEAD),),
        has_labels=True,
        arguments=("scheme",),
    ),
    "choice_classifier": HeadKind(
        "ChoiceClassifier",
        "ForMultipleChoice",
        text_forms("sequence_summary.summary", "classifier"),
        fields=TEXT_FIELDS,
        arguments=("num_choices",),
    ),
    "question_answerer": HeadKind(
        "QuestionAnswerer",
        "ForQuestionAnswering",
        tuple(_span_form(*chosen) for chosen in
              ((True, True), (True, False), (False, True), (False, False))),
        fields={n: n for n in ("joint_prediction", "answerable")},
        arguments=("null_threshold",),
    ),
}  # fmt: skip
"""Heads by the kind of the model, `TextModel.kind`."""


def kind_of(model: str) -> str | None:
    """Return the kind of a class of this package; None: it is no model of a task."""
    return next((n for n, kind in TASK_HEADS.items() if kind.model == model), None)


@dataclasses.dataclass(frozen=True)
class TaskHead:
    """Head of a fine-tuned model, without its weights."""

    role: str  # its kind, one of `TASK_HEADS`
    labels: tuple[str, ...] = ()  # of classes or tags, in the order of the logits
    joint_prediction: bool = False  # of an answer's end, given its start
    answerable: bool = False  # whether another layer predicts that there is no answer
    pooler: finetuning.Pooler = "none"  # hidden layer on the vector of a text
    pooling: finetuning.Pooling = "cls"  # vector of a text; other libraries have [CLS]
    dropout: float | None = None  # rate for the vector of a text; None: default
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of this package's model: `settings`, `scheme`, `pairs` and others."""

    @classmethod
    def of_model(cls, kind: str, arguments: Mapping[str, Any]) -> "TaskHead":
        """Return the head of a model of this package, by its stored arguments."""
        facts = TASK_HEADS[kind]
        defaults = dataclasses.asdict(finetuning.TaskModelConfig())
        chosen = {**defaults, **arguments["settings"].get("model", {})}
        return cls(
            kind,
            tuple(arguments.get("labels", arguments.get("tags", ()))),
            **{field: chosen[setting] for setting, field in facts.fields.items()},
            settings=_selected(arguments, facts),
        )

    @property
    def kind(self) -> HeadKind:
        """Properties of all heads of its kind."""
        return TASK_HEADS[self.role]

    @property
    def form(self) -> HeadForm:
        """Its layers."""
        for form in self.kind.forms:
            if all(getattr(self, n) == value for n, value in form.options.items()):
                return form
        raise ValueError(f"no {self.role} has the layers of {self}")

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
        """Return whether a library has the same head."""
        return self.pooling == "cls" and self.form.exists_in(format)

    def changes_for(self, format: str) -> dict[str, tuple[Any, Any]]:
        """Return settings below `model`, each with its value and that of a library.

        Empty: the library has the head as it is, or none of this kind.
        """
        forms = [form.options for form in self.kind.forms if form.exists_in(format)]
        if not forms:
            return {}
        own = {"pooling": self.pooling, **self.form.options}
        form = self.form.options if self.form.options in forms else forms[0]
        wanted = {"pooling": "cls", **form}
        return {n: (own[n], v) for n, v in wanted.items() if own[n] != v}

    def lacking_in(self, format: str) -> str:
        """Return what a library lacks for the head."""
        changes = self.changes_for(format).items()
        lacking = ", ".join(f"{n}={str(own).lower()}" for n, (own, _) in changes)
        return lacking or f"any head of a {self.role}"

    @property
    def model_settings(self) -> dict[str, Any]:
        """Settings below `model` that the head decides."""
        fields = self.kind.fields.items()
        values = {setting: getattr(self, field) for setting, field in fields}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of this package's model, as far as they are stored."""
        return _selected(self.settings, self.kind)


def describe_way_back(head: TaskHead, format: str) -> str:
    """Return a line on a head that `convert` cannot write; empty: it can.

    `format` is that of the encoder's source.
    """
    if head.exists_in(format):
        return ""
    known = format if head.changes_for(format) else "huggingface"
    changes = head.changes_for(known).items()
    sets = ", ".join(f"model.{name}={str(v).lower()}" for name, (_, v) in changes)
    if known == format:
        return (
            f"note: `convert` cannot write this head to {format}, which lacks "
            f"{head.lacking_in(format)}; set {sets} to convert the model back"
        )
    return (
        f"note: `convert` writes no head of a {head.role} to {format}; to {known} it "
        "does" + f" if you set {sets}" * bool(sets)
    )


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
