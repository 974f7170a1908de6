"""Kernels of a compiled GPU program: their number, bytes, FLOPs and estimated time.

A kernel takes the largest of its start, its bytes at the memory's bandwidth and its
FLOPs at the speed of large matmuls, and a gap follows it. The figures are those of
measured steps on an H100. Of the FLOPs within our own kernels only those of the matmuls
with GELU are counted.
"""

import collections
import dataclasses
import functools
import math
import re

from device_table import DEVICES

_GAP, _START = 2.2e-6, 1.6e-6  # seconds between two kernels, and of the shortest
_BANDWIDTH_SHARE, _MATMUL_SHARE = 0.84, 0.445  # of the makers' figures
_BYTES = {"pred": 1, "bf16": 2} | {
    f"{kind}{bits}": bits // 8 for kind in "sufc" for bits in (8, 16, 32, 64, 128)
}
_LINE = re.compile(r"\s+(ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$")
_HEADER = re.compile(r"(ENTRY )?%?([\w.-]+) \(.*\{$")
_NO_KERNEL = {
    *("parameter", "get-tuple-element", "bitcast", "constant", "tuple", "after-all"),
    *("async-done", "async-update"),
}
_ELEMENTWISE = {
    *("bitcast", "reshape", "convert", "add", "subtract", "multiply", "divide"),
    *("maximum", "minimum", "exponential", "log", "negate", "compare", "select"),
}
_PARTS = {
    "update": r"^(update|global_norm|flat)\b|ResourceApply|L2Loss",
    "vocabulary, sampling": r"vocabulary|generator/head/(?!dense|layer_norm)"
    r"|Call/(Softmax|GatherV2|Log|ArgMax)$",
    "attention": r"attention_backward|/attention/(?!output|value|key|query)",
    "projections, biases": r"/attention/(output|value|key|query)|/(head|"
    r"embeddings_project)/|BiasAddGrad",
    "feed-forward": r"gelu|/intermediate|layer_\d+/output",
    "norms, residuals, dropout": r"norm|layer_\d+/PartitionedCall|Rsqrt|AddN",
}
_REST = "embeddings, masking, losses"


@dataclasses.dataclass
class Operation:
    """One line of a computation."""

    name: str
    shape: str
    kind: str
    operands: list[str]
    rest: str
    is_root: bool

    def called(self, attribute: str) -> list[str]:
        """Return the names of computations of an attribute such as `calls`."""
        return re.findall(rf"{attribute}=%?([\w.-]+)", self.rest)


@dataclasses.dataclass
class Kernel:
    """A kernel, or several equal ones in a loop."""

    name: str
    group: str
    count: int
    bytes: float
    flops: dict[str, float]
    names: list[str]

    def seconds(self, device: str) -> float:
        """Return the estimated time of one, with the gap that follows."""
        properties = DEVICES[device]
        work = sum(
            n / (_MATMUL_SHARE * properties.peaks.get(dtype, properties.peaks["f32"]))
            for dtype, n in self.flops.items()
        )
        moved = self.bytes / (_BANDWIDTH_SHARE * properties.bandwidth)
        return max(_START, moved, work) + _GAP


