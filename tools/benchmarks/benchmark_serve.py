"""Compare the latency of a served classifier with Hugging Face on PyTorch.

All peers have random weights of one shape and return class probabilities, for texts
(tokenizer and model) and for ids (model alone). A text of a given length consists of
words of the vocabulary.

  electra_tf       an exported SavedModel, run with tf.saved_model.load
  torch            the fast tokenizer and ElectraForSequenceClassification
  torch.compile    the same, compiled

Each peer is a separate process on the same cores. At each point of the grid the peers
run in turn for several rounds, one at a time. The first requests of a point, which
trace and compile, are not measured. --torch_python is an interpreter with torch and
transformers, if this one does not have them (extra `interop-test`). --clock=processor
measures CPU time, for machines with other load. --memory_requests measures the memory
of the SavedModel's process after a number of requests of mixed sizes.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable

import benchmark_common as common
import benchmark_train

OURS = "electra_tf"
TORCH = ("torch", "torch.compile")
KINDS = ("text", "tokens")
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
Send = Callable[[], object]


class Requests:
    """Texts, and their ids, which all peers receive."""

    def __init__(self, options: argparse.Namespace):
        with open(options.vocab, encoding="utf-8") as file:
            self.vocabulary = file.read().removesuffix("\n").split("\n")
        words = [
            (word, index)
            for index, word in enumerate(self.vocabulary)
            if word.isascii() and word.isalpha() and word.islower()
        ]
        self._words, self._cls = words, self.vocabulary.index("[CLS]")
        self._sep = self.vocabulary.index("[SEP]")

    def texts(self, rows: int, length: int) -> list[str]:
        """Return texts of a number of wordpieces, with [CLS] and [SEP]."""
        return [
            " ".join(word for word, _ in self._row(row, length)) for row in range(rows)
        ]

    def ids(self, rows: int, length: int) -> list[list[int]]:
        """Return the ids of `texts`."""
        return [
            [self._cls, *(i for _, i in self._row(row, length)), self._sep]
            for row in range(rows)
        ]

    def _row(self, row: int, length: int) -> list[tuple[str, int]]:
        step, count = 7919 * (row + 1), len(self._words)
        return [self._words[step * index % count] for index in range(1, length - 1)]


def export(options: argparse.Namespace, folder: str) -> str:
    """Write the SavedModel, and return its folder."""
    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.serving.export import export as write
    from electra_tf.serving.task_models import task_export
    from electra_tf.tasks.classifier import TextClassifier
    from electra_tf.tasks.pretrained import PretrainedEncoder
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.vocab import Vocabulary

    tokenizer = Tokenizer(Vocabulary.read(options.vocab))
    sets = [f"model.vocabulary_size={len(tokenizer.vocabulary)}", *options.set]
    shape = load_config(options.config, sets).model.encoder
    overrides = {"data.max_length": max(options.lengths)}
    settings = load_config(root=FinetuningConfig, overrides=overrides)
    pretrained = PretrainedEncoder(shape, tokenizer, None, "random weights")
    model = TextClassifier(pretrained, ["no", "yes"], settings)
    return write(task_export(model), folder, log=lambda line: None)


def electra_tf(options: argparse.Namespace, requests: Requests) -> Callable[..., Send]:
    """Return a maker of requests to the SavedModel, loaded with TensorFlow alone."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  its operations

    model = tf.saved_model.load(options.work)
    from_text, from_ids = (
        model.signatures[name] for name in ("serving_default", "tokens")
    )

    def make_request(kind: str, rows: int, length: int, model=model) -> Send:
        # The default argument keeps the model alive: its functions do not.
        if kind == "text":
            texts = requests.texts(rows, length)
            return lambda: from_text(text=tf.constant(texts))["probabilities"].numpy()
        ids = np.array(requests.ids(rows, length), np.int32)
        arrays = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids**0}

        def send() -> object:
            tensors = {name: tf.constant(array) for name, array in arrays.items()}
            return from_ids(**tensors)["probabilities"].numpy()

        return send

    return make_request


def resident_memory() -> float:
    """Return the resident MiB of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def serve(options: argparse.Namespace) -> None:
    """Run a peer: read points of the grid from standard input, print milliseconds."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of libraries go to standard error
    requests, clock, sends = Requests(options), CLOCKS[options.clock], {}
    peer: Callable[..., Callable[..., Send]] = electra_tf
    if options.peer in TORCH:
        from benchmark_serve_torch import classifier as peer
    make_request = peer(options, requests)
    print(time.time() - options.begin, file=output, flush=True)
    for line in sys.stdin:
        kind, *numbers = line.split()
        rows, length, count = map(int, numbers)
        if (kind, rows, length) not in sends:
            sends[kind, rows, length] = make_request(kind, rows, length)
            for _ in range(3):
                sends[kind, rows, length]()
        send, times, end = sends[kind, rows, length], [], clock() + options.seconds
        while len(times) < count or (count < 2 and clock() < end):
            begin = clock()
            send()
            times.append(1e3 * (clock() - begin))
        print(resident_memory(), *times, file=output, flush=True)


