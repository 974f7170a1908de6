"""Metrics of `compile`, each with the targets and predictions that it is written for.

A model has logits and class ids. Keras's metrics are written for probabilities, for ids
of predicted classes or for logits, and for class ids or one-hot rows as targets.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.trainers.compile_utils import MetricsList  # checked with Keras 3.15

from electra_tf.errors import InputError, format_list
from electra_tf.tasks import keras_metrics
from electra_tf.tasks.examples import Inputs
from electra_tf.tasks.labels import THRESHOLD
from electra_tf.tasks.losses import class_targets


class Form(NamedTuple):
    """Targets and predictions that a metric is written for."""

    targets: str
    """`given`, `ids`, `one_hot`; or `distribution`: one-hot, or the given shares."""
    predictions: str
    """`probabilities`, `ids`, `logits`; or `sets`, zeros and ones."""
    binary: bool = False
    """Whether only class 1 of two is meant, as a sigmoid would give it."""


_CUSTOM = Form("given", "probabilities")

# Classes of `keras.metrics` and `keras_metrics`, and functions without a class.
_CLASS_METRICS = {
    Form("ids", "ids"): "Accuracy F1 IoU MatthewsCorrelation MeanIoU",
    Form("one_hot", "ids"): "OneHotIoU OneHotMeanIoU",
    Form("ids", "probabilities"): """SparseCategoricalAccuracy
        SparseCategoricalCrossentropy SparseTopKCategoricalAccuracy""",
    Form("one_hot", "probabilities"): """CategoricalAccuracy CategoricalHinge F1Score
        FBetaScore TopKCategoricalAccuracy""",
    Form("distribution", "probabilities"): """CategoricalCrossentropy CosineSimilarity
        KLDivergence LogCoshError MeanAbsoluteError MeanSquaredError
        MeanSquaredLogarithmicError Poisson R2Score RootMeanSquaredError
        categorical_focal_crossentropy huber log_cosh""",
    Form("one_hot", "probabilities", True): """AUC BinaryAccuracy BinaryIoU
        FalseNegatives FalsePositives Precision PrecisionAtRecall Recall
        RecallAtPrecision SensitivityAtSpecificity SpecificityAtSensitivity
        TrueNegatives TruePositives""",
    Form("distribution", "probabilities", True): """BinaryCrossentropy
        binary_focal_crossentropy""",
}
# Of models whose texts have any number of classes.
_LABEL_SET_METRICS = {
    Form("given", "sets"): "F1",
    _CUSTOM: """AUC BinaryAccuracy BinaryCrossentropy BinaryIoU CosineSimilarity
        F1Score FBetaScore FalseNegatives FalsePositives LogCoshError MeanAbsoluteError
        MeanSquaredError Precision PrecisionAtRecall R2Score Recall RecallAtPrecision
        RootMeanSquaredError SensitivityAtSpecificity SpecificityAtSensitivity
        TrueNegatives TruePositives binary_focal_crossentropy huber log_cosh""",
}
_SCORE_METRICS = """LogCoshError MeanAbsoluteError MeanAbsolutePercentageError
    MeanSquaredError MeanSquaredLogarithmicError Pearson Poisson R2Score
    RootMeanSquaredError Spearman huber log_cosh"""

_LEAVE_OUT = "Leave it out"
_REFUSED = {
    "Mean Sum": (
        "takes values, not targets and predictions",
        "Pass keras.metrics.MeanMetricWrapper(function) or the function itself",
    ),
    "Metric": ("has no computation of its own", "Pass one of its subclasses"),
    "PearsonCorrelation ConcordanceCorrelation": (
        "is a mean over rows or batches, not the correlation over all texts",
        'Compile a TextRegressor with "pearson" or "spearman"',
    ),
    "Hinge SquaredHinge": (
        "takes decision values below and above 0, which no probability is",
        None,
    ),
    "MeanAbsolutePercentageError": ("divides by the target, 0 in one-hot rows", None),
}


def _by_key(table: Mapping[Any, str]) -> dict[str, Any]:
    return {_key(name): value for value, row in table.items() for name in row.split()}


def _key(name: str) -> str:
    """Return one key for `KLDivergence` and `kl_divergence`."""
    return name.replace("_", "").lower()


# Metrics that do not state whether higher is better: of Keras, and means of a model.
_DIRECTIONS = _by_key(
    {
        "up": "TruePositives TrueNegatives accuracy subset_accuracy",
        "down": "FalsePositives FalseNegatives mse",
    }
)
_FORMS = {
    "classes": _by_key(_CLASS_METRICS),
    "label_sets": _by_key(_LABEL_SET_METRICS),
    "scores": _by_key({_CUSTOM: _SCORE_METRICS}),
}
_REASONS = {_key(n): why for names, why in _REFUSED.items() for n in names.split()}


class _Compiled(NamedTuple):
    metric: keras.metrics.Metric
    form: Form
    is_weighted: bool


class _Direction(NamedTuple):
    """Name of a metric, and whether higher (`up`) or lower is better."""

    name: str
    direction: str

    @property
    def _direction(self) -> str:
        return self.direction


class _Loss(MetricsList):
    """Mean loss of a model, with the directions of its metrics.

    With mode="auto", callbacks of Keras look for the monitored metric within the
    `metrics` of lists of this class, and not among the metrics of the model.
    """

    def __init__(
        self, mean: keras.metrics.Metric, metrics: Sequence[keras.metrics.Metric]
    ):
        directions = {metric.name: _direction(metric) for metric in metrics}
        known = [_Direction(*item) for item in directions.items() if item[1]]
        super().__init__(known, mean.name)
        self.mean = mean
        """Metric of Keras, which the training step updates."""

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Update the mean."""
        self.mean.update_state(*args, **kwargs)

    def reset_state(self) -> None:
        """Reset the mean."""
        self.mean.reset_state()

    def result(self) -> Any:
        """Return the mean."""
        return self.mean.result()

    @property
    def total(self) -> keras.Variable:
        """Sum of the losses, as of `keras.metrics.Mean`."""
        return self.mean.total

    @property
    def count(self) -> keras.Variable:
        """Sum of their weights."""
        return self.mean.count


