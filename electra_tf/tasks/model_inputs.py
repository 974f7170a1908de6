"""Convert the arguments of `TextModel`'s methods to those of `keras.Model`.

Texts become `EncodedExamples` or data sets of ids. Inputs of Keras pass unchanged.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.examples import (
    EncodedExamples,
    check_replicas,
    epoch_batch_indices,
    eval_dataset,
    single_batch,
    training_dataset,
)
from electra_tf.tasks.keras_inputs import (
    check_iterator,
    check_length,
    check_steps_per_epoch,
    positive_or_default,
    require_ids,
    require_targets,
    split_texts,
    to_targets,
    to_weights,
)
from electra_tf.tasks.optimizer import int_value
from electra_tf.tasks.text_inputs import (
    is_text_dataset,
    is_texts,
    to_rows,
    tokenize_dataset,
)

if TYPE_CHECKING:
    from electra_tf.tasks.text_model import TextModel

Weights = tuple[Any, Any]
"""`sample_weight` and `class_weight`, each None if it is not set."""


def fit_arguments(
    model: "TextModel",
    x: Any,
    y: Any,
    weights: Weights,
    validation_data: Any,
    validation_split: float,
    batch_size: int,
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """Convert the arguments of `TextModel.fit` to those of Keras's `fit`."""
    arguments = dict(arguments)
    if validation_data is None and validation_split and not isinstance(x, Mapping):
        forms = model.takes_pairs, model.takes_columns
        (x, y, weights), validation_data = split_texts(
            check_iterator(x), y, weights, validation_split, *forms
        )
    name = "validation_batch_size"
    eval_size = positive_or_default(name, arguments.pop(name, None), batch_size)
    x, y, weights, validation_data = _encode_training_and_validation(
        model, x, y, weights, validation_data, eval_size
    )
    if isinstance(x, EncodedExamples):
        check_steps_per_epoch(arguments)
        check_replicas(batch_size, model.distribute_strategy)
        epochs = batch_indices(model, x, batch_size, arguments.get("shuffle", True))
        x = training_dataset(x, batch_size, epochs)
    if isinstance(x, tf.data.Dataset):
        arguments["shuffle"] = False  # Keras warns that it ignores True
    if isinstance(x, Mapping):
        arguments["batch_size"] = batch_size
        if validation_split and validation_data is None:
            arguments["validation_split"] = validation_split
    return arguments | {
        "x": x,
        "y": y,
        "validation_data": validation_data,
        "sample_weight": weights[0],
        "class_weight": weights[1],
    }


def encode_inputs(model: "TextModel", x: Any, y: Any, weights: Weights) -> tuple:
    """Encode texts as `EncodedExamples`, and data sets of texts as data sets of ids.

    Returns:
        Inputs, targets and weights; targets and weights are None if the inputs contain
        them.
    """
    x, (sample_weight, class_weight) = check_iterator(x), weights

    def encode(rows: Sequence[Any], y: Any, *weights: Any) -> EncodedExamples:
        return _encode(model, rows, y, *weights)

    if isinstance(x, tf.data.Dataset) and is_text_dataset(x):
        if sample_weight is not None:
            raise InputError(
                "A data set of texts must contain its weights",
                "sample_weight=...",
                "Map the data set to batches of (texts, targets, weights)",
            )
        return tokenize_dataset(x, encode, class_weight), y, (None, None)
    if is_texts(x):
        rows, y = to_rows(x, model.takes_pairs), to_targets(y, model.takes_columns)
        x, y = encode(rows, y, sample_weight, class_weight), None
        sample_weight = class_weight = None
    if class_weight is not None and not model.has_classes:
        model.class_weights([], class_weight)  # raises an error
    if isinstance(x, EncodedExamples):
        examples = _check_examples(model, x, sample_weight, class_weight)
        return examples, y, (None, None)
    if isinstance(x, Mapping):
        require_ids(x)
        check_length(x["token_ids"].shape[1], model.shape.max_positions)
        require_targets(y)
        if model.takes_columns and np.ndim(y) == 2 and np.shape(y)[1] == 1:
            y = np.reshape(y, -1)
        sample_weight = to_weights(sample_weight, x["token_ids"].shape[0])
    return x, y, (sample_weight, class_weight)


