"""Train on with a step that was compiled from TensorFlow.

    python run.py --device=gpu

This file and the folder that it is in need JAX with flatbuffers, which reads the
program, and NumPy, not TensorFlow. The records stay on the device, and many steps are
one program. `state.npz` is replaced every ten minutes, at the end, and on SIGTERM or
Ctrl-C: run the same command again to resume. `weights.npz` has the weights alone, in
float16. `metrics.jsonl` gets the means of the training metrics.
"""

import argparse
import json
import pathlib
import signal
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_SAVE_SECONDS = 600

State = dict[str, jax.Array]


def make_steps(folder: pathlib.Path, description: dict[str, Any]) -> Any:
    """Return a function that runs a step for each row of record numbers.

    It takes the state, the arrays of `records.npz`, and int32 [S, B], and returns the
    new state and the mean of each metric.
    """
    path = folder / "step.jax"
    program = jax.export.deserialize(bytearray(path.read_bytes()))

    def steps(state: State, records: State, numbers_SB: jax.Array) -> tuple:
        def step(state: State, numbers_B: jax.Array) -> tuple[State, State]:
            batch = read_batch(records, numbers_B)
            inputs = [state[name] for name in description["state"]]
            results = program.call(*batch, *inputs)
            metrics = dict(zip(description["metrics"], results, strict=False))
            changed = {n: results[i] for n, i in description["results"].items()}
            return state | changed, metrics

        state, metrics = jax.lax.scan(step, state, numbers_SB)
        return state, {name: values.mean() for name, values in metrics.items()}

    return jax.jit(steps, donate_argnums=0)


def read_batch(records: State, numbers_B: jax.Array) -> tuple[jax.Array, ...]:
    """Return ids, mask and segments of records, each int32 [B, L]."""
    ids_BL = records["ids"][numbers_B].astype(jnp.int32)
    position_L = jnp.arange(ids_BL.shape[1])
    is_real_BL = position_L < records["ends"][numbers_B][:, None]
    is_second_BL = is_real_BL & (position_L >= records["starts"][numbers_B][:, None])
    return ids_BL, is_real_BL.astype(jnp.int32), is_second_BL.astype(jnp.int32)


def save(folder: pathlib.Path, state: State, description: dict[str, Any]) -> None:
    """Replace the state, and the weights alone in float16, each in one move."""
    step, names = description["step"], description["weights"]
    arrays = {name: np.asarray(value) for name, value in state.items()}
    weights = {name: arrays[name].astype(np.float16) for name in names}
    files = {"state": arrays, "weights": weights | {step: arrays[step]}}
    for name, content in files.items():
        partial = folder / f"{name}.partial.npz"
        np.savez(partial, **content)
        partial.rename(folder / f"{name}.npz")


def train(folder: pathlib.Path) -> None:
    """Train until the last step or a signal."""
    text = (folder / "description.json").read_text(encoding="utf-8")
    description, stop = json.loads(text), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with np.load(folder / "state.npz") as file:
        state = {name: jnp.asarray(file[name]) for name in file.files}
    with np.load(folder / "records.npz") as file:
        records = {name: jnp.asarray(file[name]) for name in file.files}
    numbers_SB = np.load(folder / "order.npy", mmap_mode="r")
    steps = make_steps(folder, description)
    step, saved = int(state[description["step"]]), time.monotonic()
    while step < description["steps"] and not stop.is_set():
        size = min(description["log_every"], description["steps"] - step)
        first = step - description["first_step"]
        rows = jnp.asarray(numbers_SB[first : first + size])
        state, metrics = steps(state, records, rows)
        step += size
        line = {"step": step} | {name: float(m) for name, m in metrics.items()}
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)
        print(f"step {step:,}/{description['steps']:,}  loss {line['loss']:.4f}")
        if time.monotonic() - saved > _SAVE_SECONDS:
            save(folder, state, description)
            saved = time.monotonic()
    save(folder, state, description)
    rest = "" if step == description["steps"] else "; run the same command to resume"
    print(f"state.npz has step {step:,}{rest}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "gpu", "tpu"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # the step number is int64
    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # else JAX initialises all devices
    with jax.default_device(jax.devices(options.device)[0]):
        train(pathlib.Path(__file__).parent)


if __name__ == "__main__":
    main()
