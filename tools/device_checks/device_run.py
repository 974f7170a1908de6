"""Run pre-training steps that were compiled from TensorFlow.

    python run.py --device=gpu

This file and the folder that it is in, with `device_steps.py` and `device_compare.py`,
need JAX with flatbuffers, which reads the programs, and NumPy, not TensorFlow.

A folder of `device_train` trains. The records stay on the device, and many steps are
one program: `compiled.bin` if it loads here (`run.py --compile`), else it is compiled.
A new run lasts for --minutes: 200 steps are timed before its number of steps is fixed.
`weights.npz`, the weights alone in float16, is replaced every minute, `state.npz` every
ten minutes, at the end, and on SIGTERM or Ctrl-C: run the same command again to resume.
`metrics.jsonl` gets the means of the training metrics. --profile times steps and prints
the longest kernels instead.

A folder of `device_compile --run` compares losses, gradient norms and final weights
with those of TensorFlow's own step on a CPU, in float32. The exit code is 1 if those of
this program in float32 differ by more than --tolerance.
"""

import argparse
import collections
import functools
import io
import json
import lzma
import math
import pathlib
import pickle
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from device_steps import (
    Description,
    State,
    initial_state,
    load_program,
    load_step,
    pack,
)

_SHARE = 0.95  # of the time that is left, which the steps may take
_SAVE_SECONDS = {"weights": 60, "state": 600}
_LONGEST = 12  # kernels to print


