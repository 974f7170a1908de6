"""Draw conclusions from the differences between systems, by a rule fixed before."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from metrics import crossings, interval
from results import PRIMARY, Results, cell

_AGREE = 3  # of the tasks, for a system that wins
_SEEDS = 2  # of pre-training, at least, for any conclusion


def conclusions(results: Results) -> list[str]:
    lines = []
    for pair in results.pairs:
        budgets = {
            rung: float(results.grid.content["rungs"][rung]["positions"])
            for rung in results.rungs
            if _difference(results, pair, rung, PRIMARY) is not None
        }
        if budgets:
            lines.append(f"- {_conclusion(results, pair, budgets)}")
    reading = (
        "A system wins at a budget if the interval of its difference is above 0, at "
        f"least {_AGREE} of the {len(PRIMARY)} tasks agree, and the difference is not "
        "smaller than at the budget before. One pre-training seed concludes nothing."
    )
    return ["## Who wins", reading, "\n".join(lines)] if lines else []


def _difference(
    results: Results, pair: Sequence[str], rung: str, names: Sequence[str]
) -> np.ndarray | None:
    """Return a difference of at least two seeds, else None."""
    found = results.difference(pair, rung, names)
    return found[0] if found and found[1] >= _SEEDS else None


def advice(results: Results) -> Iterator[str]:
    for rung in results.rungs:
        pairs = [
            pair
            for pair in results.pairs
            if _difference(results, pair, rung, PRIMARY) is not None
        ]
        scored = [s for s in results.systems if any(s in pair for pair in pairs)]
        if not scored:
            continue
        best = _best(results, scored, rung, PRIMARY)
        text, equal = f"for the mean of the tasks {' or '.join(best)}", []
        for task in PRIMARY:
            best = _best(results, scored, rung, [task])
            if len(best) < len(scored):
                text += f", for {task} {' or '.join(best)}"
            else:
                equal.append(task)
        none = f" No difference is shown for {', '.join(equal)}." if equal else ""
        for baseline in results.baselines:
            if tasks := _no_gain(results, scored, rung, baseline):
                none += f" None is shown to be better than {baseline} on "
                none += f"{', '.join(tasks)}."
        yield f"- With the compute of {rung} positions of masked LM, use {text}.{none}"


def _no_gain(results: Results, systems: list[str], rung: str, base: str) -> list[str]:
    """Return the tasks on which no system's difference from a baseline is above 0."""
    tasks = []
    for task in PRIMARY:
        found = [_difference(results, (s, base), rung, [task]) for s in systems]
        lows = [interval(values)[1] for values in found if values is not None]
        if lows and max(lows) <= 0:
            tasks.append(task)
    return tasks


def _best(
    results: Results, systems: Sequence[str], rung: str, names: Sequence[str]
) -> list[str]:
    """Return the systems that no other one is ahead of."""
    worse = set()
    for pair in itertools.permutations(systems, 2):
        values = _difference(results, pair, rung, names)
        if values is not None and interval(values)[1] > 0:
            worse.add(pair[1])
    return [system for system in systems if system not in worse]


def _conclusion(
    results: Results, pair: tuple[str, str], budgets: Mapping[str, float]
) -> str:
    curve = [results.difference(pair, rung, PRIMARY)[0] for rung in budgets]
    befores = [None, *(values[0] for values in curve)]
    texts = [
        f"{rung}: {_verdict(results, pair, rung, values, before)}"
        for rung, values, before in zip(budgets, curve, befores, strict=False)
    ]
    crossing = _crossing(pair[0], curve, budgets)
    return f"{pair[0]} and {pair[1]}. {'; '.join(texts)}. {crossing}"


def _verdict(
    results: Results,
    pair: Sequence[str],
    rung: str,
    values: np.ndarray,
    before: float | None,
) -> str:
    """Return who is ahead at a rung."""
    value, low, high = interval(values)
    tasks = [results.difference(pair, rung, [name])[0][0] for name in PRIMARY]
    side = 1 if value >= 0 else -1
    agree = sum(side * difference > 0 for difference in tasks)
    figures = f"{cell(values, '+')}, {agree} of {len(PRIMARY)} tasks agree"
    if (seeds := results.difference(pair, rung, PRIMARY)[1]) < 3:
        figures += f", {seeds} seeds"
    name = pair[0] if side > 0 else pair[1]
    if low <= 0 <= high:
        return f"no difference shown ({figures})"
    if agree < _AGREE:
        return f"{name} is ahead in the mean, not on most tasks ({figures})"
    if before is None:
        return f"{name} is ahead; one budget shows no trend ({figures})"
    if side * (value - before) < 0:
        return f"{name} is ahead by less than at the budget before ({figures})"
    return f"{name} wins ({figures})"


def _crossing(
    first: str, curve: Sequence[np.ndarray], budgets: Mapping[str, float]
) -> str:
    """Return at which budget the difference changes its sign."""
    if len(curve) < 2:
        return "One budget gives no crossing."
    positions = [*budgets.values()]
    found = interval(crossings(np.stack(curve), positions))
    slope = np.polyfit(np.log(positions), [v[0] for v in curve], 1)[0]
    least = min(positions)
    at, low, high = (
        f"below {least:.3g}" if x < least else f"{x:.3g}" if x < math.inf else "never"
        for x in found
    )
    return (
        f"{first} {'gains' if slope > 0 else 'loses'} with the budget. The line "
        f"through the differences is 0 at these positions of masked LM: {at} "
        f"({'extrapolated, ' if found[0] > max(positions) else ''}interval {low} to "
        f"{high})."
    )
