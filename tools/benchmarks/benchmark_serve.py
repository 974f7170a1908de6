"""A served classifier's latency beside Hugging Face's on PyTorch.

All sides have random weights of one shape and answer with the classes' probabilities,
from texts (tokenizer and model) and from ids (the model alone). The texts are words of
the vocabulary, as many as make that length.

  electra_tf       our SavedModel, exported for it, by tf.saved_model.load
  torch            the fast tokenizer and ElectraForSequenceClassification
  torch.compile    the same, compiled

Each is a process of its own, held to the same cores; at each point of the grid they
are asked in turn, round after round, and while one answers the others wait. The first
answers at a point, with their tracing and compiling, are not counted. --torch_python
names an interpreter that has torch and transformers where this one has not (extra
`interop-test`). --clock=processor counts the processor's time alone, for a machine
that others use too. --memory_requests measures what the SavedModel's process holds
after so many requests of mixed sizes.
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
Ask = Callable[[], object]


class Work:
    """What is asked, the same of all: texts, and their ids."""

    def __init__(self, options: argparse.Namespace):
        with open(options.vocab, encoding="utf-8") as file:
            self.vocabulary = file.read().removesuffix("\n").split("\n")
        words = [
            (word, place)
            for place, word in enumerate(self.vocabulary)
            if word.isascii() and word.isalpha() and word.islower()
        ]
        self._words, self._ends = words, self.vocabulary.index("[CLS]")
        self._separator = self.vocabulary.index("[SEP]")

    def texts(self, rows: int, length: int) -> list[str]:
        """Texts of so many pieces, [CLS] and [SEP] counted."""
        return [
            " ".join(word for word, _ in self._row(row, length)) for row in range(rows)
        ]

    def ids(self, rows: int, length: int) -> list[list[int]]:
        """Their ids."""
        return [
            [self._ends, *(i for _, i in self._row(row, length)), self._separator]
            for row in range(rows)
        ]

    def _row(self, row: int, length: int) -> list[tuple[str, int]]:
        step, count = 7919 * (row + 1), len(self._words)
        return [self._words[step * place % count] for place in range(1, length - 1)]


def export(options: argparse.Namespace, folder: str) -> str:
    """Writes the SavedModel; returns its folder."""
    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.serving.export import export as write
    from electra_tf.serving.task_models import task_export
    from electra_tf.tasks.classification.model import TextClassifier
    from electra_tf.tasks.pretrained import PretrainedEncoder
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.vocab import Vocabulary

    tokenizer = Tokenizer(Vocabulary.read(options.vocab))
    sets = [f"model.vocabulary_size={len(tokenizer.vocabulary)}", *options.set]
    shape = load_config(options.config, sets).model.encoder
    longest = {"data.max_length": max(options.lengths)}
    settings = load_config(root=FinetuningConfig, overrides=longest)
    start = PretrainedEncoder(shape, tokenizer, None, "random weights")
    model = TextClassifier(start, ["no", "yes"], settings)
    return write(task_export(model), folder, log=lambda line: None)


def electra_tf(options: argparse.Namespace, work: Work) -> Callable[..., Ask]:
    """Ours, as a process has it that knows TensorFlow alone."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  its operations

    model = tf.saved_model.load(options.work)
    from_text, from_ids = (
        model.signatures[name] for name in ("serving_default", "tokens")
    )

    def asked(kind: str, rows: int, length: int, model=model) -> Ask:
        # The model goes with its last reader.
        if kind == "text":
            texts = work.texts(rows, length)
            return lambda: from_text(text=tf.constant(texts))["probabilities"].numpy()
        ids = np.array(work.ids(rows, length), np.int32)
        given = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids**0}

        def ask() -> object:
            tensors = {name: tf.constant(array) for name, array in given.items()}
            return from_ids(**tensors)["probabilities"].numpy()

        return ask

    return asked


def held() -> float:
    """MiB that this process has in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def serve(options: argparse.Namespace) -> None:
    """A peer's process: a line names a point, and the milliseconds are answered."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not for the one who asks
    work, clock, known = Work(options), CLOCKS[options.clock], {}
    peer: Callable[..., Callable[..., Ask]] = electra_tf
    if options.peer in TORCH:
        from benchmark_serve_torch import classifier as peer
    asked = peer(options, work)
    print(time.time() - options.begin, file=answers, flush=True)
    for line in sys.stdin:
        kind, *numbers = line.split()
        rows, length, count = map(int, numbers)
        if (kind, rows, length) not in known:
            known[kind, rows, length] = asked(kind, rows, length)
            for _ in range(3):
                known[kind, rows, length]()
        ask, spent, end = known[kind, rows, length], [], clock() + options.seconds
        while len(spent) < count or (count < 2 and clock() < end):
            begin = clock()
            ask()
            spent.append(1e3 * (clock() - begin))
        print(held(), *spent, file=answers, flush=True)


