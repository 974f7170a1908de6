"""Any input of Keras's methods: texts become `EncodedExamples`, all is validated.

Only this module looks at the types of inputs. These are texts in any container, data
sets of texts, `EncodedExamples`, ids, or other inputs of Keras.
"""

import itertools
import math
import numbers
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks import examples as batches
from electra_tf.tasks import input_warnings
from electra_tf.tasks.data.missing import REMEDY, complete_rows, fill_missing
from electra_tf.tasks.examples import EncodedExamples, IdRows
from electra_tf.tasks.labels import check_rows, in_order_of
from electra_tf.tasks.losses import squeeze_column
from electra_tf.tasks.optimizer import int_value
from electra_tf.text.encoding import to_array, to_rows

INPUT_NAMES = ("token_ids", "segment_ids", "padding_mask")
BALANCED = "balanced"
"""Value of `class_weight`: weights by the inverse of the classes' shares."""


class Inputs(NamedTuple):
    """Arguments of a method of `keras.Model`."""

    x: Any  # `EncodedExamples` for texts, a data set of ids, or another input of Keras
    y: Any = None
    sample_weight: Any = None
    class_weight: Any = None

    def as_batch(self) -> "Inputs":
        """Return all examples as one batch of ids, and ids unchanged."""
        if isinstance(self.x, tf.data.Dataset):
            raise InputError(
                "x of a single batch must be a list of texts, or ids, not a data set"
            )
        if not isinstance(self.x, EncodedExamples):
            return self
        if not len(self.x):
            raise InputError("A batch must have one or more texts")
        batch = self.x.batch(range(len(self.x)), len(self.x))
        return Inputs(*tf.nest.map_structure(tf.convert_to_tensor, batch))


def is_texts(x: Any) -> bool:
    """Return whether an input is texts, not ids or a data set."""
    if isinstance(x, tf.Tensor | tf.RaggedTensor):
        return x.dtype == tf.string and x.shape.rank in (1, 2)
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "OUS" and x.ndim in (1, 2)
    if not isinstance(x, list | tuple):
        return False
    if x and isinstance(x[0], np.ndarray | tf.Tensor):
        return is_texts(x[0])
    return not x or not isinstance(x[0], dict | int | float | np.number)


def check_input(x: Any) -> Any:
    """Return an input for `is_texts` and Keras; reject generators of texts."""
    refused = isinstance(x, set | frozenset)
    if isinstance(x, types.GeneratorType):
        first = list(itertools.islice(x, 1))
        refused, generator = any(map(_has_texts, first)), x
        x = (element for element in itertools.chain(first, generator))
    elif isinstance(x, keras.utils.PyDataset):
        refused = _has_texts(x[0])
    elif isinstance(x, Iterator) and not isinstance(x, tf.data.Iterator):
        refused = True
    if refused:
        raise InputError(
            f"Texts cannot be read from a {type(x).__name__}: pass a list of texts, "
            "such as list(x), or a tf.data.Dataset of batches of (texts, targets)"
        )
    if isinstance(x, list) and x and isinstance(x[0], numbers.Number):
        raise InputError(f"Texts must be strings, not {x[0]!r:.40} at index 0")
    return x if isinstance(x, Mapping) else to_array(x)  # ids


def to_single_texts(x: Any, remedy: str = "pass a list of strings") -> list[str]:
    """Return single texts, each a string, in a list."""
    rows = to_rows(check_input(x), pairs=False)
    for index, text in enumerate(rows):
        if not isinstance(text, str):
            raise InputError(
                f"A text must be a string, not {text!r:.80} at index {index}; {remedy}"
            )
    return rows


def _has_texts(element: Any) -> bool:
    """Return whether an element of a generator or `PyDataset` has texts."""
    x = element[0] if isinstance(element, tuple) and element else element
    while isinstance(x, list | tuple) and x:
        x = x[0]
    is_array_of_texts = not isinstance(x, list | tuple) and is_texts(x)
    return isinstance(x, str | bytes) or is_array_of_texts


