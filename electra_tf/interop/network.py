"""One network of a library, with the names and layouts of its weights.

`Network` is a network as this package names it. `ForeignNetwork` is the same network
with another library's tensors. `from_foreign` and `to_foreign` convert by the table of
`names.py` and account for every tensor.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np
import pydantic

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.names import (
    DISCRIMINATOR_HEAD,
    EMBEDDINGS,
    MASKED_LM_HEAD,
    Format,
    Row,
    encoder_rows,
    from_format,
    to_format,
)
from electra_tf.interop.task_heads import TaskHead, TaskRole

Role = Literal["discriminator", "generator", "encoder"] | TaskRole
"""`generator`: an encoder with a masked-LM head, a BERT too. `encoder`: no head."""
Activation = Literal["gelu", "gelu_tanh"]

_HEADS: Mapping[Role, tuple[Row, ...]] = {
    "discriminator": DISCRIMINATOR_HEAD,
    "generator": MASKED_LM_HEAD,
    "encoder": (),
}
COUNTS = (
    "depth",
    "width",
    "embedding",
    "heads",
    "feed_forward",
    "vocabulary_size",
    "max_positions",
    "segments",
)
"""Sizes of an encoder, each 1 or more."""
_MAX_COUNT = 2**31 - 1
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


@dataclasses.dataclass(frozen=True)
class Network:
    """An encoder and its head, named and laid out as in this package.

    Args:
        role: Decides the head.
        shape: Shape of the encoder.
        weights: By path, `encoder/...` and `head/...`. Kernels are [in, out].
        head: The head of a fine-tuned model.
    """

    role: Role
    shape: EncoderConfig
    weights: Mapping[str, np.ndarray]
    head: TaskHead | None = None

    @property
    def embeddings(self) -> dict[str, np.ndarray]:
        """The tables and their layer norm, which two networks may share."""
        return {row.electra_tf: self.weights[row.electra_tf] for row in EMBEDDINGS}

    def without_head(self) -> "Network":
        """Return the encoder alone."""
        encoder = {n: w for n, w in self.weights.items() if n.startswith("encoder/")}
        return Network("encoder", self.shape, encoder)


class Prefixes(NamedTuple):
    """Prefixes of the names in `names.py`, for each part of a network."""

    encoder: str = ""
    embeddings: str = ""
    head: str = ""


@dataclasses.dataclass(frozen=True)
class ForeignNetwork:
    """A network with the names and layouts of another library.

    Args:
        format: The library.
        role: Decides the head.
        shape: Shape of the encoder, from the library's own config.
        tensors: By the library's names; those of other networks may be among them.
        prefixes: Of the names of this network.
        activation: The function of its feed-forward layers and heads.
        source: Origin, for messages.
        head: The head of a fine-tuned model.
        pad_id: Row of [PAD], which a `Network` has in row 0.
    """

    format: Format
    role: Role
    shape: EncoderConfig
    tensors: Mapping[str, np.ndarray]
    prefixes: Prefixes
    activation: Activation = "gelu"
    source: str = ""
    head: TaskHead | None = None
    pad_id: int = 0

    @property
    def has_projection(self) -> bool:
        """Whether the embeddings are projected to the hidden states' width."""
        return self.shape.embedding != self.shape.width

    def rows(self) -> Iterator[tuple[str, Row, str]]:
        """Yield the path in this package, the row, and the library's name."""
        for row, number in encoder_rows(self.shape.depth, self.has_projection):
            embedding = row in EMBEDDINGS
            prefix = self.prefixes.embeddings if embedding else self.prefixes.encoder
            yield (
                row.electra_tf.format(n=number),
                row,
                prefix + self._encoder_name(row, number),
            )
        for row in self.head.rows if self.head else _HEADS[self.role]:
            if (name := getattr(row, self.format)) is not None:
                yield row.electra_tf, row, self.prefixes.head + name

    def _encoder_name(self, row: Row, number: str) -> str:
        name = getattr(row, self.format)
        if self.format == "keras_hub":
            # Keras numbers the layers of a class from the second one on.
            number = f"_{number}" if number not in ("", "0") else ""
        if self.format == "model_garden":
            number = str(int(number) + 4 + self.has_projection) if number else ""
            name += _VALUE
        return name.format(n=number)


