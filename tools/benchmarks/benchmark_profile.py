"""Where a training step's time goes, by part and by kind, on one thread.

TensorFlow's profiler traces some steps; every operation's time is added to the part of
the model its name tells. On one thread operations do not overlap; the last row is what
the traced steps took beyond them: scheduling, and the tracing itself.
"""

import argparse
import collections
import glob
import os
import re
import tempfile
import time

import benchmark_common as common
import benchmark_train

KINDS = ("products", "chains", "random", "softmax", "moves", "others")
_KIND = {  # what the operation's type contains
    "MatMul": "products",
    "Random": "random",
    "Softmax": "softmax",
    "Transpose": "moves",
    "Gather": "moves",
    "Pad": "moves",
    "AddN": "moves",
    "SegmentSum": "moves",
    "Assign": "moves",
    "Slice": "moves",
}
_PART = (  # what the name contains
    ("/embeddings", "embeddings"),
    ("/attention", "attention"),
    ("/intermediate", "feed-forward"),
    ("/output", "feed-forward"),
    ("/layer_", "feed-forward"),  # its chains stand between its layers
    ("/head", "head"),
)
_WRAPPERS = {"While", "StatefulPartitionedCall"}


def traced(
    run: benchmark_train.Steps, steps: int
) -> tuple[list[tuple[str, str, float]], float]:
    """(name, type, seconds) of all operations of some steps, and the steps' seconds."""
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
    found = []
    for plane in space.planes:
        for line in plane.lines:
            found += _operations(plane, line)
    return found, seconds


def _operations(plane, line) -> list[tuple[str, str, float]]:
    """A thread's operations; compiled ones are named after their function."""
    found, calls = [], []
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
            if calls:  # the first loop of a compiled call stands for all of it
                _, _, path, seconds = calls.pop()
                module = re.sub(r"^a_inference_+|_\d+__.*$", "", stats["hlo_module"])
                found.append((f"{path}/{module}", "Chain", seconds))
        elif ":" in name and "/" in name:
            path, _, kind = name.rpartition(":")
            if kind.split("#")[0] not in _WRAPPERS:
                found.append((path, kind.split("#")[0], seconds))
    return found


def part_of(path: str) -> str:
    """Which part of the step an operation belongs to, from its name."""
    path = re.sub(r"_\d+(?=/|$)", "", path)
    tower = next((t for t in ("generator", "discriminator") if f"{t}/" in path), None)
    if "update/" in path:
        return "update"
    if tower is None and "vocabulary_backward" in path:
        return "vocabulary backward"
    if tower is None and path.endswith("_backward"):
        return "vocabulary backward" if "xent" in path else "backward: chains"
    if tower is None and "attention_backward" in path:
        return "backward: attention"
    if tower is None:
        return "the rest of the step"
    way = "backward" if "gradient_tape" in path or "backward" in path else "forward"
    place = next((name for sign, name in _PART if sign in path), "the rest")
    return f"{tower} {way}: {place}"


def kind_of(kind: str) -> str:
    """One of KINDS."""
    if kind == "Chain":
        return "chains"
    return next((k for sign, k in _KIND.items() if sign in kind), "others")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=str(common.ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="as for pretrain")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument(
        "--precision", default="float32", choices=["float32", "mixed_bfloat16"]
    )
    options = parser.parse_args()
    threads = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    os.environ.update(dict.fromkeys(threads, "1"))  # before TensorFlow is imported
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    run = benchmark_train.electra_tf(options)
    run(1)
    run(1)
    start = time.perf_counter()
    run(options.steps)
    untraced = time.perf_counter() - start
    operations, seconds = traced(run, options.steps)
    table = collections.defaultdict(collections.Counter)
    for path, kind, own in operations:
        table[part_of(path)][kind_of(kind)] += 1e3 * own / options.steps
    print(f"{1e3 * untraced / options.steps:,.0f} ms a step, untraced")
    report(table, 1e3 * seconds / options.steps)


def report(table: dict[str, dict[str, float]], step: float) -> None:
    """Prints milliseconds by part and kind, the largest first."""
    total = sum(sum(row.values()) for row in table.values())
    print(f"{'':36}" + "".join(f"{kind:>10}" for kind in (*KINDS, "all", "share")))
    rows = sorted(table.items(), key=lambda item: -sum(item[1].values()))
    whole = collections.Counter()
    for row in table.values():
        whole.update(row)
    for part, row in (*rows, ("all", whole)):
        own = sum(row.values())
        cells = "".join(f"{row[kind]:10,.1f}" for kind in KINDS)
        print(f"{part:36}{cells}{own:10,.1f}{own / step:10.1%}")
    print(f"{'beyond operations':96}{step - total:10,.1f}{1 - total / step:10.1%}")


if __name__ == "__main__":
    main()
