"""The names of every weight in each library, one row per weight.

`{n}` is the number of a layer. A network's names begin with a prefix that its library
decides (`electra/` or `generator/` in TF1); the rows hold what follows it.

Sources: google-research/electra model/modeling.py; transformers modeling_electra.py;
keras_hub electra_backbone.py (paths in model.weights.h5); tf-models-official
networks/bert_encoder.py (paths in an object-based checkpoint).
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["as_is", "kernel", "split", "split_bias", "merge"]
"""Layout of a weight. `kernel`: [in, out] in Keras, [out, in] in PyTorch. `split`:
a kernel whose outputs are heads, [in, H, K] in Keras's MultiHeadAttention.
`split_bias`: its bias, [H, K]. `merge`: a kernel whose inputs are heads, [H, K, out].
"""

Format = Literal["electra_tf", "huggingface", "tf1", "keras_hub", "model_garden"]
FORMATS: tuple[Format, ...] = (
    "electra_tf",
    "huggingface",
    "tf1",
    "keras_hub",
    "model_garden",
)


class Row(NamedTuple):
    """Names of one weight; None where a library has no such weight."""

    electra_tf: str
    kind: Kind
    tf1: str
    huggingface: str | None
    keras_hub: str | None = None
    model_garden: str | None = None


def _dense(
    ours: str,
    tf1: str,
    huggingface: str | None,
    keras_hub: str | None = None,
    model_garden: str | None = None,
    kinds: tuple[Kind, Kind] = ("kernel", "as_is"),
) -> list[Row]:
    """Return the rows of a dense layer: kernel and bias."""
    return [
        Row(
            f"{ours}/{weight}",
            kind,
            f"{tf1}/{weight}",
            huggingface
            and f"{huggingface}.{ {'kernel': 'weight'}.get(weight, weight) }",
            keras_hub and f"{keras_hub}/vars/{number}",
            model_garden and f"{model_garden}/{weight}",
        )
        for number, (weight, kind) in enumerate(
            zip(("kernel", "bias"), kinds, strict=True)
        )
    ]


def _norm(
    ours: str,
    tf1: str,
    huggingface: str,
    keras_hub: str | None = None,
    model_garden: str | None = None,
) -> list[Row]:
    """Return the rows of a layer norm: gamma and beta."""
    return [
        Row(
            f"{ours}/{weight}",
            "as_is",
            f"{tf1}/{weight}",
            f"{huggingface}.{ {'gamma': 'weight', 'beta': 'bias'}[weight] }",
            keras_hub and f"{keras_hub}/vars/{number}",
            model_garden and f"{model_garden}/{weight}",
        )
        for number, weight in enumerate(("gamma", "beta"))
    ]


def _table(
    ours: str, tf1: str, huggingface: str, keras_hub: str, model_garden: str
) -> Row:
    return Row(
        f"encoder/embeddings/{ours}",
        "as_is",
        f"embeddings/{tf1}",
        f"embeddings.{huggingface}.weight",
        f"layers/{keras_hub}/vars/0",
        f"layer_with_weights-{model_garden}/embeddings",
    )


EMBEDDINGS = (
    _table(
        "word_embeddings",
        "word_embeddings",
        "word_embeddings",
        "reversible_embedding",
        "0",
    ),
    _table(
        "position_embeddings",
        "position_embeddings",
        "position_embeddings",
        "position_embedding",
        "1",
    ),
    _table(
        "segment_embeddings",
        "token_type_embeddings",
        "token_type_embeddings",
        "embedding",
        "2",
    ),
    *_norm(
        "encoder/embeddings/layer_norm",
        "embeddings/LayerNorm",
        "embeddings.LayerNorm",
        "layers/layer_normalization",
        "layer_with_weights-3",
    ),
)
"""Tables and their layer norm, which a generator may share."""

PROJECTION = (
    *_dense(
        "encoder/embeddings_project",
        "embeddings_project",
        "embeddings_project",
        "layers/dense",
        "layer_with_weights-4",
    ),
)
"""Only where the tables' width differs from the hidden states'."""

_KERAS_HUB, _GARDEN = "layers/transformer_encoder{n}", "layer_with_weights-{n}"
_OURS, _TF1, _HUGGINGFACE = (
    "encoder/layer_{n}",
    "encoder/layer_{n}",
    "encoder.layer.{n}",
)

LAYER = (
    *(
        row
        for part in ("query", "key", "value")
        for row in _dense(
            f"{_OURS}/attention/{part}",
            f"{_TF1}/attention/self/{part}",
            f"{_HUGGINGFACE}.attention.self.{part}",
            f"{_KERAS_HUB}/_self_attention_layer/{part}_dense",
            f"{_GARDEN}/_attention_layer/_{part}_dense",
            kinds=("split", "split_bias"),
        )
    ),
    *_dense(
        f"{_OURS}/attention/output",
        f"{_TF1}/attention/output/dense",
        f"{_HUGGINGFACE}.attention.output.dense",
        f"{_KERAS_HUB}/_self_attention_layer/output_dense",
        f"{_GARDEN}/_attention_layer/_output_dense",
        kinds=("merge", "as_is"),
    ),
    *_norm(
        f"{_OURS}/attention_layer_norm",
        f"{_TF1}/attention/output/LayerNorm",
        f"{_HUGGINGFACE}.attention.output.LayerNorm",
        f"{_KERAS_HUB}/_self_attention_layer_norm",
        f"{_GARDEN}/_attention_layer_norm",
    ),
    *_dense(
        f"{_OURS}/intermediate",
        f"{_TF1}/intermediate/dense",
        f"{_HUGGINGFACE}.intermediate.dense",
        f"{_KERAS_HUB}/_feedforward_intermediate_dense",
        f"{_GARDEN}/_intermediate_dense",
    ),
    *_dense(
        f"{_OURS}/output",
        f"{_TF1}/output/dense",
        f"{_HUGGINGFACE}.output.dense",
        f"{_KERAS_HUB}/_feedforward_output_dense",
        f"{_GARDEN}/_output_dense",
    ),
    *_norm(
        f"{_OURS}/output_layer_norm",
        f"{_TF1}/output/LayerNorm",
        f"{_HUGGINGFACE}.output.LayerNorm",
        f"{_KERAS_HUB}/_feedforward_layer_norm",
        f"{_GARDEN}/_output_layer_norm",
    ),
)
"""Of each Transformer layer."""

DISCRIMINATOR_HEAD = (
    *_dense(
        "head/dense",
        "discriminator_predictions/dense",
        "discriminator_predictions.dense",
    ),
    *_dense(
        "head/score",
        "discriminator_predictions/dense_1",
        "discriminator_predictions.dense_prediction",
    ),
)
MASKED_LM_HEAD = (
    *_dense("head/dense", "generator_predictions/dense", "generator_predictions.dense"),
    *_norm(
        "head/layer_norm",
        "generator_predictions/LayerNorm",
        "generator_predictions.LayerNorm",
    ),
    Row(
        "head/output_bias",
        "as_is",
        "generator_predictions/output_bias",
        "generator_lm_head.bias",
    ),
)

CLASSIFICATION_HEAD = (*_dense("head/dense", "dense", None),)
"""On [CLS]; Hugging Face's head is another network."""
TOKEN_HEAD = (*_dense("head/dense", "dense", "classifier"),)
SPAN_HEAD = (
    *_dense("head/start", "dense", "qa_outputs[0]"),
    *_dense("head/end", "dense_1", "qa_outputs[1]"),
)
"""Hugging Face stacks both: `[n]` is output n of `qa_outputs`."""
END_HIDDEN = (*_dense("head/end_hidden", "qa_hidden", None),)
ANSWERABLE = (
    *_dense("head/answerable_hidden", "dense_2", None),
    *_dense("head/answerable", "dense_3", None),
)


