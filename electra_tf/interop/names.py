"""The names of every weight in each library, one row per weight.

`{n}` is the number of a layer. A network's names begin with a prefix that its library
decides (`electra/` or `generator/` in TF1); the rows hold what follows it.

Sources: google-research/electra model/modeling.py; transformers modeling_electra.py;
keras_hub electra_backbone.py (paths in model.weights.h5); tf-models-official
networks/bert_encoder.py (paths in an object-based checkpoint).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["as_is", "kernel", "split", "split_bias", "merge"]
"""Layout of a weight. `kernel`: [in, out] in Keras, [out, in] in PyTorch. `split`:
a kernel whose outputs are heads, [in, H, K] in Keras's MultiHeadAttention.
`split_bias`: its bias, [H, K]. `merge`: a kernel whose inputs are heads, [H, K, out].
"""
Activation = Literal["gelu", "gelu_tanh"]
_KERNELS = ("kernel", "split", "merge")

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # end of a path in an object-based checkpoint


class Layout(NamedTuple):
    """Names and axes of the weights in the files of a format."""

    column: str  # field of `Row` with the names
    transposed: bool = False  # True if kernels are [out, in]
    split_heads: bool = False  # True if kernels of attention have an axis for the heads
    number: Callable[[int, bool], str] = lambda layer, projection: str(layer)
    """Return a layer's number in names; with a projection of the tables or not."""
    activation: Activation = "gelu"  # of all networks of the format
    epsilon: float | None = None  # of all layer norms; None: a setting


class Prefixes(NamedTuple):
    """Prefixes of the names in this table, for each part of a network."""

    encoder: str = ""
    embeddings: str = ""
    head: str = ""

    @classmethod
    def same(cls, prefix: str) -> "Prefixes":
        """Return one prefix for all parts."""
        return cls(prefix, prefix, prefix)

    @classmethod
    def of_generator(
        cls, main: str, own: str, sharing: str, head: str = ""
    ) -> "Prefixes":
        """Return those of a generator, by what it shares with the main network."""
        encoder = main if sharing == "all" else own
        return cls(encoder, own if sharing in ("none", "gdes") else main, head)


NO_PREFIXES = Prefixes()


LAYOUTS = {
    "electra_tf": Layout("electra_tf"),
    "huggingface": Layout("huggingface", transposed=True),
    "tf1": Layout("tf1"),
    # Keras numbers the layers of a class from the second one on.
    "keras_hub": Layout(
        "keras_hub",
        split_heads=True,
        number=lambda layer, _: f"_{layer}" * (layer > 0),
        activation="gelu_tanh",
        epsilon=1e-12,
    ),
    "model_garden": Layout(
        "model_garden",
        split_heads=True,
        number=lambda layer, projection: str(layer + 4 + projection),
        activation="gelu_tanh",
        epsilon=1e-12,
    ),
}
"""By the name of the format."""


class Row(NamedTuple):
    """Names of one weight; None where a library has no such weight."""

    shape: tuple[str, ...]  # sizes of ours, of `EncoderConfig` or `TaskHead.sizes`
    kind: Kind
    electra_tf: str
    tf1: str | None
    huggingface: str | None
    keras_hub: str | None = None
    model_garden: str | None = None


def _table(size: str, ours: str, theirs: str, keras_hub: str, number: int) -> Row:
    return Row(
        (size, "embedding"),
        "as_is",
        f"encoder/embeddings/{ours}_embeddings",
        f"embeddings/{theirs}_embeddings",
        f"embeddings.{theirs}_embeddings.weight",
        f"layers/{keras_hub}/vars/0",
        f"layer_with_weights-{number}/embeddings{VALUE}",
    )


def _dense(
    sizes: str,
    ours: str,
    tf1: str | None,
    keras_hub: str | None = None,
    model_garden: str | None = None,
    *,
    huggingface: str | None = None,
    kinds: tuple[Kind, Kind] = ("kernel", "as_is"),
) -> tuple[Row, ...]:
    """Return the rows of a dense layer of inputs and outputs, or of a layer norm.

    `huggingface`: by default the words of `tf1`, with dots.
    """
    shape = tuple(sizes.split())
    weights = ("kernel", "bias") if len(shape) == 2 else ("gamma", "beta")
    huggingface = huggingface or (tf1 and tf1.replace("/", "."))
    return tuple(
        Row(
            shape[-1:] if number else shape,
            kinds[number],
            f"{ours}/{weight}",
            tf1 and f"{tf1}/{weight}",
            huggingface and f"{huggingface}.{('weight', 'bias')[number]}",
            keras_hub and f"{keras_hub}/vars/{number}",
            model_garden and f"{model_garden}/{weight}{VALUE}",
        )
        for number, weight in enumerate(weights)
    )


def _norm(*names: str) -> tuple[Row, ...]:
    return _dense(*names, kinds=("as_is", "as_is"))


def _in_layer(row: Row) -> Row:
    return row._replace(
        electra_tf="encoder/layer_{n}/" + row.electra_tf,
        tf1="encoder/layer_{n}/" + row.tf1,
        huggingface="encoder.layer.{n}." + row.huggingface,
        keras_hub="layers/transformer_encoder{n}/" + row.keras_hub,
        model_garden="layer_with_weights-{n}/" + row.model_garden,
    )


