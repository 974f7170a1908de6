"""Programs and state of a step that was exported from TensorFlow; without TensorFlow.

A state has tensors by path, or flat buffers in their place. A region of a layout is a
part of a buffer: `buffer`, `start`, `shape` of one tensor and `paths` of the tensors,
which are side by side along the last axis.
"""

import json
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

Description = dict[str, Any]
State = dict[str, Any]


def pack(state: State, layout: Description) -> State:
    """Return a state with buffers in place of the tensors that they contain."""
    buffers = {n: np.zeros(size, np.float32) for n, size in layout["sizes"].items()}
    state = dict(state)
    for region in layout["regions"]:
        tensors = [np.asarray(state.pop(path)) for path in region["paths"]]
        values = np.stack(tensors, -2).ravel()
        start = region["start"]
        buffers[region["buffer"]][start : start + values.size] = values
    return state | buffers


def unpack(state: State, layout: Description) -> State:
    """Return a state with tensors in place of the buffers."""
    rest = {n: value for n, value in state.items() if n not in layout["sizes"]}
    for region in layout["regions"]:
        if region["buffer"] not in state:  # weights alone
            continue
        *outer, last = region["shape"]
        parts, start = len(region["paths"]), region["start"]
        size = parts * math.prod(region["shape"])
        values = np.asarray(state[region["buffer"]])[start : start + size]
        values = values.reshape(*outer, parts, last)
        for i, path in enumerate(region["paths"]):
            rest[path] = values[..., i, :]
    return rest


def load_program(folder: pathlib.Path, name: str) -> Callable:
    import jax

    content = (folder / f"{name}.jax").read_bytes()
    return jax.export.deserialize(bytearray(content)).call


def load_step(folder: pathlib.Path, description: Description, name: str) -> Callable:
    """Return a function of state and batch that returns state and metrics."""
    names, program = description["programs"][name], load_program(folder, name)

    def step(state: State, batch: Any) -> tuple[State, State]:
        results = program(*batch, *(state[name] for name in names["state"]))
        metrics = dict(zip(names["metrics"], results, strict=False))
        changed = {name: results[i] for name, i in names["results"].items()}
        return state | changed, metrics

    return step


def initial_state(
    folder: pathlib.Path,
    description: Description,
    name: str,
    begin: pathlib.Path | None = None,
) -> State:
    """Compute the initial weights and the optimizer's variables.

    Weights that begin with those of another run, of the folder `begin`, are read.
    """
    import jax

    program = jax.jit(load_program(folder, "initial"))
    values = program(np.int64(description["seed"]))
    state = dict(zip(description["variables"], values, strict=True))
    if begin:
        text = (begin / "description.json").read_text("utf-8")
        other = read_state(begin / "state.npz", json.loads(text))
        state |= {path: other[source] for path, source in description["begin"].items()}
    layout = description["programs"][name].get("layout")
    return pack(state, layout) if layout else state


def read_state(path: pathlib.Path, description: Description) -> State:
    """Return the tensors of a file."""
    with np.load(path) as file:
        state = {name: file[name] for name in file.files}
    layout = description["programs"]["step"].get("layout")
    return unpack(state, layout) if layout else state
