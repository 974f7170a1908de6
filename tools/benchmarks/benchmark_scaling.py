"""Compare the time of a step on N processes of this machine with a model of it.

  step(N) = compute of the process's rows + ring all-reduce of the gradients
  all-reduce = 2 (N - 1) / N x bytes / bandwidth + 2 (N - 1) x latency x gradients

The compute time (with the update) is that of one process with a replica's rows.
Bandwidth and latency are those of TensorFlow's all-reduce between two processes: of one
large tensor, and of as many tiny ones as a step reduces. Real `pretrain` commands with
TF_CONFIG on loopback ports run in turn with those of one process. Each has --threads
threads; processes share the machine's cores, so that the compute time is multiplied by
threads x N / cores where this is above 1.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import benchmark_pipeline
import peers

_LARGE = 2**22  # float32 values of the tensor that measures the bandwidth
_HEAD = (
    "processes", "rows of each", "one process alone, ms", "all-reduce, ms",
    "model, ms", "measured, ms", "measured / model",
)  # fmt: skip


def all_reduce_seconds(
    replicas: int, size: float, bandwidth: float, latency: float, count: int
) -> float:
    """Return the seconds of a ring all-reduce.

    Args:
        replicas: Number of replicas.
        size: Bytes of all tensors.
        bandwidth: Bytes per second from a replica to the next.
        latency: Seconds of one of the 2 (N - 1) exchanges.
        count: Number of collective operations.
    """
    exchanges = 2 * (replicas - 1)
    return exchanges * (size / replicas / bandwidth + count * latency)


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a measured process, without TF_CONFIG."""
    variables = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join([str(peers.ROOT), str(peers.ROOT / "tests")]),
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(threads),
    }


def run_processes(
    count: int, command: Sequence[str], threads: int, folder: pathlib.Path
) -> str:
    """Run a command on `count` workers, and return the standard output of the first."""
    from training.worker_commands import worker_configs

    variables, configs = environment(threads), worker_configs(count)
    processes = []
    for index, config in enumerate(configs):
        one = {**variables, **({"TF_CONFIG": config} if count > 1 else {})}
        with (folder / f"{index}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    command, env=one, stdout=subprocess.PIPE, stderr=log, text=True
                )
            )
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"error: a worker failed:\n{(folder / '0.log').read_text()[-2000:]}")
    return outputs[0]


