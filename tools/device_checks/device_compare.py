"""Compare the steps of a folder of `device_compile --run` with TensorFlow's."""

import argparse
import json
import pathlib
import sys
import time
from typing import Any

import numpy as np
from device_steps import Description, State, initial_state, load_step, unpack

_SECONDS = 2  # at least, to measure the time of a step


def compare(
    folder: pathlib.Path, description: Description, state: State, metrics: State
) -> tuple[dict[str, float], float]:
    """Return the largest differences, relative for all but the sampled weights.

    The second value is the largest change of a sampled weight in TensorFlow's steps.
    """
    expected = description["reference"]
    names = "loss", "gradient_norm"
    differences = {name: _relative(metrics[name], expected[name]) for name in names}
    norms = [float(np.linalg.norm(state[name])) for name in description["norms"]]
    differences["norms"] = _relative(norms, list(description["norms"].values()))
    samples = np.load(folder / "reference.npz")
    tensors = {name: np.ravel(state[name]) for name in set(samples["names"].tolist())}
    pairs = zip(samples["names"], samples["indices"], strict=True)
    values = np.array([tensors[str(name)][index] for name, index in pairs])
    before, after = samples["values"]
    differences["weights"] = float(np.abs(values - after).max())
    return differences, float(np.abs(after - before).max())


def _relative(values: list[float], expected: list[float]) -> float:
    values, expected = np.array(values), np.array(expected)
    return float((np.abs(values - expected) / np.maximum(np.abs(expected), 1e-3)).max())


def measure(
    folder: pathlib.Path, description: Description, precision: str
) -> dict[str, Any]:
    """Run all steps in one precision; return speed and differences."""
    import jax

    device = jax.config.jax_default_device
    batches = np.load(folder / "batches.npz")["batches"]
    names = description["programs"][precision]
    step = jax.jit(load_step(folder, description, precision), donate_argnums=0)
    state = jax.device_put(initial_state(folder, description, precision))
    rows = []
    for batch in batches:
        state, metrics = step(state, batch)
        rows.append(metrics)
    metrics = {name: [float(row[name]) for row in rows] for name in rows[0]}
    final = unpack(state, names["layout"]) if "layout" in names else state
    differences, moved = compare(folder, description, final, metrics)
    placed = jax.block_until_ready([jax.numpy.asarray(batch) for batch in batches])
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < _SECONDS:
        for batch in placed:
            state, _ = step(state, batch)
        jax.block_until_ready(state)
        count += len(placed)
    seconds = (time.perf_counter() - start) / count
    kind = device.device_kind
    peaks = [p for n, p in description["peaks"].items() if n in kind.lower()]
    work = [sum(n / p[t] for t, n in names["matmul_flops"].items()) for p in peaks]
    return {
        "device": kind,
        "jax": jax.__version__,
        "precision": precision,
        "steps": len(batches),
        "differences": differences,
        "largest_update": moved,
        "seconds_per_step": seconds,
        "tokens_per_second": batches[:, 1].sum() / len(batches) / seconds,
        "share_of_peak": work[0] / seconds if work else None,
    }


def compare_all(folder: pathlib.Path, options: argparse.Namespace) -> None:
    """Run the steps in each precision, and print the comparison."""
    text = (folder / "description.json").read_text(encoding="utf-8")
    description = json.loads(text)
    # CPUs without bfloat16 instructions take very long for it.
    precisions = [*description["programs"]]
    if options.device == "cpu" and not options.all_precisions:
        precisions = precisions[:1]
    worst = {}
    for precision in precisions:
        results = measure(folder, description, precision)
        print(json.dumps(results), flush=True)
        worst[precision] = max(results["differences"].values())
    # GPUs and TPUs round the operands of float32 matmuls.
    tolerance = options.tolerance or (1e-4 if options.device == "cpu" else 5e-2)
    if not worst["float32"] <= tolerance:
        different = f"float32 differs by {worst['float32']:.1e} from TensorFlow's step"
        sys.exit(f"error: {different}")
