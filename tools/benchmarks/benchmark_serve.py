"""Compare the latency of a served classifier with Hugging Face on PyTorch.

All peers have random weights of one shape and return class probabilities, for texts
(tokenizer and model) and for ids (model alone). A text of a given length consists of
words of the vocabulary.

  electra_tf       an exported SavedModel, run with tf.saved_model.load
  litert, litert.int8, onnx, onnx.int8
                   the other formats; not by default, `--kinds tokens` only
  torch            the fast tokenizer and ElectraForSequenceClassification
  torch.compile    the same, compiled

At each point of the grid the peers run in turn for several rounds. The first requests
of a point, which trace and compile, are not measured. PyTorch needs the extra
`interop-test`.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable

import peers
from peers import COMPILED, OURS, TORCH

FORMATS = {
    OURS: "saved_model", "litert": "litert", "litert.int8": "litert", "onnx": "onnx",
    "onnx.int8": "onnx",
}  # fmt: skip
Point = tuple[str, int, int]
"""Kind of input, number of rows, wordpieces of each."""
Send = Callable[[], object]


class Requests:
    """Texts, and their ids, which all peers receive."""

    def __init__(self, options: argparse.Namespace):
        with open(options.vocab, encoding="utf-8") as file:
            self.vocabulary = file.read().removesuffix("\n").split("\n")
        self._words = [
            word
            for word in self.vocabulary
            if word.isascii() and word.isalpha() and word.islower()
        ]
        self._ids = {word: number for number, word in enumerate(self.vocabulary)}

    def texts(self, rows: int, length: int) -> list[str]:
        """Return texts of a number of wordpieces, with [CLS] and [SEP]."""
        return [" ".join(self._row(row, length)) for row in range(rows)]

    def ids(self, rows: int, length: int) -> list[list[int]]:
        lines = [["[CLS]", *self._row(row, length), "[SEP]"] for row in range(rows)]
        return [[self._ids[word] for word in line] for line in lines]

    def _row(self, row: int, length: int) -> list[str]:
        step, count = 7919 * (row + 1), len(self._words)
        return [self._words[step * index % count] for index in range(1, length - 1)]


def export(options: argparse.Namespace) -> None:
    """Write the formats of the peers below the folder `options.work`."""
    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.serving.export import export as write
    from electra_tf.serving.task_models import task_export
    from electra_tf.sources import PretrainedEncoder
    from electra_tf.tasks.classifier import TextClassifier
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.vocab import Vocabulary

    tokenizer = Tokenizer(Vocabulary.read(options.vocab))
    sets = [f"model.vocabulary_size={len(tokenizer.vocabulary)}", *options.set]
    shape = load_config(options.config, sets).model.encoder
    overrides = {"data.max_length": max(options.lengths)}
    settings = load_config(root=FinetuningConfig, overrides=overrides)
    pretrained = PretrainedEncoder(shape, tokenizer, None, "random weights")
    model = TextClassifier(pretrained, ["no", "yes"], settings)
    names = options.peers.split(",")
    for name in {FORMATS[name] for name in names if name in FORMATS}:
        folder = f"{options.work}/{name}"
        write(task_export(model), folder, export_format=name, log=lambda line: None)


def arrays(requests: Requests, rows: int, length: int) -> dict:
    import numpy as np

    ids = np.array(requests.ids(rows, length), np.int32)
    return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids**0}


def electra_tf(options: argparse.Namespace, requests: Requests) -> Callable[..., Send]:
    """Return a maker of requests to the SavedModel, loaded with TensorFlow alone."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  its operations

    model = tf.saved_model.load(f"{options.work}/saved_model/1")

    def make_request(kind: str, rows: int, length: int, model=model) -> Send:
        # The default argument keeps the model alive: its functions do not.
        if kind == "text":
            run = model.signatures["serving_default"]
            texts = requests.texts(rows, length)
            return lambda: run(text=tf.constant(texts))["probabilities"].numpy()
        run, given = model.signatures["tokens"], arrays(requests, rows, length)
        return lambda: run(**{name: tf.constant(a) for name, a in given.items()})[
            "probabilities"
        ].numpy()

    return make_request