def encode(model: Any, inputs: Inputs, warns: bool = True) -> Inputs:
    """Encode texts, and store in the model whether they are pairs; validate ids.

    `warns`: whether texts that are cut or empty are a warning.
    """
    x, y, sample_weight, class_weight = inputs._replace(x=check_input(inputs.x))
    if not is_texts(x):
        return _encode_other(model, inputs._replace(x=x))
    if sample_weight is not None and class_weight is not None:
        raise InputError(
            "Pass sample_weight or class_weight, not both sample_weight and "
            "class_weight; a product of both is a sample_weight"
        )
    rows, y = to_rows(x, model.input_form != "words"), _targets_of(model, y)
    require_targets(y, f"{len(rows)} examples")
    if model.input_form == "texts":
        rows, y, sample_weight = _complete(model, rows, y, sample_weight)
    examples = model.examples(rows, y)
    if class_weight is not None:
        sample_weight = model.class_weights(y, class_weight)
    if sample_weight is not None:
        examples = examples.weighted(to_weights(sample_weight, len(rows)))
    if warns:
        input_warnings.check_examples(model, examples)
    _set_pairs(model, examples.pairs)
    return Inputs(examples)


def _encode_other(model: Any, inputs: Inputs) -> Inputs:
    """Encode a data set of texts; validate examples and ids; return other inputs."""
    x, y, weights, class_weight = inputs
    if class_weight == BALANCED:
        raise InputError(
            f"class_weight={BALANCED!r} must be used with a list of texts and y, whose "
            "classes are counted; pass a dictionary of weights by class"
        )
    if class_weight is not None:
        model.class_weights([], class_weight)  # raises an error where it is not valid
    if isinstance(x, tf.data.Dataset) and _is_text_dataset(x):
        return _encode_batches(model, inputs)
    if isinstance(x, EncodedExamples):
        if class_weight is not None:
            raise InputError("class_weight needs texts and y, not EncodedExamples")
        require_targets(x.targets, f"{len(x)} examples")
        check_length(max(x.lengths, default=0), model.shape.max_positions)
        weights = to_weights(weights, x.num_items, exact=x.items is None)
        _set_pairs(model, x.pairs)
        return Inputs(x if weights is None else x.weighted(weights))
    if not isinstance(x, Mapping):
        return inputs
    check_ids(x, model.shape.max_positions)
    require_targets(y)
    y = in_order_of(model.output_names, y)
    if model.metric_kind == "label_sets":
        check_rows(y, model.num_outputs)
    return Inputs(x, y, to_weights(weights, x["token_ids"].shape[0]), class_weight)


def prediction_rows(model: Any, x: Any, steps: int | None = None) -> tuple[Any, Any]:
    """Return texts to predict in a list, or None; and an input for Keras."""
    x = check_input(_texts_of_batches(x, steps, bool(model.pairs)))
    if isinstance(x, Mapping):
        check_ids(x, model.shape.max_positions)
    if not is_texts(x):
        return None, x
    rows = to_rows(x, model.input_form != "words")
    if model.input_form == "texts":
        rows = fill_missing(rows, model.settings.data.missing_text)
    return rows, x


