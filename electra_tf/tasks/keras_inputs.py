"""Convert the arguments of Keras's methods: texts become ids, all is validated.

`prepare` accepts what `fit`, `evaluate` and their single-batch forms accept: texts in
any container, data sets of texts, `EncodedExamples`, ids, or other inputs of Keras.
"""

import math
import numbers
import sys
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks import examples as batches
from electra_tf.tasks import input_warnings, text_inputs
from electra_tf.tasks.data.duplicates import first_equal_items
from electra_tf.tasks.data.missing import REMEDY, complete_rows, fill_missing
from electra_tf.tasks.examples import EncodedExamples, IdRows
from electra_tf.tasks.labels import check_rows, in_order_of
from electra_tf.tasks.losses import squeeze_column
from electra_tf.tasks.optimizer import int_value
from electra_tf.tasks.task_methods import BALANCED, TaskMethods
from electra_tf.text.encoding import to_array, to_rows

INPUT_NAMES = ("token_ids", "segment_ids", "padding_mask")


class Prepared(NamedTuple):
    """Arguments of a method of `keras.Model`."""

    x: Any  # `EncodedExamples` for texts, a data set of ids, or another input of Keras
    y: Any = None
    sample_weight: Any = None
    class_weight: Any = None
    pairs: bool | None = None  # of texts; False: single texts; None: unknown


def prepare(
    model: TaskMethods,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    pairs: bool | None = None,
    warns: bool = True,
) -> Prepared:
    """Encode texts, which must be `pairs` or not, or are either; validate ids.

    `warns`: whether texts that are cut or empty are a warning.
    """
    x = text_inputs.check_input(x)
    _check_balanced(x, class_weight)
    if isinstance(x, tf.data.Dataset) and text_inputs.is_text_dataset(x):
        if sample_weight is not None:
            raise InputError(
                "sample_weight does not apply to a data set of texts; map it to "
                "batches of (texts, targets, weights)"
            )
        dataset, found = text_inputs.tokenize_dataset(
            x, lambda *batch: _encode(model, *batch, class_weight)
        )
        return Prepared(dataset, y, pairs=check_pairs(found, pairs))
    if text_inputs.is_texts(x):
        rows = to_rows(x, model.input_form != "words")
        x = _encode(model, rows, y, sample_weight, class_weight)
        if warns:
            input_warnings.check_examples(model, x)
        y = sample_weight = class_weight = None
    if class_weight is not None:
        model.class_weights([], class_weight)  # raises an error where it is not valid
    if isinstance(x, EncodedExamples):
        require_targets(x.targets, f"{len(x)} examples")
        if class_weight is not None:
            raise InputError("class_weight needs texts and y, not EncodedExamples")
        check_length(max(x.lengths, default=0), model.shape.max_positions)
        if sample_weight is not None:
            exact = x.items is None
            x = x.weighted(to_weights(sample_weight, x.num_items, exact))
        return Prepared(x, y, pairs=check_pairs(x.pairs, pairs))
    if isinstance(x, Mapping):
        check_ids(x, model.shape.max_positions)
        y = _targets_of_ids(model, y)
        sample_weight = to_weights(sample_weight, x["token_ids"].shape[0])
    return Prepared(x, y, sample_weight, class_weight)


def _check_balanced(x: Any, class_weight: Any) -> None:
    """Raise an error for balanced weights of classes that cannot be counted."""
    if class_weight == BALANCED and not text_inputs.is_texts(x):
        raise InputError(
            f"class_weight={BALANCED!r} must be used with a list of texts and y, whose "
            "classes are counted; pass a dictionary of weights by class"
        )


def _takes_columns(model: TaskMethods) -> bool:
    """Return whether targets [N, 1] are one target for each text."""
    return model.metric_kind in ("classes", "scores") and model.input_form == "texts"