def encoder_rows(depth: int, projection: bool) -> Iterator[tuple[Row, str]]:
    """Yield the rows of an encoder, each with its layer's number or ""."""
    for row in (*EMBEDDINGS, *(PROJECTION if projection else ())):
        yield row, ""
    for number in range(depth):
        for row in LAYER:
            yield row, str(number)


def to_format(array: np.ndarray, kind: Kind, name: Format, heads: int) -> np.ndarray:
    """Convert a weight of ours to the layout of another library."""
    if name in ("electra_tf", "tf1") or kind == "as_is":
        return array
    if name == "huggingface":
        return array if kind == "split_bias" else array.T
    shapes: dict[Kind, Callable] = {
        "kernel": lambda a: a,
        "split": lambda a: a.reshape(a.shape[0], heads, -1),
        "split_bias": lambda a: a.reshape(heads, -1),
        "merge": lambda a: a.reshape(heads, -1, a.shape[1]),
    }
    return shapes[kind](array)


def from_format(array: np.ndarray, kind: Kind, name: Format) -> np.ndarray:
    """Convert a weight of another library to the layout of ours."""
    if name in ("electra_tf", "tf1") or kind == "as_is":
        return array
    if name == "huggingface":
        return array if kind == "split_bias" else array.T
    shapes: dict[Kind, Callable] = {
        "kernel": lambda a: a,
        "split": lambda a: a.reshape(a.shape[0], -1),
        "split_bias": lambda a: a.reshape(-1),
        "merge": lambda a: a.reshape(-1, a.shape[-1]),
    }
    return shapes[kind](array)