def fit_arguments(
    model: Any,
    inputs: Inputs,
    batch_size: int,
    validation_data: Any,
    share: float,
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments of Keras's `fit`; `share` is `validation_split`."""
    shuffle, y = arguments.get("shuffle", True), inputs.y
    share = 0.0 if validation_data is not None else share
    is_ids = isinstance(inputs.x, Mapping)
    is_divided = share and not is_ids
    if is_divided:
        inputs, validation_data = _split_texts(model, inputs, share)
    train = encode(model, inputs)
    name, arguments = "validation_batch_size", dict(arguments)
    eval_size = positive_or_default(name, arguments.pop(name, None), batch_size)
    arguments["validation_data"] = _validation_data(
        model, validation_data, eval_size, train.x if is_divided else None
    )
    if y is not None and (share or not shuffle):
        y = to_targets(y, _takes_columns(model))
        input_warnings.check_order(model, y, shuffle, share)
    if isinstance(x := train.x, EncodedExamples):
        _require_whole_epochs(arguments.get("steps_per_epoch"))
        model.check_training(x)
        batches.check_replicas(batch_size, model.distribute_strategy)
        epochs = batches.epoch_batch_indices(
            x.lengths,
            batch_size,
            lambda: (int_value(model.seed), int_value(model.optimizer.iterations)),
            shuffle=shuffle,
        )
        train = Inputs(batches.training_dataset(x, batch_size, epochs))
    if is_ids:
        split = {"validation_split": share} if share else {}
        arguments |= {"batch_size": batch_size, **split}
    elif isinstance(train.x, tf.data.Dataset):
        arguments["shuffle"] = False  # Keras warns that it ignores True
    return arguments | train._asdict()


def _require_whole_epochs(steps: Any) -> None:
    if steps is not None:
        raise InputError(
            f"steps_per_epoch={steps!r:.40} does not apply to a list of texts, as an "
            "epoch is one pass over all of them; pass a tf.data.Dataset of batches of "
            "(texts, targets) with repeat()"
        )


def _validation_data(
    model: Any, data: Any, size: int, divided: EncodedExamples | None
) -> Any:
    """Return validation data of Keras's `fit`; `divided`: others of the same texts."""
    is_tuple = isinstance(data, tuple | list) and len(data) in (2, 3)
    inputs = encode(model, Inputs(*data) if is_tuple else Inputs(data))
    if divided is not None:
        input_warnings.check_equal_texts(divided, inputs.x)
    if isinstance(inputs.x, EncodedExamples):
        batches.check_replicas(size, model.distribute_strategy)
        return batches.eval_dataset(inputs.x, size)
    return inputs[: len(data)] if is_tuple else inputs.x


def _split_texts(model: Any, inputs: Inputs, share: float) -> tuple[Inputs, tuple]:
    """Split off the last texts to validate on; class weights do not apply to them."""
    x = to_array(inputs.x)
    if not is_texts(x):
        raise InputError(
            f"validation_split={share!r:.40} with a {type(x).__name__} does not apply; "
            "pass validation_data"
        )
    rows, y = to_rows(x, model.input_form != "words"), _targets_of(model, inputs.y)
    weights = to_weights(inputs.sample_weight, len(rows))
    count = num_training_rows(len(rows), share)
    first, last = (
        [None if values is None else values[part] for values in (rows, y, weights)]
        for part in (slice(count), slice(count, None))
    )
    return Inputs(*first, inputs.class_weight), tuple(last)


def _complete(model: Any, rows: list, y: list, weights: Any) -> tuple[list, list, Any]:
    """Return rows whose texts are not missing, by `data.missing_text`."""
    rule = model.settings.data.missing_text
    kept, detail = complete_rows(
        rows,
        rule,
        lambda index, detail: InputError(
            f"Texts must not be missing: {detail}, the first at index {index}; {REMEDY}"
        ),
    )
    if kept is None:
        return fill_missing(rows, rule), y, weights
    input_warnings.warn(f"{detail}; they are left out")
    batches.check_num_targets(rows, y, "texts")
    columns = rows, y, to_weights(weights, len(rows))
    return tuple(v if v is None else [v[index] for index in kept] for v in columns)


def _is_text_dataset(dataset: tf.data.Dataset) -> bool:
    """Return whether the first component of a data set's elements is strings."""
    return tf.nest.flatten(dataset.element_spec)[0].dtype == tf.string


def _encode_batches(model: Any, inputs: Inputs) -> Inputs:
    """Return a data set of texts as one of ids, each batch as long as its longest.

    Batches are (texts, targets) or (texts, targets, weights); texts are strings [B], or
    a pair of such.
    """
    dataset, spec = inputs.x, inputs.x.element_spec
    texts, *others = spec if isinstance(spec, tuple) else (spec,)
    is_flat = len(others) in (1, 2) and not any(map(tf.nest.is_nested, others))
    columns = _text_columns(texts)
    if not is_flat or len(columns) > 2 or not all(map(_is_strings, columns)):
        raise _not_batched(spec)

    def batches_of_pass() -> Iterator[EncodedExamples]:
        for texts, y, *weights in dataset.as_numpy_iterator():
            rows = to_rows(texts)
            weight = weights[0] if weights else None
            batch = Inputs(rows, y, weight, inputs.class_weight)
            yield encode(model, batch, warns=False).x

    begun = batches_of_pass()
    first = next(begun, None)
    if first is None:
        raise InputError("An empty data set cannot be used; check how it is made")
    passes = [itertools.chain([first], begun)]  # so that no element is read twice

    def next_pass() -> Iterator[Any]:
        for examples in passes.pop() if passes else batches_of_pass():
            yield examples.batch(range(len(examples)), len(examples))

    batch = first.batch(range(len(first)), len(first))
    encoded = batches.generated_dataset(next_pass, batch, int(dataset.cardinality()))
    return Inputs(encoded, inputs.y, inputs.sample_weight)  # errors of Keras


def _texts_of_batches(x: Any, steps: int | None, are_pairs: bool) -> Any:
    """Return the texts of a data set or `PyDataset` alone, other inputs unchanged."""
    is_dataset = isinstance(x, tf.data.Dataset)
    is_batches = isinstance(x, keras.utils.PyDataset) and _has_texts(x[0])
    if not (_is_text_dataset(x) if is_dataset else is_batches):
        return x

    def texts_of(batch: Any) -> Any:
        if not isinstance(batch, tuple):
            return batch
        is_pair = are_pairs and len(batch) == 2 and not isinstance(batch[0], tuple)
        return batch if is_pair else batch[0]

    count = int(x.cardinality()) if is_dataset else x.num_batches
    if steps is None and count in (None, tf.data.INFINITE_CARDINALITY):
        raise InputError(
            f"An endless {type(x).__name__} cannot be predicted; leave out its "
            "repeat(), or pass steps=COUNT"
        )
    if is_dataset:
        columns = _text_columns(texts_of(x.element_spec))
        if not all(_is_strings(column, (1, 2)) for column in columns):
            raise _not_batched(x.element_spec)
        elements = x if steps is None else x.take(steps)
    else:
        elements = (x[index] for index in range(min(steps or count, count or steps)))
    return [row for batch in elements for row in to_rows(to_array(texts_of(batch)))]


def _text_columns(texts: Any) -> tuple:
    return texts if isinstance(texts, tuple) else (texts,)


def _is_strings(spec: Any, ranks: Sequence[int] = (1,)) -> bool:
    """Return whether a spec is that of strings [B], or [B, N] for rank 2."""
    return getattr(spec, "dtype", None) == tf.string and spec.shape.rank in ranks


def _not_batched(spec: Any) -> InputError:
    return InputError(
        "A data set of texts must have batches of (text, target), of ((text, text), "
        f"target), or of either with weights, each text a string [B], not {spec}; call "
        "its batch(), and map it to that structure"
    )


def _takes_columns(model: Any) -> bool:
    """Return whether targets [N, 1] are one target for each text."""
    return model.metric_kind in ("classes", "scores") and model.input_form == "texts"


def check_pairs(found: bool | None, expected: bool | None) -> None:
    """Raise an error if texts must be pairs and are not, or the other way."""
    if found is not None and expected not in (None, found):
        kinds = ("single texts", "pairs of texts")
        raise InputError(
            f"The texts must be {kinds[expected]}, as in training, not {kinds[found]}"
        )


def _set_pairs(model: Any, found: bool | None) -> None:
    """Store whether the texts are pairs; those of a trained model must be so, too."""
    check_pairs(found, model.pairs)
    model.pairs = model.pairs if found is None else found


def _targets_of(model: Any, y: Any) -> list[Any] | None:
    """Return targets as a list, rows by class in the order of the model's classes."""
    return to_targets(in_order_of(model.output_names, y), _takes_columns(model))


def to_targets(y: Any, columns: bool) -> list[Any] | None:
    """Return targets in any container as a list; one column as values if `columns`."""
    if y is None:
        return None
    y = to_array(y)
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
