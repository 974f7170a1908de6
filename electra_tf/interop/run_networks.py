"""The networks among the weights of a pre-training run, by their paths."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from electra_tf.config.model import ModelConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.interop.model import Role
from electra_tf.model.transformer import DELTA

Place = Literal["main", "generator"]  # main: the discriminator or only network

_DISCRIMINATOR, _GENERATOR = "electra/discriminator/", "electra/generator/"
_OWNER = re.compile("(.*?/)(encoder|head)/")
_WORDS = "encoder/embeddings/word_embeddings"
_HEADS: dict[Role, str] = {
    "discriminator": "head/score/kernel",
    "generator": "head/output_bias",
}


@dataclasses.dataclass(frozen=True)
class RunNetworks:
    """Networks of a run, by the paths of its variables."""

    paths: frozenset[str]  # all paths
    main: str  # prefix of the discriminator or single network
    generator: str | None  # prefix of the generator; None without one

    @classmethod
    def of(cls, paths: Iterable[str]) -> "RunNetworks":
        """Find the networks."""
        paths = frozenset(paths)
        owners = {m[1] for path in paths if (m := _OWNER.match(path))}
        generators = {name for name in owners if name.endswith("generator/")}
        mains = [n for n in owners - generators if n + _WORDS in paths]
        return cls(paths, min(mains, default=""), min(generators, default=None))

    @property
    def main_role(self) -> Role:
        """The role of the main network, by its head."""
        roles = (role for role, n in _HEADS.items() if f"{self.main}{n}" in self.paths)
        return next(roles, "encoder")

    def path(self, place: Place, role: Role, name: str) -> str | None:
        """Return the run's path of a weight, or None."""
        prefix = self.main if place == "main" else self.generator
        if name.startswith("head/"):
            # Different heads have weights of the same names.
            has_head = role in _HEADS and f"{prefix}{_HEADS[role]}" in self.paths
            return f"{prefix}{name}" if has_head else None
        candidates = (f"{owner}{name}" for owner in (prefix, self.main))
        return next((path for path in candidates if path in self.paths), None)


def plain_weights(
    config: PretrainingConfig, step: int, weights: Mapping[str, np.ndarray]
) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Return the settings and weights of an equal model that needs no training state.

    With `sharing: gdes`, the difference is added to the generator's tables; the result
    has `sharing: none`. In the first stage of `two_stage`, the discriminator's encoder
    gets the generator's weights, as it will when the second begins.
    """
    model, plain = config.model, dict(weights)
    if config.restart and step < config.restart:
        for name in weights:
            source = name.replace(_DISCRIMINATOR, _GENERATOR)
            if name.startswith(f"{_DISCRIMINATOR}encoder/") and source in weights:
                plain[name] = weights[source]
    for name in [name for name in weights if name.endswith(DELTA)]:
        table = name.removesuffix(DELTA)
        base = weights[table.replace(_DISCRIMINATOR, _GENERATOR)]
        plain[table] = base + plain.pop(name)
    if model.sharing == "gdes":
        width = model.encoder.embedding
        model = dataclasses.replace(model, sharing="none", generator_embedding=width)
    return model, plain


def add_differences(
    arrays: Mapping[str, np.ndarray], variables: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return weights for `sharing: gdes`, the reverse of `plain_weights`."""
    result = dict(arrays)
    for name in variables:
        table = name.removesuffix(DELTA)
        if name.endswith(DELTA) and table in result:
            base = table.replace(_DISCRIMINATOR, _GENERATOR)
            base_table = arrays[base] if base in arrays else np.asarray(variables[base])
            result[name] = result.pop(table) - base_table
    return result