# Ours; TF1 and, with dots, Hugging Face; KerasHub; Model Garden.
EMBEDDINGS = (
    _table("vocabulary_size", "word", "word", "reversible_embedding", 0),
    _table("max_positions", "position", "position", "position_embedding", 1),
    _table("segments", "segment", "token_type", "embedding", 2),
    *_norm(
        *("embedding", "encoder/embeddings/layer_norm", "embeddings/LayerNorm"),
        *("layers/layer_normalization", "layer_with_weights-3"),
    ),
)
"""Tables and their layer norm, which a generator may share."""

PROJECTION = _dense(
    *("embedding width", "encoder/embeddings_project", "embeddings_project"),
    *("layers/dense", "layer_with_weights-4"),
)
"""Only where the tables' width differs from the hidden states'."""

_ATTENTION = tuple(
    row
    for part in ("query", "key", "value")
    for row in _dense(
        *("width width", f"attention/{part}", f"attention/self/{part}"),
        *(f"_self_attention_layer/{part}_dense", f"_attention_layer/_{part}_dense"),
        kinds=("split", "split_bias"),
    )
)
LAYER = tuple(
    _in_layer(row)
    for row in (
        *_ATTENTION,
        *_dense(
            *("width width", "attention/output", "attention/output/dense"),
            *("_self_attention_layer/output_dense", "_attention_layer/_output_dense"),
            kinds=("merge", "as_is"),
        ),
        *_norm(
            *("width", "attention_layer_norm", "attention/output/LayerNorm"),
            *("_self_attention_layer_norm", "_attention_layer_norm"),
        ),
        *_dense(
            *("width feed_forward", "intermediate", "intermediate/dense"),
            *("_feedforward_intermediate_dense", "_intermediate_dense"),
        ),
        *_dense(
            *("feed_forward width", "output", "output/dense"),
            *("_feedforward_output_dense", "_output_dense"),
        ),
        *_norm(
            *("width", "output_layer_norm", "output/LayerNorm"),
            *("_feedforward_layer_norm", "_output_layer_norm"),
        ),
    )
)
"""Of each Transformer layer."""

_SCORES, _LOGITS = "discriminator_predictions", "generator_predictions"
DISCRIMINATOR_HEAD = (
    *_dense("width width", "head/dense", f"{_SCORES}/dense"),
    *_dense(
        *("width one", "head/score", f"{_SCORES}/dense_1"),
        huggingface=f"{_SCORES}.dense_prediction",
    ),
)
MASKED_LM_HEAD = (
    *_dense("width embedding", "head/dense", f"{_LOGITS}/dense"),
    *_norm("embedding", "head/layer_norm", f"{_LOGITS}/LayerNorm"),
    Row(
        *(("vocabulary_size",), "as_is", "head/output_bias"),
        *(f"{_LOGITS}/output_bias", "generator_lm_head.bias"),
    ),
)
TEXT_HEAD = _dense("pooled units", "head/dense", None)
"""On the vector of a text."""
TOKEN_HEAD = _dense("width units", "head/dense", None, huggingface="classifier")
SPAN_HEAD = (
    *_dense("width one", "head/start", None, huggingface="qa_outputs[0]"),
    *_dense("end one", "head/end", None, huggingface="qa_outputs[1]"),
)
"""Hugging Face stacks both: `[n]` is output n of `qa_outputs`."""
END_HIDDEN = _dense("two_widths hidden", "head/end_hidden", None)
ANSWERABLE = (
    *_dense("two_widths hidden", "head/answerable_hidden", None),
    *_dense("hidden one", "head/answerable", None),
)


def pooler_head(pooler: str, output: str) -> tuple[Row, ...]:
    """Return the rows of a hidden layer and an output, by Hugging Face's names."""
    return (
        *_dense("pooled width", "head/pooler", None, huggingface=pooler),
        *_dense("width units", "head/dense", None, huggingface=output),
    )


def named_rows(
    format: str, prefixes: Prefixes, depth: int, projection: bool, head: Iterable[Row]
) -> Iterator[tuple[str, Row, str]]:
    """Yield our path, the row, and a library's name of each weight that it has."""
    layout = LAYOUTS[format]
    for row in (*EMBEDDINGS, *(PROJECTION if projection else ())):
        prefix = prefixes.embeddings if row in EMBEDDINGS else prefixes.encoder
        yield row.electra_tf, row, prefix + getattr(row, layout.column)
    for layer in range(depth):
        number = layout.number(layer, projection)
        for row in LAYER:
            name = getattr(row, layout.column).format(n=number)
            yield row.electra_tf.format(n=layer), row, prefixes.encoder + name
    for row in head:
        if (name := getattr(row, layout.column)) is not None:
            yield row.electra_tf, row, prefixes.head + name


def to_format(array: np.ndarray, kind: Kind, layout: Layout, heads: int) -> np.ndarray:
    """Convert a weight of ours to the layout of a format."""
    if layout.transposed and kind in _KERNELS:
        return array.T
    if not layout.split_heads:
        return array
    size, last = array.shape[0], array.shape[-1]
    shapes = {
        "split": (size, heads, last // heads),
        "split_bias": (heads, last // heads),
        "merge": (heads, size // heads, last),
    }
    return array.reshape(shapes.get(kind, array.shape))


def from_format(
    array: np.ndarray, kind: Kind, layout: Layout, shape: tuple[int, ...]
) -> np.ndarray:
    """Convert a weight of a format to the layout of ours, which has a shape."""
    return array.T if layout.transposed and kind in _KERNELS else array.reshape(shape)
