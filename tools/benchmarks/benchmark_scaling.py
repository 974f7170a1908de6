"""Model the time of a step on N replicas; compare it with processes on this machine.

  step(N) = compute of the replica's rows + ring all-reduce of the gradients + update
  all-reduce = 2 (N - 1) / N x bytes / bandwidth + 2 (N - 1) x latency

The compute time (with the update) is that of one process with a replica's rows.
Bandwidth and latency are those of TensorFlow's all-reduce between two processes: of one
large tensor, and of as many tiny ones as a step reduces. Real `pretrain` commands with
TF_CONFIG on loopback ports run in turn with those of one process. Each has --threads
threads; processes share the machine's cores, so that the compute time is multiplied by
threads x N / cores where this is above 1.

The forecast uses the figures in HARDWARE, which are public specifications and assumed
utilisations, not measurements.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

import peers

_LARGE = 2**22  # float32 values of the tensor that measures the bandwidth
_ROOT = peers.ROOT


@dataclasses.dataclass(frozen=True)
class Link:
    """Connection of a replica to the next one of a ring."""

    bandwidth: float
    """Bytes per second in one direction."""
    latency: float
    """Seconds of one of the 2 (N - 1) exchanges of an all-reduce."""


@dataclasses.dataclass(frozen=True)
class Hardware:
    """Assumed figures of an accelerator."""

    peak: float
    """FLOP/s of dense matmuls in bfloat16."""
    memory: float
    """Bytes per second of its memory."""
    link: Link
    utilisation: Mapping[str, float]
    """Share of the peak that the matmuls of a step reach, by config."""


# Peak, memory and links: the makers' data sheets; 70% of a link's bandwidth is assumed.
# NVLink: 600 and 900 GB/s in both directions together; v5e: 1,600 Gbit/s, 4 links.
_SHARES = {"small": 0.2, "base": 0.4}
HARDWARE = {
    "A100 SXM 80 GB": Hardware(312e12, 2.0e12, Link(0.7 * 300e9, 5e-6), _SHARES),
    "H100 SXM": Hardware(989e12, 3.35e12, Link(0.7 * 450e9, 5e-6), _SHARES),
    "TPU v5e": Hardware(197e12, 0.82e12, Link(0.7 * 100e9, 2e-6), _SHARES),
}


def all_reduce_seconds(replicas: int, size: float, link: Link, count: int = 1) -> float:
    """Return the seconds of a ring all-reduce.

    Args:
        replicas: Number of replicas.
        size: Bytes of all tensors.
        link: Connection of two replicas.
        count: Number of collective operations.
    """
    exchanges = 2 * (replicas - 1)
    return exchanges / replicas * size / link.bandwidth + (
        count * exchanges * link.latency
    )


def step_seconds(
    replicas: int, compute: float, size: float, link: Link, count: int, update: float
) -> float:
    """Return the modelled seconds of a step; nothing overlaps.

    Args:
        replicas: Number of replicas.
        compute: Seconds of forward and backward pass of a replica's rows.
        size: Bytes of the gradients.
        link: Connection of two replicas.
        count: Number of collective operations.
        update: Seconds of the optimizer's update.
    """
    return compute + all_reduce_seconds(replicas, size, link, count) + update


def forecast(name: str, accelerator: str, replicas: int) -> dict[str, float]:
    """Return the modelled step of a published model at its published batch size."""
    from electra_tf.config.loader import load_config
    from electra_tf.model import cost

    config = load_config(name, ["model.vocabulary_size=30522"])
    rows, length = config.input.batch_size // replicas, config.records.max_length
    positions = math.ceil(config.masking.rate * length)
    batch = cost.BatchShape(rows, length, positions)
    kind = config.model, config.objective.name, config.objective.has_generator
    hardware = HARDWARE[accelerator]
    flops, parameters = cost.step_flops(*kind, batch), count_parameters(config.model)
    compute = flops / (hardware.peak * hardware.utilisation[name])
    compute += step_traffic(config.model, batch) / hardware.memory
    update = 4 * 14 * parameters / hardware.memory
    # Gradients are reduced as one operation, and metrics and weights as two more.
    size, link = 4 * parameters, hardware.link
    seconds = step_seconds(replicas, compute, size, link, 3, update)
    return {
        "rows": rows,
        "compute": compute,
        "update": update,
        "all_reduce": all_reduce_seconds(replicas, size, link, 3),
        "seconds": seconds,
        "steps": config.training.steps,
    }


def step_traffic(model: object, batch: object) -> int:
    """Return the bytes that operations other than matmuls read and write, bfloat16."""
    tokens, values = batch.batch_size * batch.length, 0
    for shape in (model.encoder, model.generator):
        # Two norms and the activation; biases, transposes, softmax of the attention.
        fused = 2 * 13 * shape.width + 6 * shape.feed_forward
        attention = 26 * shape.width + 10 * shape.heads * batch.length
        values += shape.depth * tokens * (fused + attention)
    logits = batch.batch_size * batch.max_predictions_per_seq
    return 2 * (values + 13 * logits * model.encoder.vocabulary_size)


def count_parameters(model: object) -> int:
    """Return the number of trained parameters of the default sharing, by its shapes."""
    main, generator = model.encoder, model.generator
    total = (main.vocabulary_size + main.max_positions + 2) * main.embedding
    for shape in (main, generator):
        layer = 4 * shape.width**2 + 2 * shape.width * shape.feed_forward
        total += shape.depth * (layer + 9 * shape.width + shape.feed_forward)
        if shape.embedding != shape.width:
            total += shape.embedding * shape.width
        total += shape.width * shape.width
    return total + generator.width * generator.embedding + main.vocabulary_size


# ---- Measurements on this machine.


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a measured process, without TF_CONFIG."""
    variables = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "tests")]),
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