class Trainer:
    """Trains in the folder of a run."""

    def __init__(
        self,
        folder: pathlib.Path,
        minutes: float,
        timed_steps: int,
        begin: pathlib.Path | None = None,
    ):
        import jax

        self._begin = begin
        self._end, self._timed_steps = time.monotonic() + 60 * minutes, timed_steps
        self._folder, text = folder, (folder / "description.json").read_text("utf-8")
        self._description = json.loads(text)
        self._step = self._description["step"]
        self._size = self._description["log_every"]
        self._batches = self._description["batches"]
        lengths, rows = ([b[k] for b in self._batches] for k in ("length", "rows"))
        records = self._read_records()
        self._kinds = np.searchsorted(lengths, records["ends"])
        self._per_epoch = np.bincount(self._kinds, minlength=len(lengths)) // rows
        self._records = jax.device_put(records)
        self._bits = jax.jit(load_program(folder, "order"))

    def _read_records(self) -> State:
        """Return ids [N, L], and the ends and the starts of segment B [N]."""
        parts = sorted(self._folder.glob("records.xz.*"))
        content = lzma.decompress(b"".join(part.read_bytes() for part in parts))
        with np.load(io.BytesIO(content)) as file:
            ends, starts, ranks = file["ends"], file["starts"], file["ranks"]
            ids = file["ids"].astype(ranks.dtype)
        ids_NL = np.zeros((len(ends), self._description["length"]), ranks.dtype)
        ids_NL[np.arange(ids_NL.shape[1]) < ends[:, None]] = ids[ranks]
        return {"ids": ids_NL, "ends": ends, "starts": starts}

    def start(self) -> State:
        """Return the state at the beginning, or where an interruption left it."""
        import jax

        description, path = self._description, self._folder / "state.npz"
        if path.exists():
            with np.load(path) as file:
                state = {name: file[name] for name in file.files}
            layout = description["programs"]["step"].get("layout")
            if layout and not layout["sizes"].keys() <= state.keys():
                state = pack(state, layout)
        else:
            state = initial_state(self._folder, description, "step", self._begin)
        schedule = {n: np.float32(v) for n, v in description["schedule"].items()}
        return jax.device_put(schedule | state)

    @functools.lru_cache(maxsize=2)  # noqa: B019
    def _order(self, epoch: int) -> list[np.ndarray]:
        """Return the numbers of the records of an epoch for each kind of batches."""
        description = self._description
        shards, windows = map(np.asarray, self._bits(np.int64(epoch)))
        counts, size = description["counts"], description["window"]
        starts = np.cumsum([0, *counts])
        order = np.argsort(shards, kind="stable")
        numbers = [np.arange(starts[s], starts[s + 1], dtype=np.int32) for s in order]
        numbers = np.concatenate(numbers)
        parts = (slice(i, i + size) for i in range(0, len(numbers), size))
        order = np.concatenate(
            [numbers[part][np.argsort(windows[part], kind="stable")] for part in parts]
        )
        kinds = self._kinds[order]
        return [order[kinds == kind] for kind in range(len(self._per_epoch))]

    def _numbers(self, first: int, count: int) -> list[np.ndarray]:
        """Return the numbers of the records of some steps, int32 [S, B] of each kind.

        In `log_every` steps each kind has its `steps`, in turn.
        """
        blocks, places = divmod(np.arange(first, first + count), self._size)
        rows, start = [], 0
        for kind, batch in enumerate(self._batches):
            each, size = batch["steps"], batch["rows"]
            here = (start <= places) & (places < start + each)
            numbers = (blocks * each + places - start)[here]
            pairs = zip(*divmod(numbers, self._per_epoch[kind]), strict=True)
            chosen = [self._order(e)[kind][i * size : (i + 1) * size] for e, i in pairs]
            rows.append(np.array(chosen, np.int32).reshape(-1, size))
            start += each
        return rows

    def steps(self) -> Callable:
        """Return a function that runs a step for each row of record numbers.

        It takes the state, the records, and int32 [S, B] of each kind of batches, and
        returns the new state and the mean of each metric.
        """
        import jax

        def step_of(batch: Description) -> Callable:
            return load_step(self._folder, self._description, batch["program"])

        kinds = [(step_of(batch), batch["length"]) for batch in self._batches]

        def steps(state: State, records: State, numbers: Any) -> tuple[State, State]:
            rows = []
            for (step, length), numbers_SB in zip(kinds, numbers, strict=True):

                def one(state: State, numbers_B: Any, step: Any = step, length=length):
                    return step(state, read_batch(records, numbers_B, length))

                state, metrics = jax.lax.scan(one, state, numbers_SB)
                rows.append(metrics)
            return state, {
                name: jax.numpy.concatenate([row[name] for row in rows]).mean()
                for name in rows[0]
            }

        return jax.jit(steps, donate_argnums=0)

    def arguments(self) -> tuple[State, State, list[np.ndarray]]:
        return self.start(), self._records, self._numbers(0, self._size)

    def train(self) -> None:
        """Train until the last step or a signal."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        if bool(self._begin) != bool(self._description["begin"]):
            sys.exit("error: --begin must be given if the export had it, not otherwise")
        run, state = self._load() or self.steps(), self.start()
        step = int(state[self._step])
        if step == 0:
            state = state | self._fixed_schedule(run)
        total, saved = int(state["schedule/steps"]), dict.fromkeys(_SAVE_SECONDS, 0.0)
        while step < total and not stop.is_set():
            size = min(self._size, total - step)
            one = run if size == self._size else self.steps()
            state, metrics = one(state, self._records, self._numbers(step, size))
            step += size
            line = {"step": step} | {name: float(m) for name, m in metrics.items()}
            with (self._folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                print(json.dumps(line), file=file)
            print(f"step {step:,}/{total:,}  loss {line['loss']:.4f}", flush=True)
            for name, seconds in _SAVE_SECONDS.items():
                if time.monotonic() - saved[name] > seconds:
                    self._save(name, state)
                    saved[name] = time.monotonic()
        for name in _SAVE_SECONDS:
            self._save(name, state)
        rest = "" if step == total else "; run the same command to resume"
        print(f"state.npz has step {step:,}{rest}")

    def _fixed_schedule(self, run: Callable) -> State:
        """Time some steps; return the numbers of steps that fit into the time."""
        planned = self._description["schedule"]
        if not math.isfinite(self._end):
            return {name: np.float32(value) for name, value in planned.items()}
        _, seconds = self._time(run)
        left = _SHARE * (self._end - time.monotonic()) / seconds
        steps = max(1, int(left) // self._size) * self._size
        share = planned["schedule/warmup"] / planned["schedule/steps"]
        print(f"{1e3 * seconds:.2f} ms a step, so {steps:,} steps", flush=True)
        fixed = {"schedule/steps": steps, "schedule/warmup": round(share * steps)}
        return {name: np.float32(value) for name, value in fixed.items()}

    def _time(self, run: Callable) -> tuple[State, float]:
        """Run the first steps; return the state and the seconds of a step."""
        # The first call loads or compiles.
        state, metrics = run(self.start(), self._records, self._numbers(0, self._size))
        float(metrics["loss"])
        begin, count = time.monotonic(), 0
        while count < self._timed_steps:
            numbers = self._numbers(count, self._size)
            state, metrics = run(state, self._records, numbers)
            count += self._size
        float(metrics["loss"])  # waits for the steps
        return state, (time.monotonic() - begin) / count

    def profile(self) -> None:
        """Print the time of a step and its longest kernels; train nothing."""
        import jax

        run = self._load() or self.steps()
        state, seconds = self._time(run)
        sizes = [batch["length"] * batch["rows"] for batch in self._batches]
        shares = [batch["steps"] / self._size for batch in self._batches]
        positions = np.dot(sizes, shares)
        speed = f"{positions / seconds:,.0f} positions/s"
        print(f"{1e3 * seconds:.2f} ms a step, {speed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                _, metrics = run(state, self._records, self._numbers(0, self._size))
                loss = float(metrics["loss"])
            (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
            kernels = kernel_times(jax.profiler.ProfileData.from_file(str(path)))
        print(f"loss {loss:.4f}; of a step, in microseconds and times:")
        print(format_times(kernels, self._size))

    def _save(self, name: str, state: State) -> None:
        """Replace the state, or the weights alone in float16, in one move."""
        if name == "weights":
            few = {self._step, *self._description["schedule"]}
            paths = {*self._description["weights"]}
            chosen = {k for k in state if k in paths or k.endswith("/weights")}
            state = {key: state[key] for key in few} | {
                key: state[key].astype(np.float16) for key in chosen
            }
        content = {key: np.asarray(value) for key, value in state.items()}
        partial = self._folder / f"{name}.partial.npz"
        np.savez(partial, **content)
        partial.rename(self._folder / f"{name}.npz")

    # The program, compiled before.

    def compile(self, target: str) -> None:
        """Compile for the device here, or for a GPU of which `target` is XLA's text."""
        import jax
        from jax.experimental import serialize_executable, topologies

        arguments, options = self.arguments(), {}
        if target:
            description = topologies.get_topology_desc(
                platform="cuda", target_config=target, topology="1x1x1"
            )
            place = jax.sharding.SingleDeviceSharding(description.devices[0])
            arguments = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
                arguments,
            )
            # Autotuning runs kernels, which needs the GPU.
            options = {"xla_gpu_autotune_level": 0}
            if jax.__version_info__ >= (0, 11):
                options["xla_gpu_experimental_cost_model_gemm_tiling_default"] = True
        compiled = self.steps().lower(*arguments).compile(compiler_options=options)
        content = pickle.dumps(serialize_executable.serialize(compiled))
        (self._folder / "compiled.bin").write_bytes(content)
        print(f"compiled.bin: {len(content):,} bytes")

    def _load(self) -> Callable | None:
        """Return the program that was compiled before, if it loads here."""
        from jax.experimental import serialize_executable

        path = self._folder / "compiled.bin"
        if not path.exists():
            return None
        try:
            content = pickle.loads(path.read_bytes())
            program = serialize_executable.deserialize_and_load(*content)
        except Exception as error:  # of the runtime, without a class of its own
            print(f"compiled.bin does not load, so it is compiled here: {error}")
            return None
        print("compiled.bin is loaded", flush=True)
        return program