def _targets_of_ids(model: TaskMethods, y: Any) -> Any:
    """Return the targets of ids, a column as values; check rows of classes."""
    require_targets(y)
    y = in_order_of(model.output_names, y)
    if model.metric_kind == "label_sets":
        check_rows(y, model.num_outputs)
    is_column = np.ndim(y) == 2 and np.shape(y)[1] == 1
    return np.reshape(y, -1) if _takes_columns(model) and is_column else y


def prepare_batch(
    model: TaskMethods, x: Any, *targets: Any, **options: Any
) -> Prepared:
    """Encode all texts as one batch of ids; arguments as for `prepare`."""
    if isinstance(x, tf.data.Dataset):
        raise InputError(
            "x of a single batch must be a list of texts, or ids, not a data set"
        )
    prepared = prepare(model, x, *targets, **options, warns=False)
    if not isinstance(prepared.x, EncodedExamples):
        return prepared
    return Prepared(*batches.single_batch(prepared.x), pairs=prepared.pairs)


def prepare_fit(
    model: TaskMethods,
    batch_size: int,
    validation_data: Any,
    validation_split: float,
    arguments: Mapping[str, Any],
    x: Any,
    *targets: Any,
) -> tuple[dict[str, Any], bool | None]:
    """Return the arguments of Keras's `fit`, and whether texts are pairs."""
    arguments = dict(arguments)
    if arguments.get("verbose", "auto") == "auto":
        # A file would keep every state of a bar.
        shows_bars = sys.stdout.isatty() or "ipykernel" in sys.modules
        arguments["verbose"] = 1 if shows_bars else 2
    share, y = 0.0 if validation_data is not None else validation_split, targets[0]
    sides = ()
    if share and not isinstance(x, Mapping):
        (x, *targets), validation_data = _split_texts(model, x, *targets, share)
        sides = x, validation_data[0]
    train = prepare(model, x, *targets)
    if isinstance(train.x, EncodedExamples):
        model.check_training(train.x)
    name = "validation_batch_size"
    eval_size = positive_or_default(name, arguments.pop(name, None), batch_size)
    arguments["validation_data"] = _prepare_validation(
        model, validation_data, eval_size, train.pairs
    )
    if sides:  # valid, as all were encoded
        _warn_of_equal_texts(model, *sides)
    _check_order(model, y, arguments.get("shuffle", True), share)
    x = train.x
    if isinstance(x, EncodedExamples):
        if (steps := arguments.get("steps_per_epoch")) is not None:
            raise InputError(
                f"steps_per_epoch={steps!r:.40} does not apply to a list of texts, as "
                "an epoch is one pass over all of them; pass a tf.data.Dataset of "
                "batches of (texts, targets) with repeat()"
            )
        batches.check_replicas(batch_size, model.distribute_strategy)
        epochs = batches.epoch_batch_indices(
            x.lengths,
            batch_size,
            lambda: (int_value(model.seed), int_value(model.optimizer.iterations)),
            shuffle=arguments.get("shuffle", True),
        )
        x = batches.training_dataset(x, batch_size, epochs)
    if isinstance(x, tf.data.Dataset):
        arguments["shuffle"] = False  # Keras warns that it ignores True
    if isinstance(x, Mapping):
        arguments["batch_size"] = batch_size
        if share:
            arguments["validation_split"] = share
    arguments |= {"x": x, "y": train.y, "sample_weight": train.sample_weight}
    return arguments | {"class_weight": train.class_weight}, train.pairs


def _check_order(model: TaskMethods, y: Any, shuffle: Any, share: float) -> None:
    """Warn of targets in the order of labels, if rows keep it."""
    if y is not None and (share or not shuffle):
        y = to_targets(y, _takes_columns(model))
        input_warnings.check_order(model, y, shuffle, share)


def check_pairs(found: bool | None, expected: bool | None) -> bool | None:
    """Return whether texts are pairs; raise if they must be of the other kind."""
    if found is not None and expected not in (None, found):
        kinds = ("single texts", "pairs of texts")
        raise InputError(
            f"The texts must be {kinds[expected]}, as in training, not {kinds[found]}"
        )
    return found


