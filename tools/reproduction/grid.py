"""The runs of a grid file: systems x rungs x seeds, at equal executed FLOPs.

A grid file has these keys:

    base        settings of every run, as `--set` takes them
    reference   the system whose positions define the budget of a rung
    rungs       by name: `positions` of the reference, and `seeds`
    systems     by name: `sets`; perhaps `warm_start` (`system` and `share`: a first
                part of the FLOPs with that system's settings, from whose weights the
                rest begins), or `steps` and `seeds` instead of rungs
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from electra_tf.config.loader import load_config
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.model import cost
from electra_tf.model.original_flops import training_flops

_KEYS = {"base", "reference", "rungs", "systems"}
_SYSTEM_KEYS = {"sets", "warm_start", "steps", "seeds"}


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    """Of its folder."""
    sets: tuple[str, ...]
    """All settings for `--set`."""
    config: PretrainingConfig

    @property
    def facts(self) -> dict[str, Any]:
        config = self.config
        rows = config.training.steps * config.input.batch_size
        length = config.records.max_length
        share = math.ceil(config.masking.rate * length) / length
        return {
            "name": self.name,
            "sets": list(self.sets),
            "steps": config.training.steps,
            "positions": rows * length,
            "flops": cost.training_flops(config),
            "original_flops": training_flops(config, share),
        }


@dataclasses.dataclass(frozen=True)
class Run:
    system: str
    rung: str
    """Empty for a system with `steps` of its own."""
    seed: int
    stages: tuple[Stage, ...]

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.system, self.rung, f"seed{self.seed}")))


def read(path: pathlib.Path) -> list[Run]:
    """Return the runs of a grid file: by rung, by seed, all systems of a seed."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    _check(path, content)
    runs = []
    for number, (rung, facts) in enumerate(content["rungs"].items()):
        for seed in range(int(facts["seeds"])):
            runs += _runs(content, rung, seed)
        if number == 0:
            runs += _runs_without_rung(content)
    return runs


def _runs(content: Mapping, rung: str, seed: int) -> list[Run]:
    base, systems = content["base"], content["systems"]
    positions = float(content["rungs"][rung]["positions"])
    reference = systems[content["reference"]]["sets"]
    one = _stage("", [*base, *reference], seed, 10**6).facts
    budget = one["flops"] * positions / one["positions"]
    runs = []
    for name, system in systems.items():
        if "steps" in system:
            continue
        stages, rest = [], budget
        if warm := system.get("warm_start"):
            sets = [*base, *systems[warm["system"]]["sets"]]
            share = float(warm["share"]) * budget
            stages = [_stage_of("warm_start", sets, seed, share)]
            rest -= stages[0].facts["flops"]
        # A second stage reads the records in another order.
        order = seed + 1000 * len(stages)
        stages.append(_stage_of("main", [*base, *system["sets"]], seed, rest, order))
        runs.append(Run(name, rung, seed, tuple(stages)))
    return runs


def _runs_without_rung(content: Mapping) -> list[Run]:
    runs = []
    for name, system in content["systems"].items():
        if steps := system.get("steps"):
            sets = [*content["base"], *system["sets"]]
            for seed in range(int(system["seeds"])):
                runs.append(Run(name, "", seed, (_stage("main", sets, seed, steps),)))
    return runs


def _stage_of(
    name: str, sets: Sequence[str], seed: int, budget: float, order: int | None = None
) -> Stage:
    """Return the stage with the number of steps that a budget of FLOPs pays."""
    steps = 10**5
    for _ in range(10):  # the first gives the number, unless steps differ in cost
        stage = _stage(name, sets, seed, steps, order)
        mean = cost.training_flops(stage.config) / steps
        paid = max(2, 2 * round(budget / mean / 2))  # even, for `two_stage`
        if paid == steps:
            break
        steps = paid
    return stage


def _stage(
    name: str, sets: Sequence[str], seed: int, steps: int, order: int | None = None
) -> Stage:
    sets = [
        *sets,
        f"training.seed={seed}",
        f"input.seed={seed if order is None else order}",
        f"training.steps={steps}",
        f"optimizer.warmup_steps={max(1, steps // 20)}",
    ]
    return Stage(name, tuple(sets), load_config("tiny", sets))


def _check(path: pathlib.Path, content: Mapping) -> None:
    unknown = content.keys() - _KEYS
    for system in content["systems"].values():
        unknown |= system.keys() - _SYSTEM_KEYS
    if unknown:
        raise InputError(
            f"{path}: keys must be of {', '.join(sorted(_KEYS | _SYSTEM_KEYS))}, not "
            f"{', '.join(sorted(unknown))}"
        )