class CompiledMetrics:
    """Metrics of `compile`, validated for a model's class and its `metric_kind`."""

    def __init__(
        self,
        model: str,
        kind: str | None,
        num_outputs: int,
        metrics: Any = None,
        weighted_metrics: Any = None,
        own: Sequence[keras.metrics.Metric] = (),
    ):
        self._model, self._kind, self._num_outputs = model, kind, num_outputs
        self.own = tuple(own)
        """Metrics of the task, which are compiled with every model."""
        self._loss: _Loss | None = None
        names = [metric.name for metric in own]
        self._compiled = [
            self._compile(identifier, is_weighted)
            for is_weighted, identifiers in enumerate([metrics, weighted_metrics])
            for identifier in keras.tree.flatten(identifiers or [])
            if not (isinstance(identifier, str) and identifier in names)
        ]
        names = ["loss", *(metric.name for metric in self.metrics)]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise InputError(
                "Each metric of compile must have a name of its own",
                f"{format_list(sorted(repeated))} among {format_list(names)}",
                'Set the name, as in keras.metrics.AUC(name="second")',
            )

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The metrics, in the order of `compile`."""
        return [compiled.metric for compiled in self._compiled]

    def merged(self, own: list[keras.metrics.Metric]) -> list[keras.metrics.Metric]:
        """Return the loss, these metrics, and the model's whose names are not taken."""
        names = {metric.name for metric in self.metrics}
        own = [metric for metric in (*own, *self.own) if metric.name not in names]
        metrics = [*self.metrics, *own[1:]]
        if own and (self._loss is None or self._loss.mean is not own[0]):
            self._loss = _Loss(own[0], metrics)
        return [*([self._loss] if own else []), *metrics]

    def update(
        self, inputs: Inputs, batch: tuple, to_rows: Callable[..., tuple]
    ) -> None:
        """Update all metrics.

        `batch` has targets, outputs and weights, which `to_rows` converts to class ids
        [N] or shares of the classes [N, C], zeros and ones [N, C], or scores [N, 1];
        logits [N, C] or scores [N, 1]; and float32 [N].
        """
        for metric in self.own:
            metric.update_state(*batch)
        if self._compiled:
            # Padding rows have no token; unweighted metrics would count them.
            real_N = tf.where(inputs["padding_mask"][:, 0] > 0)[:, 0]
            batch = tf.nest.map_structure(lambda t: tf.gather(t, real_N), batch)
            rows = to_rows(*batch)
            for compiled in self._compiled:
                self._update(compiled, *rows)

    def _update(
        self, compiled: _Compiled, targets: Any, outputs: Any, weights: Any
    ) -> None:
        values = targets, outputs
        if self._kind == "classes":
            values = _class_values(compiled.form, targets, outputs)
        if self._kind == "label_sets":
            values = targets, _label_set_values(compiled.form, outputs)
        arguments = {"sample_weight": weights} if compiled.is_weighted else {}
        compiled.metric.update_state(*values, **arguments)

    def _compile(self, identifier: Any, is_weighted: bool) -> _Compiled:
        metric = _metric(identifier, self._num_outputs, self._kind)
        if self._kind is None:
            reason = "compares one value per text, which this task does not have"
            raise self._error(metric, reason, "Compile without metrics")
        key, is_keras = _lookup(metric)
        form = _FORMS[self._kind].get(key) if is_keras else _CUSTOM
        if form is None:
            other = next((kind for kind in _FORMS if key in _FORMS[kind]), None)
            values = {"classes": "one class per text"}.get(other, other)
            unknown = f"compares {values}" if other else "is not known"
            raise self._error(metric, *_REASONS.get(key, (unknown, None)))
        if is_keras and self._kind == "classes":
            form = self._configured(form, metric, is_weighted)
        if is_keras and self._kind == "label_sets":
            form = self._configured_sets(form, metric)
        compiled = _Compiled(metric, form, is_weighted)
        self._try(compiled)
        return compiled

    def _configured(self, form: Form, metric: Any, is_weighted: bool) -> Form:
        """Apply the settings of a metric to the form of its class."""
        config = {**metric.get_config(), **getattr(metric, "_fn_kwargs", {})}
        if config.get("from_sorted_ids"):
            raise self._error(metric, "takes sorted ids", "Set from_sorted_ids=False")
        count = getattr(metric, "num_classes", self._num_outputs)
        if count < self._num_outputs:
            remedy = f"Use a metric such as keras.metrics.MeanIoU({self._num_outputs})"
            raise self._error(metric, f"has num_classes={count}", remedy)
        if is_weighted and "int" in str(metric.dtype):
            reason = f"rounds weights to its dtype, {metric.dtype}"
            raise self._error(metric, reason, 'Set dtype="float32"')
        if getattr(metric, "sparse_y_true", True) is False:
            form = form._replace(targets="one_hot")
        if getattr(metric, "sparse_y_pred", True) is False:
            form = form._replace(predictions="probabilities")
        chosen = {config.get(name) for name in ("class_id", "top_k")} != {None}
        all_classes = chosen or config.get("multi_label") or self._num_outputs != 2
        one_class = form.binary and not all_classes
        if config.get("from_logits"):
            if form.binary and not one_class:
                reason = "has from_logits=True, but the logits are those of a softmax"
                raise self._error(metric, reason, "Set from_logits=False")
            form = form._replace(predictions="logits")
        return form._replace(binary=one_class)

    def _configured_sets(self, form: Form, metric: Any) -> Form:
        """Apply the settings of a metric of sets of classes to its form."""
        config = {**metric.get_config(), **getattr(metric, "_fn_kwargs", {})}
        if "threshold" in config and config["threshold"] is None:
            reason = "takes the best class alone, with threshold=None"
            raise self._error(metric, reason, "Set threshold=0.5")
        return (
            form._replace(predictions="logits") if config.get("from_logits") else form
        )

    def _try(self, compiled: _Compiled) -> None:
        """Update a metric, without effect on its state, to find errors and build it."""
        targets, outputs = tf.zeros([4, 1]), tf.zeros([4, self._num_outputs])
        if self._kind == "classes":
            targets = tf.zeros([4], tf.int32)
        if self._kind == "label_sets":
            targets = tf.zeros([4, self._num_outputs])
        weights = tf.ones([4])
        try:
            with keras.StatelessScope():
                self._update(compiled, targets, outputs, weights)
        except Exception as error:
            reason = f"fails with {type(error).__name__}: {error}"
            raise self._error(compiled.metric, reason, "Correct it") from error
        if isinstance(compiled.metric, keras_metrics.Spearman):
            compiled.metric.reset_state()  # its state is no variable of Keras

    def _error(self, metric: Any, reason: str, remedy: str | None) -> InputError:
        function = getattr(metric, "_fn", metric)
        if type(metric) is not keras.metrics.MeanMetricWrapper:
            function = type(metric)
        name = getattr(function, "__name__", type(function).__name__)
        count = f" of {self._num_outputs} classes"
        counted = {"classes": count, "label_sets": f"{count} with multi_label"}
        model = self._model + counted.get(self._kind, "")
        return InputError(
            f"A metric of compile must suit a {model}",
            f"{name} {metric.name!r}, which {reason}",
            remedy or _LEAVE_OUT,
        )