def _prepare_validation(
    model: TaskMethods, data: Any, batch_size: int, pairs: bool | None
) -> Any:
    is_tuple = isinstance(data, tuple | list) and len(data) in (2, 3)
    prepared = prepare(model, *(data if is_tuple else (data,)), pairs=pairs)
    if isinstance(prepared.x, EncodedExamples):
        batches.check_replicas(batch_size, model.distribute_strategy)
        return batches.eval_dataset(prepared.x, batch_size)
    return prepared[: len(data)] if is_tuple else prepared.x


def _split_texts(
    model: TaskMethods, x: Any, y: Any, weights: Any, class_weight: Any, share: float
) -> tuple[tuple, tuple]:
    """Split off the last texts to validate on; class weights do not apply to them."""
    x = to_array(x)
    if not text_inputs.is_texts(x):
        raise InputError(
            f"validation_split={share!r:.40} with a {type(x).__name__} does not apply; "
            "pass validation_data"
        )
    rows = to_rows(x, model.input_form != "words")
    y = to_targets(in_order_of(model.output_names, y), _takes_columns(model))
    weights = to_weights(weights, len(rows))
    count = num_training_rows(len(rows), share)
    first, last = (
        [None if values is None else values[part] for values in (rows, y, weights)]
        for part in (slice(count), slice(count, None))
    )
    return (*first, class_weight), tuple(last)


def _warn_of_equal_texts(model: TaskMethods, train: list, validation: list) -> None:
    """Warn of texts to validate on that are trained on."""
    first_N = first_equal_items([*train, *validation], model.tokenizer)[len(train) :]
    if count := int((first_N < len(train)).sum()):
        warnings.warn(
            f"{count:,} of the {len(validation):,} texts of validation_split are also "
            "among the texts to train on: scores of new texts may be lower. Leave "
            "out texts that repeat others, or pass validation_data",
            stacklevel=4,  # the caller of `fit`
        )


def _encode(
    model: TaskMethods, rows: list, y: Any, sample_weight: Any, class_weight: Any
) -> EncodedExamples:
    """Encode texts and targets, with the weights of items or of classes."""
    if sample_weight is not None and class_weight is not None:
        raise InputError(
            "Pass sample_weight or class_weight, not both sample_weight and "
            "class_weight; a product of both is a sample_weight"
        )
    y = to_targets(in_order_of(model.output_names, y), _takes_columns(model))
    if model.input_form == "texts":
        rows, y, sample_weight = _complete(model, rows, y, sample_weight)
    examples = model.examples(rows, y)
    if class_weight is not None and y is not None:
        sample_weight = model.class_weights(y, class_weight)
    if sample_weight is None:
        return examples
    return examples.weighted(to_weights(sample_weight, len(rows)))


def _complete(
    model: TaskMethods, rows: list, y: list | None, weights: Any
) -> tuple[list, list | None, Any]:
    """Return rows whose texts are not missing, by `data.missing_text`."""
    rule = model.settings.data.missing_text
    kept, detail = complete_rows(
        rows,
        rule,
        lambda index, detail: InputError(
            f"Texts must not be missing: {detail}, the first at index {index}; {REMEDY}"
        ),
    )
    rows = fill_missing(rows, rule)
    if kept is None:
        return rows, y, weights
    warnings.warn(f"{detail}; they are left out", stacklevel=5)  # the caller of `fit`
    batches.check_num_targets(rows, y, "texts")
    weights = to_weights(weights, len(rows))
    return tuple(
        None if values is None else [values[index] for index in kept]
        for values in (rows, y, weights)
    )


def to_targets(y: Any, columns: bool) -> list[Any] | None:
    """Return targets in any container as a list; one column as values if `columns`."""
    if y is None:
        return None
    if hasattr(y, "to_pylist"):  # of pyarrow
        return y.to_pylist()
    y = y.to_numpy() if hasattr(y, "to_numpy") else y
    y = y.numpy() if tf.is_tensor(y) else y
    if columns and isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    return list(y)


