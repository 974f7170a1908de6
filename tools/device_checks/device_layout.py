"""Weights and slots in the flat buffers of a step for GPUs, and back.

A region of a layout is a part of a buffer: `buffer`, `start`, `shape` of one tensor and
`paths` of the tensors, which are side by side along the last axis. `sizes` are those of
the buffers.
"""

import math
from typing import Any

import numpy as np

Layout = dict[str, Any]
State = dict[str, Any]


def pack(state: State, layout: Layout) -> State:
    """Return a state with buffers in place of the tensors that they contain."""
    buffers = {n: np.zeros(size, np.float32) for n, size in layout["sizes"].items()}
    state = dict(state)
    for region in layout["regions"]:
        tensors = [np.asarray(state.pop(path)) for path in region["paths"]]
        values = np.stack(tensors, -2).ravel()
        start = region["start"]
        buffers[region["buffer"]][start : start + values.size] = values
    return state | buffers


def unpack(state: State, layout: Layout) -> State:
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
