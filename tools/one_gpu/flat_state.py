"""Weights and slots of Adam as one buffer of a kind, for a step that is exported.

A GPU needs longer to start the updates of hundreds of small tensors than to compute
them. A buffer holds the weights with equal decay; checkpoints keep one tensor for each
weight.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from device_layer_ops import DeviceLayerOps

from electra_tf import compat
from electra_tf.errors import InputError
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import DropoutSeeds
from electra_tf.pretraining.pretrainer import Pretrainer

_ALIGNED = 64  # places are multiples of it
_FUSED = 32  # sums in one kernel: XLA would copy more before it adds them
_KINDS = ("weights", "m", "v")
State = dict[str, Any]
_MERGED = re.compile(r"(.*/attention)/(?:query|key|value)/(kernel|bias)$")


class Region(NamedTuple):
    """Part of a buffer: one weight, or several side by side along the last axis."""

    group: str
    start: int
    shape: list[int]
    """Of one weight."""
    paths: list[str]

    @property
    def size(self) -> int:
        """Return the number of values."""
        return len(self.paths) * math.prod(self.shape)


class FlatState:
    """Weights and slots of a compiled pretrainer in buffers, with one update."""

    def __init__(self, pretrainer: Pretrainer):
        optimizer = pretrainer.optimizer
        if optimizer.settings.name not in ("adam", "adamw"):
            raise InputError(
                "optimizer.name must be adam or adamw for a step with kernels for "
                f"GPUs. Received: {optimizer.settings.name}. Train with electra-tf "
                "pretrain"
            )
        self._pretrainer, self._optimizer = pretrainer, optimizer
        variables = pretrainer.trainable_variables
        self._variables = {v.path: v for v in variables}
        self._indices = [compat.variable_index(optimizer, v) for v in variables]
        policy = keras.DTypePolicy(pretrainer.config.training.precision)
        self.low_dtype = tf.as_dtype(policy.compute_dtype)
        """Type in which the encoders compute."""
        self._low_paths = _low_paths(pretrainer, self.low_dtype)
        self._decays: dict[str, bool] = {}
        self.regions, sizes = self._layout()
        self.buffers = {
            f"{group}/{kind}": tf.Variable(tf.zeros(size), name=f"{group}/{kind}")
            for group, size in sizes.items()
            for kind in _KINDS
        }
        """Variables by name: of each group weights and slots, float32."""
        self._regions = {path: r for r in self.regions for path in r.paths}
        self._tensors: dict[str, tf.Tensor] = {}
        self._sums: dict[int, list[tuple[list[str], tf.Tensor]]] = {}

    def _layout(self) -> tuple[list[Region], dict[str, int]]:
        regions, sizes = [], {}
        merged: dict[tuple[str, ...], list[str]] = {}
        for path in self._variables:
            match = _MERGED.match(path)
            merged.setdefault(match.groups() if match else (path,), []).append(path)
        # Large weights first, so that equal ones follow each other.
        shapes = ((self._variables[paths[0]].shape, paths) for paths in merged.values())
        for shape, paths in sorted(shapes, key=lambda pair: -math.prod(pair[0])):
            group = self._group(paths)
            region = Region(group, sizes.get(group, 0), list(shape), paths)
            sizes[group] = region.start + -(-region.size // _ALIGNED) * _ALIGNED
            regions.append(region)
        return regions, sizes

    def _group(self, paths: list[str]) -> str:
        patterns = self._optimizer.settings.no_decay
        decays = not any(re.search(pattern, paths[0]) for pattern in patterns)
        names = {value: name for name, value in self._decays.items()}
        name = names.get(decays, f"flat_{len(names)}")
        self._decays[name] = decays
        return name

    def layout(self) -> dict[str, Any]:
        """Return the place of each variable, by path, as JSON."""
        slots = self._optimizer.slots()
        paths = {"weights": {path: path for path in self._variables}}
        for kind in _KINDS[1:]:
            pairs = zip(self._variables, self._indices, strict=True)
            paths[kind] = {path: slots[kind][index].path for path, index in pairs}
        return {
            "sizes": {name: buffer.shape[0] for name, buffer in self.buffers.items()},
            "regions": [
                {
                    "buffer": f"{region.group}/{kind}",
                    "start": region.start,
                    "shape": region.shape,
                    "paths": [paths[kind][path] for path in region.paths],
                }
                for kind in _KINDS
                for region in self.regions
            ],
        }

    # What the kernels' operations read:

    def tensor(self, variable: keras.Variable) -> tf.Tensor | None:
        """Return the tensor of a weight that gets its gradient."""
        return self._tensors.get(getattr(variable, "path", None))

    def place(self, variable: keras.Variable) -> tuple[tf.Tensor, int]:
        """Return the buffer and the place of a vector."""
        region = self._regions[variable.path]
        part = region.paths.index(variable.path) * math.prod(region.shape)
        return self._flat[region.group], region.start + part

    def summed(
        self, variables: Sequence[keras.Variable], sums_GN: tf.Tensor
    ) -> list[tf.Tensor]:
        """Return zeros, and sum up in `update`: all vectors in one kernel."""
        shapes = [variable.shape for variable in variables]
        if self._pretrainer.config.training.accumulation > 1:  # within a loop
            sizes = [math.prod(shape) for shape in shapes]
            parts = tf.split(tf.reduce_sum(sums_GN, 0), sizes)
            return [tf.reshape(p, s) for p, s in zip(parts, shapes, strict=True)]
        paths = [variable.path for variable in variables]
        self._sums.setdefault(sums_GN.shape[0], []).append((paths, sums_GN))
        return [tf.zeros(shape) for shape in shapes]

    def merged(self, variables: Sequence[keras.Variable], dtype: Any) -> tf.Tensor:
        """Return the matrices [D, F] of a region as [D, parts * F]."""
        region = self._regions[variables[0].path]
        flat = self._low if dtype == self.low_dtype else self._flat
        rows, columns = region.shape
        values = flat[region.group][_slice(region)]
        return tf.reshape(values, [rows, len(region.paths) * columns])

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let the pretrainer's step read and update the buffers, with GPU kernels."""
        groups = self._decays
        self._flat = {g: self.buffers[f"{g}/weights"].read_value() for g in groups}
        self._low = {g: tf.cast(x, self.low_dtype) for g, x in self._flat.items()}
        for path, region in self._regions.items():
            flat = self._low if path in self._low_paths else self._flat
            parts = [-1, len(region.paths), region.shape[-1]]
            values = tf.reshape(flat[region.group][_slice(region)], parts)
            tensor = tf.reshape(values[:, region.paths.index(path)], region.shape)
            self._tensors[path] = tf.cast(tensor, tf.float32)
        scope = keras.StatelessScope(
            [(v, self._tensors[path]) for path, v in self._variables.items()]
        )
        for path, variable in self._variables.items():
            self._tensors[path] = scope.get_current_value(variable)
        compiles = self._pretrainer.compiles_gradients
        self._pretrainer.compiles_gradients = False
        self._pretrainer.objective.make_layer_ops = self._make_layer_ops
        self._optimizer.update = self._update
        try:
            with scope:
                yield
        finally:
            del self._pretrainer.objective.make_layer_ops, self._optimizer.update
            self._pretrainer.compiles_gradients = compiles
            self._tensors = {}
            self._sums = {}

    def _make_layer_ops(
        self, dropout: DropoutSeeds | None, on_cpu: bool
    ) -> FusedLayerOps:
        # Without dropout there are no gradients.
        if dropout is None:
            return FusedLayerOps(None, on_cpu)
        return DeviceLayerOps(dropout, self)

    def _update(self, gradients: Sequence[tf.Tensor | None], _: Any) -> tf.Tensor:
        """Clip the gradients and update the buffers; return the gradients' norm."""
        by_path = dict(zip(self._variables, gradients, strict=True))
        if missing := [path for path, g in by_path.items() if g is None]:
            raise InputError(
                f"{missing[0]} must have a gradient in a step with kernels for GPUs. "
                "Train with electra-tf pretrain"
            )
        with tf.name_scope("update"):
            for sums in self._sums.values():
                for first in range(0, len(sums), _FUSED):
                    _add_sums(sums[first : first + _FUSED], by_path)
            flat = {g: self._flat_gradient(g, by_path) for g in self._decays}
            norm = tf.linalg.global_norm(list(flat.values()))
            scalars = self._optimizer.scalars(norm)
            for group, gradient in flat.items():
                self._update_group(group, gradient, scalars)
        self._optimizer.iterations.value.assign_add(1)
        return norm

    def _flat_gradient(self, group: str, by_path: Mapping[str, tf.Tensor]) -> tf.Tensor:
        parts, end = [], 0
        for region in (r for r in self.regions if r.group == group):
            if region.start > end:
                parts.append(tf.zeros(region.start - end))
            tensors = [tf.cast(by_path[path], tf.float32) for path in region.paths]
            parts.append(tf.reshape(tf.concat(tensors, -1), [-1]))
            end = region.start + region.size
        size = self.buffers[f"{group}/weights"].shape[0]
        parts.append(tf.zeros(size - end))
        # Without the barrier XLA would compute each gradient again where it is used.
        return compat.optimization_barrier(tf.concat(parts, 0))

    def _update_group(self, group: str, gradient: tf.Tensor, scalars: Any) -> None:
        settings = self._optimizer.settings
        weights, mean, square = (self.buffers[f"{group}/{kind}"] for kind in _KINDS)
        if scalars.clip is not None:
            gradient *= scalars.clip
        m = mean + (gradient - mean) * (1 - scalars.beta_1)
        v = square + (tf.square(gradient) - square) * (1 - scalars.beta_2)
        step = scalars.adam_rate * m / (tf.sqrt(v) + scalars.adam_epsilon)
        old = self._flat[group]
        if self._decays[group] and settings.weight_decay:
            old -= scalars.decay * old
        for variable, value in ((weights, old - step), (mean, m), (square, v)):
            variable.assign(value)