def other_format(
    peer: str, options: argparse.Namespace, requests: Requests
) -> Callable[..., Send]:
    """Return a maker of requests of ids to the model in LiteRT or ONNX."""
    from electra_tf.serving.formats import litert, onnx

    folder = f"{options.work}/{FORMATS[peer]}/1"
    number = int(peer.endswith(".int8"))
    if FORMATS[peer] == "onnx":
        run = onnx.open_onnx(f"{folder}/{onnx.FILES[number]}", options.threads)
    else:
        run = litert.open_litert(f"{folder}/{litert.FILES[number]}", options.threads)

    def make_request(kind: str, rows: int, length: int) -> Send:
        given = arrays(requests, rows, length)
        return lambda: run(given)

    return make_request


def serve(channel: peers.Channel, options: argparse.Namespace) -> None:
    """Answer points with the milliseconds of their requests."""
    peer, requests = channel.peer, Requests(options)
    if peer.startswith(TORCH):
        from torch_models import classifier

        make_request = classifier(options, requests, peer == COMPILED)
    elif peer == OURS:
        make_request = electra_tf(options, requests)
    else:
        make_request = other_format(peer, options, requests)
    channel.answer()
    sends: dict[Point, Send] = {}
    for point in channel.questions():
        if point not in sends:
            sends[point] = make_request(*point)
            for _ in range(3):
                sends[point]()
        times, end = [], time.perf_counter() + options.seconds
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            sends[point]()
            times.append(1e3 * (time.perf_counter() - begin))
        channel.answer(times)


def measure_point(found: list[peers.Peer], point: Point, options) -> float:
    """Print a line of the table; return our median over the others' lowest."""
    import numpy as np

    times: dict[str, list[float]] = {peer.name: [] for peer in found}
    for _ in range(options.rounds):
        for peer in found:
            times[peer.name] += peer.ask(point)
    kind, rows, length = point
    cells, medians = [], {}
    for name, values in times.items():
        medians[name], p99 = np.percentile(values, [50, 99])
        rate = 1e3 * rows / np.mean(values)
        cells.append(f"{medians[name]:19.2f}{p99:9.2f}{rate:11,.1f}")
    others = [median for name, median in medians.items() if name != OURS]
    ratio = medians[OURS] / min(others, default=medians[OURS])
    line = f"{kind:7}{rows:6}{length:7}{''.join(cells)}{ratio:12.2f}"
    print(line, flush=True)
    return ratio


def measure(found: list[peers.Peer], options: argparse.Namespace) -> None:
    heads = (f"{p.name + ': p50':>19}{'p99':>9}{'texts/s':>11}" for p in found)
    print(
        f"\n{options.config}, {options.threads} threads, times in ms, "
        f"{options.rounds} rounds of {options.seconds:g} s\n"
        f"{'':7}{'batch':>6}{'length':>7}{''.join(heads)}{'of fastest':>12}"
    )
    ratios = [
        measure_point(found, (kind, rows, length), options)
        for kind in options.kinds
        for rows in options.batches
        for length in options.lengths
    ]
    if len(found) > 1:
        print(
            f"{OURS} takes {min(ratios):.2f} to {max(ratios):.2f} of the time of the "
            f"fastest of the others; it is faster at "
            f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} points"
        )


def parse() -> argparse.Namespace:
    parser = peers.parser(__doc__, (OURS, TORCH, COMPILED))
    add = parser.add_argument
    add("--vocab", default=peers.standard_file(peers.VOCAB))
    add("--kinds", nargs="+", default=["text", "tokens"], help="of input")
    add("--lengths", nargs="+", type=int, default=[16, 64, 128, 512], help="from 3")
    add("--batches", nargs="+", type=int, default=[1, 8, 32])
    add("--seconds", type=float, default=1.0, help="seconds per round")
    options = parser.parse_args()
    if not options.vocab:
        sys.exit("error: pass --vocab=FILE (ELECTRA_TF_DATA is unset)")
    others = set(options.peers.split(",")) & set(FORMATS) - {OURS}
    if others and options.kinds != ["tokens"]:
        sys.exit(f"error: {', '.join(others)} have no text input: pass --kinds tokens")
    return options


def main() -> None:
    options = parse()
    names = peers.names(options, (OURS, TORCH, COMPILED, *FORMATS), [OURS])
    with tempfile.TemporaryDirectory() as folder:
        options.work = folder
        export(options)
        found = [peers.Peer(name, serve, options) for name in names]
        measure(found, options)
        for peer in found:
            peer.end()


if __name__ == "__main__":
    main()