def encode_batch(model: "TextModel", x: Any, y: Any, weights: Weights) -> tuple:
    """Encode all texts as one batch of ids."""
    x = check_iterator(x)
    if isinstance(x, tf.data.Dataset):
        raise InputError(
            "x must be a list of texts, or ids, for a single batch",
            "a data set",
            "Pass one of its elements, or call fit or evaluate",
        )
    x, y, weights = encode_inputs(model, x, y, weights)
    if not isinstance(x, EncodedExamples):
        return x, y, weights
    inputs, targets, weights_B = single_batch(x)
    return inputs, targets, (weights_B, None)


def batch_indices(
    model: "TextModel", examples: EncodedExamples, size: int, shuffle: bool
) -> Iterator[list[np.ndarray]]:
    """Return the batches of successive epochs, from the model's seed and updates."""
    return epoch_batch_indices(
        examples.lengths,
        size,
        lambda: (int_value(model.seed), int_value(model.optimizer.iterations)),
        shuffle=shuffle,
        bucketed=model.settings.training.length_buckets,
    )


def _encode_training_and_validation(
    model: "TextModel",
    x: Any,
    y: Any,
    weights: Weights,
    validation_data: Any,
    eval_size: int,
) -> tuple:
    """Encode both; texts to train on set `model.pairs` anew, unless this fails."""
    pairs, x = model.pairs, check_iterator(x)
    if is_texts(x) or (isinstance(x, tf.data.Dataset) and is_text_dataset(x)):
        model.pairs = None
    try:
        x, y, weights = encode_inputs(model, x, y, weights)
        return x, y, weights, _encode_validation(model, validation_data, eval_size)
    except InputError:
        model.pairs = pairs
        raise


def _encode_validation(model: "TextModel", validation_data: Any, size: int) -> Any:
    data = validation_data
    is_tuple = isinstance(data, tuple | list) and len(data) in (2, 3)
    x, y, *weight = data if is_tuple else (data, None)
    weights = weight[0] if weight else None, None
    x, y, weights = encode_inputs(model, x, y, weights)
    if isinstance(x, EncodedExamples):
        check_replicas(size, model.distribute_strategy)
        return eval_dataset(x, size)
    return (x, y, *weights[: len(weight)]) if is_tuple else x


def _encode(
    model: "TextModel",
    rows: Sequence[Any],
    y: Any,
    sample_weight: Any,
    class_weight: Any,
) -> EncodedExamples:
    """Encode texts and targets, with the weights of items or of classes."""
    if sample_weight is not None and class_weight is not None:
        raise InputError(
            "Only one of sample_weight and class_weight may be set",
            "both sample_weight and class_weight",
            "Multiply them, and pass the product as sample_weight",
        )
    examples = model.examples(rows, y)
    if class_weight is not None and y is not None:
        sample_weight = model.class_weights(y, class_weight)
    if sample_weight is None:
        return examples
    return examples.weighted(to_weights(sample_weight, len(rows)))


def _check_examples(
    model: "TextModel",
    examples: EncodedExamples,
    sample_weight: Any,
    class_weight: Any,
) -> EncodedExamples:
    if examples.targets is None:
        raise InputError(
            "fit and evaluate must have y, the target of each text",
            f"{len(examples)} examples without targets",
            "Pass y",
        )
    if class_weight is not None:
        raise InputError(
            "class_weight must be used with texts",
            "EncodedExamples",
            "Pass texts and y",
        )
    check_length(max(examples.lengths, default=0), model.shape.max_positions)
    if sample_weight is None:
        return examples
    return examples.weighted(to_weights(sample_weight, len(sample_weight)))