class Server(benchmark_train.Peer):
    """A peer's process, from outside."""

    def ask(self, kind: str, rows: int, length: int, count: int = 1) -> list[float]:
        """Milliseconds of some requests; of one, as many as fit into --seconds."""
        self._process.stdin.write(f"{kind} {rows} {length} {count}\n")
        self._process.stdin.flush()
        self.held, *spent = self._read()
        return spent


def measure(servers: list[Server], options: argparse.Namespace) -> None:
    """Asks all at each point, and prints a line of it."""
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
    ratios = [one_point(servers, point, options) for point in points]
    if len(servers) > 1:
        print(
            f"{OURS} takes {min(ratios):.2f} to {max(ratios):.2f} of the time of the "
            f"fastest of the others; it is faster at "
            f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} points"
        )


def one_point(servers: list[Server], point: tuple, options: argparse.Namespace):
    """One line of the table; our median beside the least of the others'."""
    import numpy as np

    spent = {server.name: [] for server in servers}
    for _ in range(options.rounds):
        for server in servers:
            spent[server.name] += server.ask(*point)
    kind, rows, length = point
    cells, middles = [], {}
    for name, values in spent.items():
        middles[name], last = np.percentile(values, [50, 99])
        rate = 1e3 * rows / np.mean(values)
        cells.append(f"{middles[name]:19.2f}{last:9.2f}{rate:9,.1f}")
    others = [middle for name, middle in middles.items() if name != OURS]
    ratio = middles[OURS] / min(others, default=middles[OURS])
    line = f"{kind:7}{rows:6}{length:7}{''.join(cells)}{ratio:12.2f}"
    print(line, flush=True)
    return ratio


def memory(server: Server, options: argparse.Namespace) -> None:
    """Prints what is held after a tenth and after all of many requests."""
    points = [(kind, 1 + number % 3) for number, kind in enumerate(3 * KINDS)]
    lengths = sorted({3 + (max(options.lengths) - 3) * n // 7 for n in range(8)})
    done, found = 0, []
    for share in (0.1, 1.0):
        while done < share * options.memory_requests:
            kind, rows = points[done % len(points)]
            length = lengths[done % len(lengths)]
            server.ask(kind, rows, length, 2)
            done += 2
        found.append(server.held)
    print(
        f"memory: {found[0]:,.1f} MiB after a tenth of {done:,} requests, "
        f"{found[1]:,.1f} MiB after all: {found[1] - found[0]:+.1f} MiB"
    )


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parse() -> argparse.Namespace:
    """The options; what they name is checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("ELECTRA_TF_DATA")
    parser.add_argument("--config", default=str(common.ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="as for pretrain")
    parser.add_argument("--vocab", default=data and f"{data}/vocab/bert_uncased_en.txt")
    parser.add_argument("--lengths", type=numbers, default=[16, 64, 128, 512])
    parser.add_argument("--batches", type=numbers, default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round")
    parser.add_argument("--clock", default="wall", choices=CLOCKS)
    parser.add_argument("--memory_requests", type=int, default=0)
    parser.add_argument("--peers", default=",".join((OURS, *TORCH)), help="some of it")
    parser.add_argument("--torch_python", default=sys.executable)
    for name, kind in (("--peer", str), ("--begin", float), ("--work", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    parser.set_defaults(device="cpu", steps=1)
    options = parser.parse_args()
    if not options.vocab:
        sys.exit("error: name --vocab=FILE (ELECTRA_TF_DATA is unset)")
    if min(options.lengths) < 3:
        sys.exit("error: --lengths are 3 or more: [CLS], a word and [SEP]")
    common.check_peers(options, [OURS], [OURS, *TORCH])
    return options


def main() -> None:
    options = parse()
    if options.peer:
        serve(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.work = export(options, folder)
        sys.argv.append(f"--work={options.work}")  # peers are started with the same
        servers = [Server(name, options) for name in options.peers.split(",")]
        measure(servers, options)
        if options.memory_requests:
            ours = next(server for server in servers if server.name == OURS)
            memory(ours, options)
        for server in servers:
            server.end()


if __name__ == "__main__":
    main()