class Program:
    """A compiled program, read from its text."""

    def __init__(self, compiled: str):
        self._computations: dict[str, list[Operation]] = {}
        entry, current = "", None
        for line in compiled.splitlines():
            if header := _HEADER.match(line):
                current = self._computations.setdefault(header[2], [])
                entry = header[2] if header[1] else entry
            elif current is not None and (match := _LINE.match(line)):
                current.append(_operation(match))
        self._shapes = {
            name: {o.name: o.shape for o in operations}
            for name, operations in self._computations.items()
        }
        self.kernels: list[Kernel] = []
        self._network = ""
        self._walk(entry, 1)

    def _walk(self, computation: str, count: int) -> None:
        for operation in self._computations[computation]:
            if operation.kind in _NO_KERNEL:
                continue
            if operation.kind == "while":
                trips = re.search(r'known_trip_count":\{"n":"(\d+)"', operation.rest)
                for name in (*operation.called("body"), *operation.called("condition")):
                    self._walk(name, count * int(trips[1] if trips else 1))
            elif operation.kind in ("call", "conditional", "async-start"):
                for name in operation.called("(?:to_apply|calls)"):
                    self._walk(name, count)
            else:
                self.kernels.append(self._kernel(computation, operation, count))

    def _kernel(self, computation: str, operation: Operation, count: int) -> Kernel:
        shapes = self._shapes[computation]
        if operation.kind == "fusion":
            (fused,) = operation.called("calls")
            names = [*_op_names(operation), *self._names(fused)]
            reads, written = self._reads(fused), self._written(fused)
        else:
            fused, names = "", _op_names(operation)
            written = _size(operation.shape)
            reads = [_size(shapes.get(name, "")) for name in operation.operands]
        read = {}
        for name, size in zip(operation.operands, reads, strict=False):
            read[name] = max(read.get(name, 0), size)
        flops = self._flops(fused) if fused else {}
        if re.search(r'name = "matmul_gelu', operation.rest):
            x, weights = (shapes[name] for name in operation.operands[:2])
            kind, (rows, _) = _dimensions(x)
            flops = {kind: 2 * rows * _elements(weights)}
        return Kernel(
            operation.name,
            self._group(names),
            count,
            sum(read.values()) + written,
            dict(flops),
            names,
        )

    def _group(self, names: list[str]) -> str:
        """Return the group; a kernel without a network has that of the one before."""
        for name in names:
            if match := re.search(r"\b(generator|discriminator)/encoder", name):
                self._network = match[1]
                break
        for name in names:
            for group, pattern in _PARTS.items():
                if re.search(pattern, name):
                    shared = group in ("update", "vocabulary, sampling")
                    return group if shared else f"{self._network}: {group}"
        return _REST

    def _reads(self, computation: str) -> list[float]:
        """Return the bytes that a fused computation reads of each parameter."""
        operations = self._computations[computation]
        (root,) = (o.name for o in operations if o.is_root)
        users = collections.defaultdict(list)
        for operation in operations:
            for name in operation.operands:
                users[name].append(operation)

        def share(name: str, count: int) -> float:
            total = float(name == root)
            for user in users[name]:
                is_first = user.operands[0] == name
                if user.kind in ("slice", "dynamic-slice", "gather") and is_first:
                    total += _elements(user.shape) / count
                elif user.kind in _ELEMENTWISE:
                    # Computed only where its own users read it.
                    total += share(user.name, count)
                elif user.kind == "fusion":
                    parts = self._reads(user.called("calls")[0])
                    size = _size(self._shapes[computation][name])
                    places = enumerate(user.operands)
                    total += sum(parts[i] / size for i, n in places if n == name)
                elif not (user.kind == "dynamic-update-slice" and is_first):
                    return 1
            return min(total, 1)

        parameters = [o for o in operations if o.kind == "parameter"]
        parameters.sort(key=lambda o: int(o.rest.split(")")[0]))
        return [share(o.name, _elements(o.shape)) * _size(o.shape) for o in parameters]

    def _written(self, computation: str) -> float:
        (root,) = (o for o in self._computations[computation] if o.is_root)
        shapes = self._shapes[computation]
        if root.kind == "dynamic-update-slice":
            return _size(shapes[root.operands[1]])
        if root.kind == "scatter":  # reads and writes in place
            return 2 * _size(shapes[root.operands[-1]])
        return _size(root.shape)

    def _names(self, computation: str) -> list[str]:
        names = []
        for operation in self._computations[computation]:
            names += _op_names(operation)
            for name in operation.called("calls"):
                names += self._names(name)
        return names

    @functools.cache  # noqa: B019 - a program lives as long as the command
    def _flops(self, computation: str) -> collections.Counter:
        flops, shapes = collections.Counter(), self._shapes[computation]
        for operation in self._computations[computation]:
            if operation.kind == "dot":
                axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", operation.rest)
                dtype, sizes = _dimensions(shapes[operation.operands[0]])
                axes = [int(axis) for axis in axes[1].split(",") if axis]
                outputs = _dimensions(operation.shape)[1]
                flops[dtype] += 2 * math.prod([*outputs, *(sizes[a] for a in axes)])
            for name in operation.called("calls"):
                flops += self._flops(name)
        return flops


def _operation(match: re.Match) -> Operation:
    root, name, shape, kind, rest = match.groups()
    depth, end = 1, 0
    while end < len(rest) and depth:
        depth += (rest[end] == "(") - (rest[end] == ")")
        end += 1
    operands = re.findall(r"%([\w.-]+)", rest[:end])
    return Operation(name, shape, kind, operands, rest, bool(root))


def _op_names(operation: Operation) -> list[str]:
    """Return the names that TensorFlow gave, without the numbers of repeated ones."""
    names = re.findall(r'op_name="([^"]*)"', operation.rest)
    return [re.sub(r"(?<!layer)_\d+(?=[/;]|$)", "", name) for name in names]


def _dimensions(shape: str) -> tuple[str, list[int]]:
    dtype, sizes = re.match(r"\(?(\w+)\[([\d,]*)\]", shape).groups()
    return dtype, [int(size) for size in sizes.split(",") if size]


def _elements(shape: str) -> int:
    return max(1, math.prod(_dimensions(shape)[1]))


def _size(shape: str) -> float:
    """Return the bytes of a shape or a tuple of shapes."""
    total = 0
    for dtype, sizes in re.findall(r"\b(\w+)\[([\d,]*)\]", shape):
        numbers = [int(size) for size in sizes.split(",") if size]
        total += _BYTES.get(dtype, 0) * math.prod(numbers)
    return total


def cost_table(kernels: list[Kernel], device: str) -> dict[str, dict[str, float]]:
    """Return kernels, GB, and milliseconds at least and estimated, of each group.

    The bound is that of all bytes or all FLOPs at the maker's figures, without gaps.
    """
    properties = DEVICES[device]
    table = collections.defaultdict(collections.Counter)
    for kernel in kernels:
        peaks = properties.peaks
        work = sum(n / peaks.get(d, peaks["f32"]) for d, n in kernel.flops.items())
        bound = max(work, kernel.bytes / properties.bandwidth)
        row = {
            "kernels": 1,
            "gb": kernel.bytes / 1e9,
            "bound_ms": bound * 1e3,
            "estimate_ms": kernel.seconds(device) * 1e3,
        }
        for group in (kernel.group, "total"):
            for name, value in row.items():
                table[group][name] += value * kernel.count
    total = table.pop("total", collections.Counter())
    order = sorted(table, key=lambda group: -table[group]["estimate_ms"])
    return {group: dict(table[group]) for group in order} | {"total": dict(total)}


def as_text(table: dict[str, dict[str, float]]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| group | kernels | GB | bound ms | estimate ms |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {group} | {row['kernels']:,.0f} | {row['gb']:.2f} | "
        f"{row['bound_ms']:.2f} | {row['estimate_ms']:.2f} |"
        for group, row in table.items()
    ]
    return "\n".join(lines)
