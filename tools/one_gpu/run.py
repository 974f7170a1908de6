"""Train with a step that was exported from TensorFlow, in the folder of this file.

    python run.py

Needs JAX with flatbuffers, which reads the programs, and NumPy, not TensorFlow. The
records stay on the device, and `training.log_every` steps are one program.
`state.npz` is replaced every ten minutes, at the end, and on SIGTERM or Ctrl-C: run the
same command again to resume. `metrics.jsonl` gets the means of the training metrics.
"""

import argparse
import functools
import json
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

State = dict[str, Any]

_SAVE_SECONDS = 600


class Trainer:
    """Trains in the folder of a run."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        text = (folder / "description.json").read_text("utf-8")
        self._description = json.loads(text)
        self._bits = jax.jit(self._program("order"))
        self._per_epoch = sum(self._description["counts"]) // self._description["rows"]

    def _program(self, name: str) -> Callable:
        content = (self._folder / f"{name}.jax").read_bytes()
        return jax.export.deserialize(bytearray(content)).call

    def read_records(self) -> State:
        """Return ids [N, L], and the ends and the starts of segment B [N]."""
        with np.load(self._folder / "records.npz") as file:
            return dict(file)

    @functools.lru_cache(maxsize=2)  # noqa: B019
    def _order(self, epoch: int) -> np.ndarray:
        """Return the numbers of the records of an epoch, int32 [N]."""
        shards, windows = map(np.asarray, self._bits(np.int64(epoch)))
        counts, size = self._description["counts"], self._description["window"]
        starts = np.cumsum([0, *counts])
        order = np.argsort(shards, kind="stable")
        numbers = [np.arange(starts[s], starts[s + 1], dtype=np.int32) for s in order]
        numbers = np.concatenate(numbers)
        parts = (slice(i, i + size) for i in range(0, len(numbers), size))
        return np.concatenate(
            [numbers[part][np.argsort(windows[part], kind="stable")] for part in parts]
        )

    def numbers(self, first: int, count: int) -> np.ndarray:
        """Return the numbers of the records of some steps, int32 [S, B]."""
        size = self._description["rows"]
        pairs = (divmod(step, self._per_epoch) for step in range(first, first + count))
        return np.stack([self._order(e)[i * size : (i + 1) * size] for e, i in pairs])

    def steps(self) -> Callable:
        """Return a function that runs a step for each row of record numbers.

        It takes the state, the records, and int32 [S, B], and returns the new state and
        the mean of each metric.
        """
        description, program = self._description, self._program("step")

        def step(records: State, state: State, numbers_B: Any) -> tuple[State, State]:
            batch = read_batch(records, numbers_B)
            results = program(*batch, *(state[name] for name in description["state"]))
            metrics = dict(zip(description["metrics"], results, strict=False))
            changed = {name: results[i] for name, i in description["results"].items()}
            return state | changed, metrics

        def steps(state: State, records: State, numbers: Any) -> tuple[State, State]:
            one = functools.partial(step, records)
            state, metrics = jax.lax.scan(one, state, numbers)
            return state, {name: rows.mean() for name, rows in metrics.items()}

        return jax.jit(steps, donate_argnums=0)

    def train(self) -> None:
        """Train until the last step or a signal."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        with np.load(self._folder / "state.npz") as file:
            state = jax.device_put(dict(file))
        records, run = jax.device_put(self.read_records()), self.steps()
        step, total = int(state[self._description["step"]]), self._description["steps"]
        saved = time.monotonic()
        while step < total and not stop.is_set():
            size = min(self._description["log_every"], total - step)
            start = time.monotonic()
            state, metrics = run(state, records, self.numbers(step, size))
            step += size
            self._log(step, metrics, start)
            if time.monotonic() - saved > _SAVE_SECONDS:
                self._save(state)
                saved = time.monotonic()
        self._save(state)
        rest = "" if step == total else "; run the same command to resume"
        print(f"state.npz has step {step:,}{rest}")

    def _log(self, step: int, metrics: State, start: float) -> None:
        """Write and print the metrics of the steps since `start`."""
        line = {"step": step} | {name: float(m) for name, m in metrics.items()}
        line["seconds"] = time.monotonic() - start
        with (self._folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)
        total = self._description["steps"]
        print(f"step {step:,}/{total:,}  loss {line['loss']:.4f}", flush=True)

    def _save(self, state: State) -> None:
        """Replace the state in one move."""
        partial = self._folder / "state.partial.npz"
        np.savez(partial, **{name: np.asarray(value) for name, value in state.items()})
        partial.rename(self._folder / "state.npz")


def read_batch(records: State, numbers_B: Any) -> tuple[Any, ...]:
    """Return ids, mask and segments of records, each int32 [B, L]."""
    ids_BL = records["ids"][numbers_B].astype(np.int32)
    position_L = jax.numpy.arange(ids_BL.shape[1])
    is_real_BL = position_L < records["ends"][numbers_B][:, None]
    is_second_BL = is_real_BL & (position_L >= records["starts"][numbers_B][:, None])
    return ids_BL, is_real_BL.astype(np.int32), is_second_BL.astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="gpu", choices=("gpu", "cpu"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # the step number is int64
    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # else JAX initialises all devices
    jax.config.update("jax_default_device", jax.devices(options.device)[0])
    Trainer(pathlib.Path(__file__).parent).train()


if __name__ == "__main__":
    sys.exit(main())