def measure_link(options: argparse.Namespace, count: int) -> Link:
    """Return bandwidth and latency of an all-reduce between two processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, f"--all_reduce={count}"]
        output = run_processes(2, command, options.threads, pathlib.Path(folder))
    tiny, large = json.loads(output.splitlines()[-1])
    latency = tiny / count / 2  # two exchanges of two replicas
    return Link(4 * _LARGE / max(large - 2 * latency, 1e-9), latency)


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


def compare(options: argparse.Namespace) -> list[list[str]]:
    """Measure, and return the rows of the table of processes on this machine."""
    import benchmark_pipeline

    with tempfile.TemporaryDirectory() as name:
        lines = peers.text_lines(options.input, options.megabytes)
        folder = pathlib.Path(name)
        benchmark_pipeline.make_records(folder, options.length, lines)
        records = folder / "out"
        count, size = model_size(options, records)
        link = measure_link(options, count)
        print(
            f"{count} gradients, {size / 1e6:.2f} MB; all-reduce of two processes: "
            f"{link.bandwidth / 1e6:,.0f} MB/s, {link.latency * 1e6:,.0f} us",
            flush=True,
        )
        kinds = {}
        for processes in options.processes:
            rows = options.batch_size // processes
            kinds |= {(1, rows): [], (processes, options.batch_size): []}
        for _ in range(options.rounds):
            for kind, seconds in kinds.items():
                seconds.append(measure_steps(options, records, *kind))
                print(f"{kind}: {seconds[-1] * 1e3:.1f} ms", flush=True)
    cores = os.cpu_count() or 1
    table = []
    for processes in options.processes:
        rows = options.batch_size // processes
        alone = statistics.median(kinds[1, rows])
        share = max(1.0, processes * options.threads / cores)
        modelled = step_seconds(processes, alone * share, size, link, count, 0.0)
        measured = statistics.median(kinds[processes, options.batch_size])
        table.append(
            [
                *(str(processes), str(rows), f"{alone * 1e3:.1f}"),
                f"{all_reduce_seconds(processes, size, link, count) * 1e3:.1f}",
                *(f"{modelled * 1e3:.1f}", f"{measured * 1e3:.1f}"),
                f"{measured / modelled:.2f}",
            ]
        )
    return table


def forecast_rows(replicas: Sequence[int]) -> list[list[str]]:
    """Return the rows of the table of forecasts."""
    table = []
    for name in ("small", "base"):
        for accelerator in HARDWARE:
            one = forecast(name, accelerator, 1)
            for number in replicas:
                if number > 8 and accelerator != "TPU v5e":
                    continue  # the links are those of one host
                step = forecast(name, accelerator, number)
                table.append(
                    [
                        *(name, accelerator, str(number), f"{step['rows']}"),
                        *(
                            f"{step[part] * 1e3:.2f}"
                            for part in ("compute", "all_reduce", "update", "seconds")
                        ),
                        f"{one['seconds'] / step['seconds'] / number:.0%}",
                        f"{step['seconds'] * step['steps'] / 3600:.1f}",
                    ]
                )
    return table


def markdown(head: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    columns = head.split("; ")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", default="1,2,4", help="numbers, or none")
    parser.add_argument("--replicas", default="1,8,16", help="of the forecast")
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
    if options.processes != "none":
        options.processes = [int(n) for n in options.processes.split(",")]
        head = "processes; rows of each; one process alone, ms; all-reduce, ms; "
        head += "model, ms; measured, ms; measured / model"
        print(markdown(head, compare(options)), flush=True)
    head = "config; accelerator; replicas; rows of each; compute, ms; "
    head += "all-reduce, ms; update, ms; step, ms; efficiency; hours in all"
    replicas = [int(n) for n in options.replicas.split(",")]
    print(f"\n{markdown(head, forecast_rows(replicas))}")


if __name__ == "__main__":
    main()
