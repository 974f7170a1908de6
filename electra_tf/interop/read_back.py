"""Compare a converted model, as it is read from its files, with its source."""

import dataclasses

import numpy as np

from electra_tf.interop.network import COUNTS, Network, Role

_SETTINGS = (*COUNTS, "layer_norm_epsilon")  # that decide what weights compute
_GELU = {"gelu": "exactly", "gelu_tanh": "by tanh"}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A network of the source, and the same one in the target."""

    role: Role
    equal: int
    """Number of weights that are equal, to the bit."""
    differences: tuple[str, ...]
    """Weights and settings that differ."""
    gelu: str = ""
    """How source and target compute gelu, if they differ in it."""

    def __str__(self) -> str:
        parts = [f"{self.equal} weights and all settings equal the source's"]
        if self.differences:
            parts = [f"{self.equal} weights equal the source's", *self.differences]
        if self.gelu:
            parts.append(f"{self.gelu}: hidden states differ by about 1e-3")
        return f"{self.role}, read again: {'; '.join(parts)}"


def compare(source: Network, target: Network, activation: str) -> Comparison:
    """Compare a network of ours with one as it was read in a library's format.

    `activation`: that of the model that the source was read from. A head that the
    target lacks is not compared.
    """
    weights = target.to_ours().weights
    unequal = [n for n, w in weights.items() if not _is_equal(w, source.weights[n])]
    settings = (
        (name, getattr(source.shape, name), getattr(target.shape, name))
        for name in _SETTINGS
    )
    differences = [f"{name} differs" for name in unequal]
    differences += [f"{name} {a} becomes {b}" for name, a, b in settings if a != b]
    gelu = ""
    if activation != target.activation:
        here, there = _GELU[activation], _GELU[target.activation]
        gelu = f"gelu is computed {here} in the source, {there} in the target"
    equal = len(weights) - len(unequal)
    return Comparison(source.role, equal, tuple(differences), gelu)


def _is_equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.array_equal(one, other)
