"""Profile a training step by part of the model and kind of operation, on one thread.

TensorFlow's profiler traces some steps. The time of each operation is added to the part
of the model in its name. On one thread operations do not overlap. The last row is the
remaining time of the traced steps: scheduling and tracing.
"""

import argparse
import collections
import glob
import os
import re
import tempfile
import time
from collections.abc import Callable

import benchmark_train
import peers

# Patterns of operations' types, and of their names in the two models.
_KINDS = (
    ("MatMul", "matmul"), ("^Fused$", "fused"), ("Random", "random"),
    ("Softmax", "softmax"), ("Transpose", "copies"), ("Gather", "copies"),
    ("Pad", "copies"), ("AddN", "copies"), ("SegmentSum", "copies"),
    ("Assign", "copies"), ("Slice", "copies"), ("", "others"),
)  # fmt: skip
_PARTS = (
    ("/embeddings", "embeddings"), ("/attention", "attention"),
    ("/intermediate", "feed-forward"), ("/output", "feed-forward"),
    ("/layer_", "feed-forward"),  # element-wise operations between dense layers
    ("/head", "head"), ("", "the rest"),
)  # fmt: skip
# Parts of operations outside the two models.
_OUTSIDE = (
    (r"vocabulary_backward|xent\w*_backward$", "vocabulary backward"),
    (r"_backward$", "backward: fused"), (r"attention_backward", "backward: attention"),
    (r"", "the rest of the step"),
)  # fmt: skip
KINDS = tuple(dict.fromkeys(kind for _, kind in _KINDS))
_WRAPPERS = {"While", "StatefulPartitionedCall"}


def trace(
    run: Callable[[int], None], steps: int
) -> tuple[list[tuple[str, str, float]], float]:
    """Return (name, type, seconds) of all operations, and the seconds of all steps."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        start = time.perf_counter()
        run(steps)
        seconds = time.perf_counter() - start
        tf.profiler.experimental.stop()
        (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        space = xplane_pb2.XSpace()
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
    operations = []
    for plane in space.planes:
        for line in plane.lines:
            operations += _operations(plane, line)
    return operations, seconds


def _operations(plane, line) -> list[tuple[str, str, float]]:
    """Return a thread's operations. Compiled ones have the name of their function."""
    operations, calls = [], []
    for event in sorted(line.events, key=lambda e: (e.offset_ps, -e.duration_ps)):
        name = plane.event_metadata[event.metadata_id].name
        stats = {
            plane.stat_metadata[s.metadata_id].name: s.str_value
            or plane.stat_metadata[s.ref_value].name
            for s in event.stats
        }
        seconds, end = event.duration_ps / 1e12, event.offset_ps + event.duration_ps
        if stats.get("kernel_type") == "PartitionedCall":
            calls.append((event.offset_ps, end, stats["name"], seconds))
        elif "hlo_module" in stats:
            while calls and calls[-1][1] <= event.offset_ps:
                calls.pop()
            if calls:  # the time of the call includes all its loops
                _, _, path, seconds = calls.pop()
                module = re.sub(r"^a_inference_+|_\d+__.*$", "", stats["hlo_module"])
                operations.append((f"{path}/{module}", "Fused", seconds))
        elif ":" in name and "/" in name:
            path, _, kind = name.rpartition(":")
            if kind.split("#")[0] not in _WRAPPERS:
                operations.append((path, kind.split("#")[0], seconds))
    return operations


def first(table: tuple[tuple[str, str], ...], name: str) -> str:
    """Return the value of the first pattern that a name contains."""
    return next(value for pattern, value in table if re.search(pattern, name))


def part_name(path: str) -> str:
    """Return the part of the step for the name of an operation."""
    path = re.sub(r"_\d+(?=/|$)", "", path)
    if "update/" in path:
        return "update"
    model = next((m for m in ("generator", "discriminator") if f"{m}/" in path), None)
    if model is None:
        return first(_OUTSIDE, path)
    is_backward = "gradient_tape" in path or "backward" in path
    direction = "backward" if is_backward else "forward"
    return f"{model} {direction}: {first(_PARTS, path)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=str(peers.ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="--set of pretrain")
    benchmark_train.add_options(parser, batch_size=16, steps=3)
    options = parser.parse_args()
    threads = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    os.environ.update(dict.fromkeys(threads, "1"))  # before TensorFlow is imported
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    run, _ = benchmark_train.electra_tf(options)
    run(1)
    run(1)
    start = time.perf_counter()
    run(options.steps)
    untraced = time.perf_counter() - start
    operations, seconds = trace(run, options.steps)
    table = collections.defaultdict(collections.Counter)
    for path, operation, duration in operations:
        milliseconds = 1e3 * duration / options.steps
        table[part_name(path)][first(_KINDS, operation)] += milliseconds
    print(f"{1e3 * untraced / options.steps:,.0f} ms a step, untraced")
    report(table, 1e3 * seconds / options.steps)


def report(table: dict[str, dict[str, float]], step: float) -> None:
    """Print milliseconds by part and kind, the largest first."""
    total = sum(sum(row.values()) for row in table.values())
    print(f"{'':36}" + "".join(f"{kind:>10}" for kind in (*KINDS, "all", "share")))
    rows = sorted(table.items(), key=lambda item: -sum(item[1].values()))
    sums = collections.Counter()
    for row in table.values():
        sums.update(row)
    for part, row in (*rows, ("all", sums)):
        milliseconds = sum(row.values())
        cells = "".join(f"{row[kind]:10,.1f}" for kind in KINDS)
        print(f"{part:36}{cells}{milliseconds:10,.1f}{milliseconds / step:10.1%}")
    print(f"{'outside operations':96}{step - total:10,.1f}{1 - total / step:10.1%}")


if __name__ == "__main__":
    main()
