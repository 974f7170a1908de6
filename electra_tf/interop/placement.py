"""The place of a model's networks among the variables of a run of pre-training."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from electra_tf.config.pretraining import (
    EncoderConfig,
    ModelConfig,
    PretrainingConfig,
)
from electra_tf.errors import InputError
from electra_tf.interop.network import Network, Role

Place = Literal["main", "generator"]
"""`main`: the discriminator, or the single network of a run without one."""

_WORDS = "encoder/embeddings/word_embeddings"
_HEADS: dict[Role, str] = {
    "discriminator": "head/score/kernel",
    "generator": "head/output_bias",
}
# Settings that decide what weights compute. Rows of the token table are compared with
# the vocabularies.
_SHAPE = (
    *("depth", "width", "embedding", "heads", "feed_forward"),
    *("max_positions", "segments", "layer_norm_epsilon"),
)


@dataclasses.dataclass(frozen=True)
class Parts:
    """Networks of a run, by the paths of its variables."""

    paths: frozenset[str]
    """All paths."""
    main: str
    """Prefix of the discriminator or single network."""
    generator: str | None
    """Prefix of the generator; None without one."""

    @classmethod
    def of(cls, paths: Iterable[str]) -> "Parts":
        """Find the networks."""
        paths = list(paths)
        owners = list(dict.fromkeys(filter(None, map(_owner, paths))))
        generators = [name for name in owners if name.endswith("generator/")]
        mains = [n for n in owners if n not in generators and n + _WORDS in paths]
        main = next(iter(mains), "")
        return cls(frozenset(paths), main, next(iter(generators), None))

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

    def group(self, path: str) -> str:
        """Return the group of a weight, for the summary."""
        owner = _owner(path)
        if owner is None:
            names = path.split("/")
            tower = [i for i, name in enumerate(names) if name.endswith("_encoder")]
            return " ".join(names[1 : tower[0] + 1]) if tower else "/".join(names[:-1])
        part = path.removeprefix(owner).split("/")
        if owner == self.main and self.generator is not None and part[0] == "encoder":
            if f"{self.generator}encoder/layer_0/output/kernel" not in self.paths:
                return "shared encoder"
            if part[1] == "embeddings" and self.generator + _WORDS not in self.paths:
                return "shared tables"
        return f"{owner.rstrip('/').rpartition('/')[2]} {part[0]}"


def place_of(
    network: Network,
    parts: Parts,
    settings: ModelConfig,
    alone: bool,
    frozen: bool = False,
) -> Place | None:
    """Return where the weights of a network belong, or None.

    A masked LM becomes the generator, unless only the main network has its shape: a
    BERT, whose encoder initialises the discriminator. A frozen generator must come from
    the source, whatever its shape.
    """
    if network.role != "generator":
        return "main"
    if parts.generator is None and not alone:
        return None
    fits_main = not _differences(network.shape, settings.encoder)
    fits_generator = not _differences(network.shape, settings.generator)
    fits_main_only = fits_main and not fits_generator and not frozen
    if parts.generator is None or fits_main_only:
        return "main"
    return "generator"


def check_shapes(
    found: Sequence[tuple[Network, Place | None]],
    config: PretrainingConfig,
    source: str,
) -> None:
    """Reject networks whose shape is not the run's."""
    settings, problems = config.model, []
    for network, place in found:
        if place is not None:
            run = settings.encoder if place == "main" else settings.generator
            problems += [
                f"the {network.role}'s {name} is {there} in {source}, {here} in the run"
                for name, there, here in _differences(network.shape, run)
            ]
    if problems:
        raise InputError(
            "The run's model must have the shape of the initial checkpoint",
            "; ".join(problems),
            _remedy({place: network.shape for network, place in found}, config),
        )


def _owner(path: str) -> str | None:
    """Return the prefix of the network that a variable belongs to."""
    for part in ("encoder/", "head/"):
        start = path.find(f"/{part}")
        if start >= 0:
            return path[: start + 1]
    return None


def _differences(
    source: EncoderConfig, run: EncoderConfig
) -> list[tuple[str, Any, Any]]:
    pairs = ((name, getattr(source, name), getattr(run, name)) for name in _SHAPE)
    return [(name, there, here) for name, there, here in pairs if there != here]


def _remedy(
    shapes: dict[Place | None, EncoderConfig], config: PretrainingConfig
) -> str:
    flags = _flags(shapes, config.model)
    if flags is None:
        return (
            "No settings describe these networks as a pair: begin from one of them, or "
            "choose a discriminator that is as wide and deep as the generator"
        )
    shown = " ".join(f"--set model.{name}={value}" for name, value in flags.items())
    remedy = f"Train the model of the checkpoint: {shown}"
    positions = flags.get("max_positions", config.model.max_positions)
    if positions < config.records.max_length:
        remedy += f", with records of at most {positions} positions"
    return remedy


def _flags(
    shapes: dict[Place | None, EncoderConfig], settings: ModelConfig
) -> dict[str, Any] | None:
    """Return the fewest settings to change for these shapes; None: none describe it."""
    main, generator = shapes.get("main"), shapes.get("generator")
    body = main or settings.encoder
    wanted = {name: getattr(main or generator, name) for name in _SHAPE[5:]}
    if main:
        wanted |= {name: getattr(main, name) for name in _SHAPE[:5]}
    if generator:
        wanted |= {
            "generator_width": generator.width / body.width,
            "generator_depth": generator.depth / body.depth,
            "generator_heads": generator.heads,
            "generator_feed_forward": generator.feed_forward,
        }
        if generator.embedding != body.embedding:
            wanted |= {"sharing": "none", "generator_embedding": generator.embedding}
        elif settings.sharing == "none":
            wanted["generator_embedding"] = generator.embedding
        elif settings.sharing == "all" and generator != body:
            wanted["sharing"] = "embeddings"
    flags = {n: value for n, value in wanted.items() if getattr(settings, n) != value}
    goal = _resolved(settings, flags)
    if goal is None:
        return None
    for name in list(flags):
        fewer = {other: flags[other] for other in flags if other != name}
        if _resolved(settings, fewer) == goal:
            flags = fewer
    return flags


def _resolved(
    settings: ModelConfig, changes: dict[str, Any]
) -> tuple[EncoderConfig, EncoderConfig, str] | None:
    """Return the shapes and sharing of changed settings; None if they are invalid."""
    try:
        changed = dataclasses.replace(settings, **changes)
    except ValueError:
        return None
    return changed.encoder, changed.generator, changed.sharing
