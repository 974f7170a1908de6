"""The runs of a grid: systems x seeds at a budget of FLOPs.

A grid file has these keys:

    budget      FLOPs of a run, by the released script's counting rules
    base        settings of every run, as `--set` takes them
    systems     by name: `seeds`, `budget` (a factor of the budget) and `sets`
    scores      names of the evaluations, see `scores.py`
    shares      shares of training that are scored too
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

from electra_tf.config.loader import load_config
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.model.original_flops import training_flops

_REQUIRED = {"budget", "base", "systems", "scores"}


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a system."""

    system: str
    seed: int
    sets: tuple[str, ...]
    """Settings that differ from the defaults, without the number of steps."""
    budget: float
    """FLOPs of the whole training."""
    vocabulary_size: int

    @property
    def name(self) -> str:
        """Return the name of its folder and of its row."""
        return f"{self.system.replace('/', '_')}-seed{self.seed}"

    @property
    def steps(self) -> int:
        """Return the number of updates that the budget pays, even for two stages."""
        one = training_flops(self._config(2), self.softmax_share) / 2
        return max(2, 2 * round(self.budget / one / 2))

    @property
    def softmax_share(self) -> float:
        """Return the share of the positions that are masked, at most."""
        config = self._config(2)
        length = config.records.max_length
        return -(-config.masking.rate * length // 1) / length

    @property
    def flops(self) -> float:
        """Return the FLOPs of the training with its number of steps."""
        return training_flops(self._config(self.steps), self.softmax_share)

    @property
    def settings(self) -> list[str]:
        """Return all settings for `--set`."""
        steps = self.steps
        return [
            *self.sets,
            f"training.seed={self.seed}",
            f"input.seed={self.seed}",
            f"training.steps={steps}",
            f"optimizer.warmup_steps={max(1, steps // 20)}",
        ]

    def _config(self, steps: int) -> PretrainingConfig:
        sets = f"training.steps={steps}", "optimizer.warmup_steps=1"
        size = f"model.vocabulary_size={self.vocabulary_size}"
        return load_config("tiny", [*self.sets, *sets, size])


@dataclasses.dataclass(frozen=True)
class Grid:
    """All runs, in the order in which they are carried out."""

    runs: tuple[Run, ...]
    scores: tuple[str, ...]
    shares: tuple[float, ...]

    @classmethod
    def read(cls, path: pathlib.Path, vocabulary_size: int) -> "Grid":
        """Read a grid file.

        Args:
            path: A YAML file.
            vocabulary_size: Of the records.

        Returns:
            Its runs: the first seed of every system, then the second, and so on, so
            that an unfinished grid has every system.
        """
        content: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        _check_keys(path, content)
        base, runs = list(content["base"]), []
        systems = content["systems"].items()
        for seed in range(max(int(s.get("seeds", 1)) for _, s in systems)):
            for name, system in systems:
                if seed < int(system.get("seeds", 1)):
                    sets = (*base, *system.get("sets", ()))
                    budget = float(content["budget"]) * float(system.get("budget", 1))
                    runs.append(Run(name, seed, sets, budget, vocabulary_size))
        shares = tuple(content.get("shares", ()))
        return cls(tuple(runs), tuple(content["scores"]), shares)


def _check_keys(path: pathlib.Path, content: Any) -> None:
    """Raise an InputError for a grid file with missing or unknown keys."""
    known = _REQUIRED | {"shares"}
    keys = set(content) if isinstance(content, Mapping) else set()
    systems = content["systems"] if _REQUIRED <= keys <= known else None
    if not isinstance(systems, Mapping) or not systems:
        raise InputError(
            f"{path} must have the keys {', '.join(sorted(_REQUIRED))}, maybe shares; "
            "systems must be named",
            f"the keys {', '.join(map(str, keys)) or 'none'}",
            "Copy tools/reproduction/small.yaml and change it",
        )
    for name, system in systems.items():
        is_mapping = isinstance(system, Mapping)
        if not is_mapping or set(system) - {"seeds", "budget", "sets"}:
            raise InputError(
                f"A system in {path} must have only the keys seeds, budget and sets",
                f"{name}: {system!r:.80}",
                "Correct the key",
            )