def measure_steps(
    options: argparse.Namespace, records: pathlib.Path, processes: int, rows: int
) -> float:
    """Return the median of a step's seconds in a real run, without its start."""
    from electra_tf.training.metric_logger import TRAIN, read_metrics

    period = max(1, options.steps // 8)
    sets = [
        *(f"input.batch_size={rows}", f"records.max_length={options.length}"),
        *(f"training.steps={options.steps}", f"training.log_every={period}"),
        *("training.save_every=1000000", "training.keep_at=[]"),
        "input.shuffle_window=1000",
        *options.set,
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = [
            *(sys.executable, "-m", "electra_tf.pretrain", f"--data={records}"),
            *(f"--config={options.config}", f"--model_dir={folder / 'run'}"),
            *(f"--set={item}" for item in sets),
        ]
        run_processes(processes, command, options.threads, folder)
        lines = read_metrics(str(folder / "run"))
    seconds = [
        line["seconds_left"] / (options.steps - line["step"])
        for line in lines
        if line["kind"] == TRAIN and line["step"] < options.steps
    ]
    return statistics.median(seconds[1:])  # the first line has few timed steps


def measure_link(options: argparse.Namespace, count: int) -> tuple[float, float]:
    """Return bandwidth and latency of an all-reduce between two processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, f"--all_reduce={count}"]
        output = run_processes(2, command, options.threads, pathlib.Path(folder))
    tiny, large = json.loads(output.splitlines()[-1])
    latency = tiny / count / 2  # two exchanges of two replicas
    return 4 * _LARGE / max(large - 2 * latency, 1e-9), latency


def time_all_reduce(count: int) -> None:
    """Print the seconds of `count` tiny all-reduces and of a large one, as a worker."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def make(sizes: list[int]):
        @tf.function
        def reduce():
            def replica():
                context = tf.distribute.get_replica_context()
                tensors = [tf.ones(size) for size in sizes]
                summed = context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)
                return tf.add_n([tensor[0] for tensor in summed])

            return strategy.run(replica)

        return reduce

    medians = []
    for sizes in ([1] * count, [_LARGE]):
        reduce, seconds = make(sizes), []
        for _ in range(15):
            begin = time.perf_counter()
            strategy.experimental_local_results(reduce())[0].numpy()
            seconds.append(time.perf_counter() - begin)
        medians.append(statistics.median(seconds[3:]))
    print(json.dumps(medians), flush=True)


def model_size(options: argparse.Namespace, records: pathlib.Path) -> tuple[int, int]:
    """Return the number of gradients of the measured model, and their bytes."""
    from electra_tf.config.loader import load_config
    from electra_tf.runs.dry_run import num_parameters, variable_shapes
    from electra_tf.runs.experiment import Experiment

    sets = [f"records.max_length={options.length}", *options.set]
    experiment = Experiment.resolve(
        str(records), None, lambda stored: load_config(options.config, sets, stored)
    )
    shapes = variable_shapes(experiment)
    return len(shapes), 4 * num_parameters(shapes)


def measure(
    options: argparse.Namespace, records: pathlib.Path
) -> dict[tuple[int, int], float]:
    """Return the seconds of a step by (processes, global batch)."""
    results: dict[tuple[int, int], list[float]] = {}
    for processes in options.processes:
        for kind in (
            (1, options.batch_size // processes),
            (processes, options.batch_size),
        ):
            results[kind] = []
    for _ in range(options.rounds):
        for kind, seconds in results.items():
            seconds.append(measure_steps(options, records, *kind))
            print(f"{kind}: {seconds[-1] * 1e3:.1f} ms", flush=True)
    return {kind: statistics.median(seconds) for kind, seconds in results.items()}


def compare(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Measure, and print the rows of a Markdown table."""
    lines = peers.text_lines(options.input, options.megabytes)
    benchmark_pipeline.make_records(folder, options.length, lines)
    count, size = model_size(options, folder / "out")
    link = measure_link(options, count)
    print(
        f"{count} gradients, {size / 1e6:.2f} MB; all-reduce of two processes: "
        f"{link[0] / 1e6:,.0f} MB/s, {link[1] * 1e6:,.0f} us",
        flush=True,
    )
    times = measure(options, folder / "out")
    print(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}")
    for processes in options.processes:
        rows = options.batch_size // processes
        alone, measured = times[1, rows], times[processes, options.batch_size]
        share = max(1.0, processes * options.threads / (os.cpu_count() or 1))
        reduce = all_reduce_seconds(processes, size, *link, count)
        model = alone * share + reduce
        milliseconds = (f"{1e3 * s:.1f}" for s in (alone, reduce, model, measured))
        cells = (processes, rows, *milliseconds, f"{measured / model:.2f}")
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", default="1,2,4", help="numbers of processes")
    parser.add_argument("--config", default="tiny", help="as for pretrain")
    parser.add_argument("--set", action="append", default=[], help="as for pretrain")
    parser.add_argument("--batch_size", type=int, default=64, help="global batch")
    parser.add_argument("--length", type=int, default=64, help="positions")
    parser.add_argument("--steps", type=int, default=80, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--input", help="a text; default: English Wikipedia")
    parser.add_argument("--megabytes", type=float, default=1.0, help="of the text")
    parser.add_argument("--all_reduce", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.all_reduce:
        time_all_reduce(options.all_reduce)
        return
    options.processes = [int(n) for n in options.processes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        compare(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