def to_weights(weights: Any, count: int, exact: bool = True) -> np.ndarray | None:
    """Return the weights of items as float32; `exact`: not more than items."""
    if weights is None:
        return None
    rule = "sample_weight must have a finite number of 0 or more for each item, not"
    try:
        values = np.asarray(to_array(weights), np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{rule} {weights!r:.80} ({error})") from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    surplus = len(values) - count if values.ndim == 1 else -1
    if surplus < 0 or (surplus and exact):
        raise InputError(f"{rule} the shape {list(values.shape)} for {count} items")
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise InputError(f"{rule} {values[bad[0]]} at index {bad[0]}")
    return values


def positive_or_default(name: str, value: Any, default: int | None) -> int | None:
    """Return a whole number of 1 or more, or the default."""
    if value is None:
        return default
    if not isinstance(value, numbers.Integral) or value is True or value < 1:
        raise InputError(
            f"{name} must be a whole number of 1 or more, not {name}={value!r:.80}"
        )
    return int(value)


def num_training_rows(count: int, share: float) -> int:
    """Return the number of items to train on, counted as Keras does."""
    is_share = isinstance(share, numbers.Real) and 0 < share < 1
    num_training = math.floor(count * (1.0 - share)) if is_share else 0
    if not 0 < num_training < count:
        raise InputError(
            f"validation_split={share!r:.40} of {count} items must leave one or more "
            "to train and to validate on; or pass validation_data=(texts, targets)"
        )
    return num_training


def steps_per_epoch(arguments: Mapping[str, Any]) -> int:
    """Return the number of steps of an epoch of Keras's `fit`; -1: not known."""
    if arguments.get("steps_per_epoch"):
        return arguments["steps_per_epoch"]
    x = arguments["x"]
    if isinstance(x, tf.data.Dataset):
        return int(x.cardinality())
    if not isinstance(x, Mapping):
        return -1
    count, share = len(x["token_ids"]), arguments.get("validation_split")
    count = num_training_rows(count, share) if share else count
    return -(-count // arguments["batch_size"])


def unpack_batch(data: Any) -> tuple[IdRows, Any, tf.Tensor]:
    """Return inputs, targets and weights of a batch, float32 [B], 1 by default."""
    inputs, targets, weights_B = keras.utils.unpack_x_y_sample_weight(data)
    require_targets(targets)
    if weights_B is None:
        weights_B = tf.ones([tf.shape(inputs["token_ids"])[0]])
    weights_B = squeeze_column(weights_B)
    if weights_B.shape.rank not in (None, 1):
        shape = list(weights_B.shape)
        raise InputError(f"sample_weight must be a number for each row, not {shape}")
    return inputs, targets, tf.reshape(tf.cast(weights_B, tf.float32), [-1])


def require_targets(y: Any, received: str = "ids") -> None:
    """Raise an error if there are no targets."""
    if y is None:
        raise InputError(
            "fit and evaluate need y, the target of each text or row of ids; they got "
            f"{received} without targets"
        )


def check_ids(x: Mapping[str, Any], max_positions: int) -> None:
    """Raise an error if `x` lacks one of `INPUT_NAMES`, or if rows are too long."""
    if missing := [name for name in INPUT_NAMES if name not in x]:
        raise InputError(
            f"A dictionary of ids must have {', '.join(INPUT_NAMES)}, each [B, L]; "
            f"{sorted(map(str, x))} is without {', '.join(missing)}"
        )
    check_length(x["token_ids"].shape[1], max_positions)


def check_length(length: int | None, max_positions: int) -> None:
    """Raise an error if an input is longer than the encoder's positions."""
    if length is not None and length > max_positions:
        raise InputError(
            f"An input of {length} positions is longer than the encoder's "
            f"{max_positions}; truncate or split it, or set "
            f"data.max_length={max_positions} or less"
        )
