"""One network with the names and layouts of a library, and its conversion.

A reader makes a `Network` of its library's tensors; `to_ours` converts it by the table
of `names.py` and keeps it as `origin`. A writer gets `to_format` of one of ours.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pydantic

from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop import names
from electra_tf.interop.names import EMBEDDINGS, LAYOUTS, Activation, Row
from electra_tf.interop.task_heads import TaskHead

Role = str
"""`discriminator`; `generator`: an encoder with a masked-LM head, a BERT too;
`encoder`: no head; or the kind of a fine-tuned model, of `TASK_HEADS`."""

# Rows of the head, and the end of the class's name in transformers.
_HEADS: Mapping[Role, tuple[tuple[Row, ...], str]] = {
    "discriminator": (names.DISCRIMINATOR_HEAD, "ForPreTraining"),
    "generator": (names.MASKED_LM_HEAD, "ForMaskedLM"),
    "encoder": ((), "Model"),
}
COUNTS = (
    *("depth", "width", "embedding", "heads", "feed_forward"),
    *("vocabulary_size", "max_positions", "segments"),
)
"""Sizes of an encoder, each 1 or more."""
TABLE, BIAS = "/word_embeddings", "head/output_bias"  # a row for each entry
_MAX_COUNT = 2**31 - 1


class Prefixes(NamedTuple):
    """Prefixes of the names in `names.py`, for each part of a network."""

    encoder: str = ""
    embeddings: str = ""
    head: str = ""

    @classmethod
    def of_generator(
        cls, main: str, own: str, sharing: str, head: str = ""
    ) -> "Prefixes":
        """Return those of a generator, by what it shares with the main network."""
        encoder = main if sharing == "all" else own
        return cls(encoder, own if sharing == "none" else main, head)


NO_PREFIXES = Prefixes()


@dataclasses.dataclass(frozen=True)
class Network:
    """An encoder and its head, named and laid out as in one library."""

    role: Role  # decides the head
    shape: EncoderConfig
    weights: Mapping[str, np.ndarray]
    """By the library's names, ours `encoder/...` and `head/...` with kernels [in, out].
    Those of other networks may be among a source's."""
    head: TaskHead | None = None  # the head of a fine-tuned model
    format: str = "electra_tf"
    prefixes: Prefixes = NO_PREFIXES
    activation: Activation = "gelu"  # the function of its feed-forward layers and heads
    source: str = ""  # path that it was read from; empty for a converted network
    pad_id: int = 0  # row of [PAD] in `weights`
    origin: "Network | None" = None  # the network that it was read from

    def __post_init__(self) -> None:
        if self.source:  # of a stranger: the sizes decide how many weights are listed
            _check_sizes(self)

    @property
    def has_projection(self) -> bool:
        """Whether the embeddings are projected to the hidden states' width."""
        return self.shape.embedding != self.shape.width

    @property
    def class_end(self) -> str:
        """End of the class's name in transformers, after `Electra`."""
        return self.head.kind.transformers if self.head else _HEADS[self.role][1]

    @property
    def names(self) -> set[str]:
        """The library's names of the weights of this network."""
        return {name for _, _, name in self.rows()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight in this package, by path."""
        head = self.head.sizes(self.shape.width) if self.head else {}
        sizes = {**dataclasses.asdict(self.shape), "one": 1, **head}
        return {
            path: tuple(sizes[n] for n in row.shape) for path, row, _ in self.rows()
        }

    @property
    def encoder_weights(self) -> dict[str, np.ndarray]:
        """Weights of a network of ours without its head, by path below the encoder."""
        return {
            name.removeprefix("encoder/"): weight
            for name, weight in self.weights.items()
            if name.startswith("encoder/")
        }

    @property
    def embeddings(self) -> dict[str, np.ndarray]:
        """The tables and their layer norm, which two networks may share."""
        return {row.electra_tf: self.weights[row.electra_tf] for row in EMBEDDINGS}

    def rows(self) -> Iterator[tuple[str, Row, str]]:
        """Yield the path in this package, the row, and the library's name."""
        layout, projection = LAYOUTS[self.format], self.has_projection
        for row, layer in names.encoder_rows(self.shape.depth, projection):
            embedding = row in EMBEDDINGS
            prefix = self.prefixes.embeddings if embedding else self.prefixes.encoder
            number = "" if layer is None else layout.number(layer, projection)
            name = getattr(row, layout.column).format(n=number)
            yield row.electra_tf.format(n=layer), row, prefix + name
        for row in self.head.form.rows if self.head else _HEADS[self.role][0]:
            if (name := getattr(row, layout.column)) is not None:
                yield row.electra_tf, row, self.prefixes.head + name

    def head_exists_in(self, format: str) -> bool:
        """Return whether a library has the weights of the head, if there is one."""
        column = LAYOUTS[format].column
        rows = self.head.form.rows if self.head else _HEADS[self.role][0]
        return all(getattr(row, column) is not None for row in rows)

    def to_ours(self) -> "Network":
        """Convert to our names, and layouts in float32, with this one as `origin`."""
        weights, problems, shapes = {}, [], self.shapes
        layout, heads = LAYOUTS[self.format], self.shape.heads
        for ours, row, theirs in self.rows():
            array = self.weights.get(theirs)
            if array is None:
                problems.append(f"no {theirs}")
                continue
            size = np.broadcast_to(np.False_, shapes[ours])
            expected = names.to_format(size, row.kind, layout, heads).shape
            if array.shape != expected:
                problems.append(f"{theirs} of shape {array.shape}, not {expected}")
            elif not is_float(array):
                problems.append(f"{theirs} of dtype {array.dtype}, not floats")
            else:
                array = names.from_format(array, row.kind, layout, shapes[ours])
                weights[ours] = np.asarray(array, np.float32)
        if problems:
            surplus = f" and {len(problems) - 8} more" if len(problems) > 8 else ""
            raise InputError(
                f"{self.source} has not the weights of its config, an "
                f"{self.shape.depth}-layer {self.role}: "
                f"{'; '.join(problems[:8])}{surplus}"
            )
        return Network(self.role, self.shape, weights, self.head, origin=self)

    def to_format(self, format: str, prefixes: Prefixes = NO_PREFIXES) -> "Network":
        """Convert ours to a library's names and layouts; it may lack the head."""
        target = Network(self.role, self.shape, {}, self.head, format, prefixes)
        layout, heads = LAYOUTS[format], self.shape.heads
        weights = {
            theirs: names.to_format(self.weights[ours], row.kind, layout, heads)
            for ours, row, theirs in target.rows()
        }
        return dataclasses.replace(target, weights=weights)

    def without_head(self) -> "Network":
        """Return the encoder alone."""
        weights = {n: w for n, w in self.weights.items() if n.startswith("encoder/")}
        plain = {"role": "encoder", "head": None}
        origin = self.origin and dataclasses.replace(self.origin, **plain)
        return dataclasses.replace(self, weights=weights, origin=origin, **plain)

    def with_head(self, head: TaskHead) -> "Network":
        """Return a fine-tuned network with other names of its classes or tags."""
        origin = dataclasses.replace(self.origin, head=head)
        return dataclasses.replace(self, head=head, origin=origin)

    def with_rows_exchanged(self, number: int) -> "Network":
        """Return the network with a row exchanged with row 0 in all its tables."""
        return dataclasses.replace(self, weights=exchange_rows(self.weights, number))


def exchange_rows(
    arrays: Mapping[str, np.ndarray], number: int
) -> Mapping[str, np.ndarray]:
    """Return weights with a row exchanged with row 0 in tables and biases."""
    if not number:
        return arrays
    exchanged = dict(arrays)
    for path, array in arrays.items():
        if path.endswith((TABLE, BIAS)):
            exchanged[path] = array.copy()
            exchanged[path][[0, number]] = array[[number, 0]]
    return exchanged


def is_float(array: np.ndarray) -> bool:
    """Return whether an array has a floating-point dtype, bfloat16 included."""
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def table_shape(
    tensors: Mapping[str, np.ndarray], name: str, source: str, axes: int = 2
) -> tuple[int, ...]:
    """Return the shape of a weight from which a network's sizes are read."""
    shape = tensors[name].shape if name in tensors else None
    if shape is None or len(shape) != axes or 0 in shape:
        found = "is missing" if shape is None else f"has the shape {shape}"
        raise InputError(f"{source}: {name} must have {axes} axes, but {found}")
    return shape


def _check_sizes(network: Network) -> None:
    """Raise an error for a config that no weights fit, before it sizes anything."""
    shape = network.shape
    problems = [
        f"{name} {value}"
        for name, value in dataclasses.asdict(shape).items()
        if not (name in COUNTS) <= value <= _MAX_COUNT
    ]
    if not problems and shape.width % shape.heads:
        problems.append(f"width {shape.width}, not a multiple of heads {shape.heads}")
    if not problems and shape.depth > len(network.weights):
        problems.append(f"depth {shape.depth} with {len(network.weights)} tensors")
    if problems:
        raise InputError(
            f"{network.source} has sizes that are no encoder's: {'; '.join(problems)}"
        )


def read_shape(source: str, **values: Any) -> EncoderConfig:
    """Return the shape that a library's config describes, with BERT's rates."""
    try:
        return EncoderConfig(**{"dropout": 0.1, "attention_dropout": 0.1} | values)
    except pydantic.ValidationError as error:
        problems = (f"{e['loc'][0]} {e['input']!r:.80}" for e in error.errors())
        raise InputError(
            f"{source} has sizes that are no encoder's: {'; '.join(problems)}"
        ) from error
