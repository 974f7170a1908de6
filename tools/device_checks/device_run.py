"""Run a pre-training step that was compiled from TensorFlow, and compare the results.

    python run.py --device=gpu

This file and the folder that it is in need JAX with flatbuffers, which reads the
programs, and NumPy, not TensorFlow. The state is carried from step to step. Losses,
gradient norms and final weights are compared with those of TensorFlow's own step on a
CPU, in float32. The exit code is 1 if those of this program in float32 differ by more
than --tolerance.
"""

import argparse
import json
import pathlib
import sys
import time
from typing import Any

import jax
import numpy as np
from device_layout import pack, unpack

_SECONDS = 2  # at least, to measure the time of a step

Reference = dict[str, Any]
State = dict[str, jax.Array]


def initial_state(folder: pathlib.Path, reference: Reference) -> State:
    """Compute the initial weights and the optimizer's variables."""
    program = jax.export.deserialize(bytearray((folder / "initial.jax").read_bytes()))
    values = jax.jit(program.call)(np.int64(reference["seed"]))
    return dict(zip(reference["state"], values, strict=True))


def load_step(folder: pathlib.Path, reference: Reference, precision: str) -> Any:
    """Return a compiled function of state and batch that returns state and metrics."""
    names = reference["programs"][precision]
    path = folder / f"{precision}.jax"
    program = jax.export.deserialize(bytearray(path.read_bytes()))

    def step(state: State, batch: jax.Array) -> tuple[State, dict[str, jax.Array]]:
        results = program.call(*batch, *(state[name] for name in names["state"]))
        metrics = dict(zip(names["metrics"], results, strict=False))
        changed = {name: results[i] for name, i in names["results"].items()}
        return state | changed, metrics

    return jax.jit(step, donate_argnums=0)


def run_steps(
    step: Any, state: State, batches: np.ndarray
) -> tuple[State, dict[str, list[float]]]:
    """Run all steps; return state and metrics."""
    rows = []
    for batch in batches:
        state, metrics = step(state, batch)
        rows.append(metrics)
    return state, {name: [float(r[name]) for r in rows] for name in rows[0]}


def time_steps(step: Any, state: State, batches: np.ndarray) -> float:
    """Repeat the compiled steps for some seconds; return the seconds of one."""
    batches = jax.block_until_ready([jax.numpy.asarray(batch) for batch in batches])
    jax.block_until_ready(state)
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < _SECONDS:
        for batch in batches:
            state, _ = step(state, batch)
        jax.block_until_ready(state)
        count += len(batches)
    return (time.perf_counter() - start) / count


def compare(
    folder: pathlib.Path,
    reference: Reference,
    state: State,
    metrics: dict[str, list[float]],
) -> tuple[dict[str, float], float]:
    """Return the largest differences, relative for all but the sampled weights.

    The second value is the largest change of a sampled weight in TensorFlow's steps.
    """
    differences = {
        name: _relative(metrics[name], reference["metrics"][name])
        for name in ("loss", "gradient_norm")
    }
    norms = [float(np.linalg.norm(state[name])) for name in reference["norms"]]
    differences["norms"] = _relative(norms, list(reference["norms"].values()))
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
    folder: pathlib.Path, reference: Reference, precision: str, device: jax.Device
) -> dict[str, Any]:
    """Run all steps in one precision; return speed and differences."""
    batches = np.load(folder / "batches.npz")["batches"]
    with jax.default_device(device):
        step = load_step(folder, reference, precision)
        state = initial_state(folder, reference)
        layout = reference["programs"][precision].get("layout")
        if layout:
            state = jax.device_put(pack(state, layout))
        state, metrics = run_steps(step, state, batches)
        final = unpack(state, layout) if layout else state
        differences, moved = compare(folder, reference, final, metrics)
        seconds = time_steps(step, state, batches)
    tokens = batches[:, 1].sum() / len(batches)
    flops = reference["programs"][precision]["matmul_flops"]
    return {
        "device": device.device_kind,
        "jax": jax.__version__,
        "precision": precision,
        "steps": len(batches),
        "differences": differences,
        "largest_update": moved,
        "seconds_per_step": seconds,
        "tokens_per_second": tokens / seconds,
        "share_of_peak": _share_of_peak(reference, flops, seconds, device),
    }


def _share_of_peak(
    reference: Reference, flops: dict[str, int], seconds: float, device: jax.Device
) -> float | None:
    """Return the time of the matmuls at the maker's peak / time; None: not known."""
    kind = device.device_kind.lower()
    for name, peaks in reference["peaks"].items():
        if name in kind:
            return sum(n / peaks[dtype] for dtype, n in flops.items()) / seconds
    return None


def main() -> None:
    """Run the steps in each precision, and print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "gpu", "tpu"))
    parser.add_argument("--tolerance", type=float, help="default: 1e-4 on a CPU, 5e-2")
    parser.add_argument("--all_precisions", action="store_true", help="on a CPU too")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # the step number is int64
    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # else JAX initialises all devices
    folder = pathlib.Path(__file__).parent
    reference = json.loads((folder / "reference.json").read_text(encoding="utf-8"))
    device = jax.devices(options.device)[0]
    # CPUs without bfloat16 instructions take very long for it.
    precisions = [*reference["programs"]]
    if options.device == "cpu" and not options.all_precisions:
        precisions = precisions[:1]
    worst = {}
    for precision in precisions:
        results = measure(folder, reference, precision, device)
        print(json.dumps(results), flush=True)
        worst[precision] = max(results["differences"].values())
    # GPUs and TPUs round the operands of float32 matmuls.
    tolerance = options.tolerance or (1e-4 if options.device == "cpu" else 5e-2)
    if not worst["float32"] <= tolerance:
        sys.exit(
            f"error: float32 differs by {worst['float32']:.1e} from TensorFlow's step"
        )


if __name__ == "__main__":
    main()