def from_foreign(foreign: ForeignNetwork) -> Network:
    """Convert a library's network to this package's names and layouts.

    Returns:
        The network in float32: views of the tensors where those are float32.
    """
    _check_sizes(foreign)
    shapes = expected_shapes(foreign.role, foreign.shape, foreign.head)
    weights, problems = {}, []
    for ours, row, theirs in foreign.rows():
        if theirs not in foreign.tensors:
            problems.append(f"no {theirs}")
            continue
        array = foreign.tensors[theirs]
        size = np.broadcast_to(np.False_, shapes[ours])
        expected = to_format(size, row.kind, foreign.format, foreign.shape.heads).shape
        if array.shape != expected:
            problems.append(f"{theirs} of shape {array.shape}, not {expected}")
        elif not is_float(array):
            problems.append(f"{theirs} of dtype {array.dtype}, not floats")
        else:
            array = from_format(array, row.kind, foreign.format)
            weights[ours] = np.asarray(array, np.float32)
    if problems:
        more = f" and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise InputError(
            f"{foreign.source} must have the weights of its config, an "
            f"{foreign.shape.depth}-layer {foreign.role}",
            f"{'; '.join(problems[:8])}{more}",
            "Check that config and weights are of the same model",
        )
    return Network(foreign.role, foreign.shape, weights, foreign.head)


def is_float(array: np.ndarray) -> bool:
    """Return whether an array has a floating-point dtype, bfloat16 included."""
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def table_shape(
    tensors: Mapping[str, np.ndarray], name: str, source: str, axes: int = 2
) -> tuple[int, ...]:
    """Return the shape of a weight from which a network's sizes are read."""
    shape = tensors[name].shape if name in tensors else None
    if shape is None or len(shape) != axes or 0 in shape:
        raise InputError(
            f"{source} must have {name} with {axes} axes",
            "none" if shape is None else f"shape {shape}",
            "Copy or download the model again",
        )
    return shape


def _check_sizes(foreign: ForeignNetwork) -> None:
    """Raise an error for a config that no weights fit, before it sizes anything."""
    shape = foreign.shape
    problems = [
        f"{name} {value}"
        for name, value in dataclasses.asdict(shape).items()
        if not (name in COUNTS) <= value <= _MAX_COUNT
    ]
    if not problems and shape.width % shape.heads:
        problems.append(f"width {shape.width}, not a multiple of heads {shape.heads}")
    if not problems and shape.depth > len(foreign.tensors):
        problems.append(f"depth {shape.depth} with {len(foreign.tensors)} tensors")
    if problems:
        raise InputError(
            f"The config of {foreign.source} must describe an encoder",
            "; ".join(problems),
            "Get config and weights of the same model",
        )


def read_shape(source: str, **values: Any) -> EncoderConfig:
    """Return the shape that a library's config describes."""
    try:
        return EncoderConfig(**values)
    except pydantic.ValidationError as error:
        problems = (f"{e['loc'][0]} {e['input']!r:.80}" for e in error.errors())
        raise InputError(
            f"{source} must give the sizes of an encoder as numbers",
            "; ".join(problems),
            "Get config and weights of the same model",
        ) from error


def to_foreign(
    network: Network,
    name: Format,
    prefixes: Prefixes = Prefixes(),
    activation: Activation = "gelu",
) -> ForeignNetwork:
    """Convert a network to the names and layouts of a library.

    Returns:
        The network, whose tensors are views where possible; a head that the library
        lacks is left out.
    """
    foreign = ForeignNetwork(
        name, network.role, network.shape, {}, prefixes, activation, head=network.head
    )
    tensors = {
        theirs: to_format(network.weights[ours], row.kind, name, network.shape.heads)
        for ours, row, theirs in foreign.rows()
    }
    return dataclasses.replace(foreign, tensors=tensors)


def expected_shapes(
    role: Role, shape: EncoderConfig, head: TaskHead | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a network, by path in this package."""
    embedding, width, inner = shape.embedding, shape.width, shape.feed_forward
    rows = shape.vocabulary_size
    sizes = {
        "encoder/embeddings/word_embeddings": (rows, embedding),
        "encoder/embeddings/position_embeddings": (shape.max_positions, embedding),
        "encoder/embeddings/segment_embeddings": (shape.segments, embedding),
        **_pair("encoder/embeddings/layer_norm", None, embedding),
        **_pair("encoder/embeddings_project", embedding, width),
    }
    for number in range(shape.depth):
        layer = f"encoder/layer_{number}"
        for part in ("query", "key", "value", "output"):
            sizes |= _pair(f"{layer}/attention/{part}", width, width)
        sizes |= _pair(f"{layer}/attention_layer_norm", None, width)
        sizes |= _pair(f"{layer}/intermediate", width, inner)
        sizes |= _pair(f"{layer}/output", inner, width)
        sizes |= _pair(f"{layer}/output_layer_norm", None, width)
    if role == "discriminator":
        sizes |= _pair("head/dense", width, width) | _pair("head/score", width, 1)
    if role == "generator":
        sizes |= _pair("head/dense", width, embedding)
        sizes |= _pair("head/layer_norm", None, embedding)
        sizes["head/output_bias"] = (rows,)
    return sizes | (head.shapes(width) if head else {})


def _pair(path: str, inputs: int | None, outputs: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a dense layer, or of a layer norm without `inputs`."""
    if inputs is None:
        return {f"{path}/gamma": (outputs,), f"{path}/beta": (outputs,)}
    return {f"{path}/kernel": (inputs, outputs), f"{path}/bias": (outputs,)}