def _metric(
    identifier: Any, num_outputs: int, kind: str | None
) -> keras.metrics.Metric:
    """Return the metric of a name, a function, a class or a metric, as Keras does."""
    is_set = kind == "label_sets"
    if isinstance(identifier, str) and identifier in keras_metrics.NAMES:
        return keras_metrics.named_metric(identifier, num_outputs, is_set)
    if identifier in ("accuracy", "acc") and is_set:
        return keras.metrics.BinaryAccuracy(identifier)
    if identifier in ("accuracy", "acc"):
        return keras.metrics.SparseCategoricalAccuracy(identifier)
    try:
        metric = keras.metrics.get(identifier)
    except (ValueError, TypeError) as error:
        raise InputError(
            "A metric of compile must be a metric of Keras, its name, or a function",
            f"{identifier!r:.80}",
            'Pass for example "accuracy", "f1", "auc", or keras.metrics.AUC()',
        ) from error
    if isinstance(metric, keras.losses.Loss):
        raise InputError(
            "A metric of compile must weight each text alike",
            f"the loss {type(metric).__name__}, which averages each batch",
            "Pass the metric or the function of Keras with its name",
        )
    if not isinstance(metric, keras.metrics.Metric):
        name = re.sub(r"\W", "", getattr(metric, "__name__", type(metric).__name__))
        name = re.sub("([a-z0-9])([A-Z])", r"\1_\2", name).lower()  # as Keras does
        metric = keras.metrics.MeanMetricWrapper(metric, name)
    if isinstance(identifier, str):
        metric.name = identifier
    return metric