def _slice(region: Region) -> slice:
    return slice(region.start, region.start + region.size)


def _add_sums(
    sums: Sequence[tuple[list[str], tf.Tensor]], gradients: dict[str, tf.Tensor]
) -> None:
    """Add sums of the rows of matrices [G, N] to gradients, by their paths."""
    paths = [path for several, _ in sums for path in several]
    sums_N = tf.reduce_sum(tf.concat([sums_GN for _, sums_GN in sums], 1), 0)
    shapes = [gradients[path].shape for path in paths]
    parts_N = tf.split(sums_N, [math.prod(shape) for shape in shapes])
    for path, shape, part_N in zip(paths, shapes, parts_N, strict=True):
        gradients[path] += tf.reshape(part_N, shape)


def _low_paths(pretrainer: Pretrainer, dtype: tf.DType) -> set[str]:
    """Return the paths of the matrices that are used in a lower precision alone."""
    if dtype == tf.float32:
        return set()
    kernels = (
        layer.kernel
        for layer in compat.sublayers(pretrainer)
        if isinstance(layer, keras.layers.Dense) and layer.compute_dtype == dtype.name
    )
    return {kernel.path for kernel in kernels}


def pack(state: State, layout: dict[str, Any]) -> State:
    """Return a state with buffers in place of the tensors that they contain.

    A region of a layout is a part of a buffer: `buffer`, `start`, `shape` of one tensor
    and `paths` of the tensors, which are side by side along the last axis.
    """
    buffers = {n: np.zeros(size, np.float32) for n, size in layout["sizes"].items()}
    state = dict(state)
    for region in layout["regions"]:
        tensors = [np.asarray(state.pop(path)) for path in region["paths"]]
        values = np.stack(tensors, -2).ravel()
        start = region["start"]
        buffers[region["buffer"]][start : start + values.size] = values
    return state | buffers


def unpack(state: State, layout: dict[str, Any]) -> State:
    """Return a state with tensors in place of the buffers that it has."""
    rest = {n: value for n, value in state.items() if n not in layout["sizes"]}
    for region in layout["regions"]:
        if region["buffer"] not in state:
            continue
        *outer, last = region["shape"]
        parts, start = len(region["paths"]), region["start"]
        size = parts * math.prod(region["shape"])
        values = np.asarray(state[region["buffer"]])[start : start + size]
        values = values.reshape(*outer, parts, last)
        for i, path in enumerate(region["paths"]):
            rest[path] = values[..., i, :]
    return rest