def kernel_times(profile: Any) -> dict[str, list[float]]:
    """Return the nanoseconds of each kernel of a GPU by name."""
    times = collections.defaultdict(list)
    for plane in profile.planes:
        for line in plane.lines:
            if plane.name.startswith("/device:") and line.name.startswith("Stream"):
                for event in line.events:
                    times[re.sub(r"[._]\d+$", "", event.name)].append(event.duration_ns)
    return dict(times)


def format_times(kernels: dict[str, list[float]], steps: int) -> str:
    """Return a line for all kernels of some steps, and for each of the longest."""
    total = [time for times in kernels.values() for time in times]
    longest = sorted(kernels.items(), key=lambda item: -sum(item[1]))[:_LONGEST]
    return "\n".join(
        f"{sum(times) / steps / 1e3:9.1f} {len(times) / steps:8.1f}  {name}"
        for name, times in [("all", total), *longest]
    )


def read_batch(records: State, numbers_B: Any, length: int) -> tuple[Any, ...]:
    """Return ids, mask and segments of records, each int32 [B, L]."""
    import jax.numpy as jnp

    ids_BL = records["ids"][numbers_B, :length].astype(jnp.int32)
    position_L = jnp.arange(length)
    is_real_BL = position_L < records["ends"][numbers_B][:, None]
    is_second_BL = is_real_BL & (position_L >= records["starts"][numbers_B][:, None])
    return ids_BL, is_real_BL.astype(jnp.int32), is_second_BL.astype(jnp.int32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="cpu", choices=("cpu", "gpu", "tpu"))
    add("--minutes", type=float, default=math.inf, help="of a new run; else as planned")
    add("--timed_steps", type=int, default=200, help="before their number is fixed")
    add("--begin", type=pathlib.Path, help="folder of the run whose weights it reads")
    add("--compile", nargs="?", const="", metavar="TARGET", help="write compiled.bin")
    add("--profile", action="store_true", help="time steps, print the longest kernels")
    add("--tolerance", type=float, help="default: 1e-4 on a CPU, 5e-2")
    add("--all_precisions", action="store_true", help="on a CPU too")
    options = parser.parse_args()
    import jax

    jax.config.update("jax_enable_x64", True)  # the step number is int64
    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # else JAX initialises all devices
    jax.config.update("jax_default_device", jax.devices(options.device)[0])
    folder = pathlib.Path(__file__).parent
    if (folder / "batches.npz").exists():
        import device_compare

        device_compare.compare_all(folder, options)
        return
    trainer = Trainer(folder, options.minutes, options.timed_steps, options.begin)
    if options.compile is not None:
        trainer.compile(options.compile)
    elif options.profile:
        trainer.profile()
    else:
        trainer.train()


if __name__ == "__main__":
    main()