class Server(benchmark_train.Peer):
    """Process of a peer."""

    def measure(self, kind: str, rows: int, length: int, count: int = 1) -> list[float]:
        """Return milliseconds of `count` requests; with 1, of all within --seconds."""
        self._process.stdin.write(f"{kind} {rows} {length} {count}\n")
        self._process.stdin.flush()
        self.resident_memory, *times = self._read()
        return times


def measure(servers: list[Server], options: argparse.Namespace) -> None:
    """Measure all peers at each point, and print a line per point."""
    names = [server.name for server in servers]
    print(
        f"\n{options.config}, {options.threads} threads, {options.clock} time in ms, "
        f"{options.rounds} rounds of {options.seconds:g} s\n"
        f"{'':7}{'batch':>6}{'length':>7}"
        + "".join(f"{name + ': p50':>19}{'p99':>9}{'texts/s':>9}" for name in names)
        + f"{'of fastest':>12}"
    )
    points = [
        (kind, rows, length)
        for kind in KINDS
        for rows in options.batches
        for length in options.lengths
    ]
    ratios = [measure_point(servers, point, options) for point in points]
    if len(servers) > 1:
        print(
            f"{OURS} takes {min(ratios):.2f} to {max(ratios):.2f} of the time of the "
            f"fastest of the others; it is faster at "
            f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} points"
        )


def measure_point(servers: list[Server], point: tuple, options: argparse.Namespace):
    """Print a line of the table; return our median over the others' lowest."""
    import numpy as np

    times = {server.name: [] for server in servers}
    for _ in range(options.rounds):
        for server in servers:
            times[server.name] += server.measure(*point)
    kind, rows, length = point
    cells, medians = [], {}
    for name, values in times.items():
        medians[name], p99 = np.percentile(values, [50, 99])
        rate = 1e3 * rows / np.mean(values)
        cells.append(f"{medians[name]:19.2f}{p99:9.2f}{rate:9,.1f}")
    others = [median for name, median in medians.items() if name != OURS]
    ratio = medians[OURS] / min(others, default=medians[OURS])
    line = f"{kind:7}{rows:6}{length:7}{''.join(cells)}{ratio:12.2f}"
    print(line, flush=True)
    return ratio


def print_memory(server: Server, options: argparse.Namespace) -> None:
    """Print the memory after a tenth and after all of many requests."""
    points = [(kind, 1 + number % 3) for number, kind in enumerate(3 * KINDS)]
    lengths = sorted({3 + (max(options.lengths) - 3) * n // 7 for n in range(8)})
    count, memory = 0, []
    for share in (0.1, 1.0):
        while count < share * options.memory_requests:
            kind, rows = points[count % len(points)]
            length = lengths[count % len(lengths)]
            server.measure(kind, rows, length, 2)
            count += 2
        memory.append(server.resident_memory)
    print(
        f"memory: {memory[0]:,.1f} MiB after a tenth of {count:,} requests, "
        f"{memory[1]:,.1f} MiB after all: {memory[1] - memory[0]:+.1f} MiB"
    )


def integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("ELECTRA_TF_DATA")
    parser.add_argument("--config", default=str(common.ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="--set of pretrain")
    parser.add_argument("--vocab", default=data and f"{data}/vocab/bert_uncased_en.txt")
    parser.add_argument("--lengths", type=integers, default=[16, 64, 128, 512])
    parser.add_argument("--batches", type=integers, default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per round")
    parser.add_argument("--clock", default="wall", choices=CLOCKS)
    parser.add_argument("--memory_requests", type=int, default=0)
    parser.add_argument(
        "--peers", default=",".join((OURS, *TORCH)), help="peers to run"
    )
    parser.add_argument("--torch_python", default=sys.executable)
    for name, kind in (("--peer", str), ("--begin", float), ("--work", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    parser.set_defaults(device="cpu", steps=1)
    options = parser.parse_args()
    if not options.vocab:
        sys.exit("error: pass --vocab=FILE (ELECTRA_TF_DATA is unset)")
    if min(options.lengths) < 3:
        sys.exit("error: --lengths must be at least 3: [CLS], a word and [SEP]")
    common.check_peers(options, [OURS], [OURS, *TORCH])
    return options


def main() -> None:
    options = parse()
    if options.peer:
        serve(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.work = export(options, folder)
        sys.argv.append(f"--work={options.work}")  # peers get the same arguments
        servers = [Server(name, options) for name in options.peers.split(",")]
        measure(servers, options)
        if options.memory_requests:
            ours = next(server for server in servers if server.name == OURS)
            print_memory(ours, options)
        for server in servers:
            server.end()


if __name__ == "__main__":
    main()