def _lookup(metric: keras.metrics.Metric) -> tuple[str, bool]:
    """Return the key of a metric or its function, and whether Keras defines it."""
    if type(metric) is keras.metrics.MeanMetricWrapper:
        name, module = (
            str(getattr(metric._fn, attribute, ""))
            for attribute in ("__name__", "__module__")
        )
        return _key(name), module.startswith("keras.")
    general = ("Metric", "Mean", "Sum", "MeanMetricWrapper")
    for kind in type(metric).__mro__:
        if kind.__module__.startswith(("keras.", keras_metrics.__name__)):
            is_own = kind is not type(metric) and kind.__name__ in general
            return _key(kind.__name__), not is_own
    return "", False


def _direction(metric: keras.metrics.Metric) -> str | None:
    """Return whether higher (`up`) or lower (`down`) is better; None: not known."""
    if direction := getattr(metric, "_direction", None):
        return direction
    key, is_keras = _lookup(metric)
    if is_keras and type(metric) is keras.metrics.MeanMetricWrapper:
        try:  # the class of a function, such as `keras.metrics.binary_accuracy`
            return getattr(keras.metrics.get(metric._fn.__name__), "_direction", None)
        except ValueError:
            return None
    if type(metric) is keras.metrics.Mean:  # of a model
        key = _key(metric.name)
    return _DIRECTIONS.get(key)


def _label_set_values(form: Form, logits_NC: Any) -> Any:
    if form.predictions == "logits":
        return logits_NC
    probabilities_NC = tf.sigmoid(logits_NC)
    if form.predictions == "sets":
        return tf.cast(probabilities_NC > THRESHOLD, tf.float32)
    return probabilities_NC


def _class_values(form: Form, targets: Any, logits_NC: Any) -> tuple[Any, Any]:
    ids_N, shares_NC = class_targets(targets)
    one_hot_NC = tf.one_hot(ids_N, logits_NC.shape[-1])
    predictions, targets = (
        logits_NC,
        {
            "given": targets,
            "ids": ids_N,
            "one_hot": one_hot_NC,
            "distribution": one_hot_NC if shares_NC is None else shares_NC,
        }[form.targets],
    )
    if form.predictions == "probabilities":
        predictions = tf.nn.softmax(logits_NC)
    elif form.predictions == "ids":
        predictions = tf.argmax(logits_NC, -1, tf.int32)
    if form.binary:
        targets = targets[:, 1:]
        zero = predictions[:, :1] if form.predictions == "logits" else 0.0
        predictions = predictions[:, 1:] - zero
    return targets, predictions
