"""Compare fine-tuning with Hugging Face's Trainer on the same examples.

All peers begin with random weights of one shape and are trained on a classification
task of GLUE with one call: `fit`, or `Trainer.train` with
ElectraForSequenceClassification. The training file is tokenised before. Batch size,
maximum length, dropout, clipping, AdamW and the linear schedule are equal.

  electra_tf       fit(), batches of similar lengths
  torch            the Trainer's default batches, padded to the longest of each
  torch.grouped    its batches of similar lengths (group_by_length)
  torch.compile    the same, compiled (torch_compile)

Each peer is a separate process on the same cores. Epochs of the peers alternate, and
only one runs at a time. The first epoch, which traces and compiles, is listed
separately. --torch_python is an interpreter with torch, transformers and accelerate, if
this one does not have them (extra `interop-test`).
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

import benchmark_common as common
import benchmark_train

OURS = "electra_tf"
TORCH = ("torch", "torch.grouped", "torch.compile")


def make_examples(options: argparse.Namespace, path: pathlib.Path) -> None:
    """Tokenise the training file for all peers, which may lack TensorFlow."""
    import numpy as np

    from electra_tf.config.finetuning import DataConfig
    from electra_tf.tasks.classification.preprocessing import encode_texts
    from electra_tf.tasks.datasets import read_task
    from electra_tf.text.data_errors import DataErrorLog
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.vocab import Vocabulary

    task = read_task(
        options.task, options.data, DataConfig(), DataErrorLog("stop", os.devnull)
    )
    if task.scorer.labels is None:
        sys.exit(f"error: --task must have classes. Received: {options.task}")
    split, count = task.splits["train"], options.examples
    if count > len(split):
        sys.exit(f"error: --examples must be at most {len(split)}. Received: {count}")
    targets = [task.scorer.labels.index(label) for label in split.targets][
        : count or None
    ]
    tokenizer = Tokenizer(Vocabulary.read(options.vocab))
    items = split.items[: count or None]
    examples = encode_texts(tokenizer, items, options.length, targets)
    np.savez(
        path,
        ids=np.concatenate(examples.ids),
        segments=np.concatenate(examples.segments),
        lengths=examples.lengths,
        targets=examples.targets,
        num_classes=len(task.scorer.labels),
        vocabulary_size=len(tokenizer.vocabulary),
    )


class Examples:
    """Examples and the shape of the encoder, equal for all peers."""

    def __init__(self, options: argparse.Namespace):
        import numpy as np

        from electra_tf.config.loader import load_config

        with np.load(options.work) as file:
            self.lengths = file["lengths"]
            ends = np.cumsum(self.lengths)[:-1]
            self.ids, self.segments = (
                [row.tolist() for row in np.split(file[name], ends)]
                for name in ("ids", "segments")
            )
            self.targets = file["targets"].tolist()
            self.num_classes = int(file["num_classes"])
            vocabulary_size = int(file["vocabulary_size"])
        sets = [f"model.vocabulary_size={vocabulary_size}", *options.set]
        self.shape = load_config(options.config, sets).model.encoder
        self.epochs = options.rounds + 1


class EpochServer:
    """Start an epoch for each line of standard input, and print its seconds."""

    def __init__(self, options: argparse.Namespace):
        self._options, self._ready, self._start = options, False, 0.0
        # Prints of libraries go to standard error.
        self._output = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def begin(self) -> None:
        """Wait for the next line. The first call prints the start-up time."""
        if not self._ready:
            print(time.time() - self._options.begin, file=self._output, flush=True)
        self._ready = True
        if not sys.stdin.readline():
            sys.exit("error: standard input was closed")
        self._start = time.perf_counter()

    def end(self) -> None:
        """Print the epoch's seconds and the peak GiB."""
        seconds = time.perf_counter() - self._start
        memory = benchmark_train.peak_memory(self._options)
        print(seconds, memory, file=self._output, flush=True)


def electra_tf(
    options: argparse.Namespace, examples: Examples, server: EpochServer
) -> None:
    """Train with `fit`."""
    import keras

    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.tasks.classifier import TextClassifier
    from electra_tf.tasks.examples import EncodedExamples
    from electra_tf.tasks.pretrained import PretrainedEncoder
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.vocab import Vocabulary

    settings = load_config(
        root=FinetuningConfig,
        overrides={
            "data.max_length": options.length,
            "optimizer.name": "adamw",
            "optimizer.layer_decay": 1.0,
            "training.batch_size": options.batch_size,
            "training.precision": options.precision,
        },
    )
    tokenizer = Tokenizer(Vocabulary.read(options.vocab))
    pretrained = PretrainedEncoder(examples.shape, tokenizer, None, "random weights")
    labels = [str(number) for number in range(examples.num_classes)]
    model = TextClassifier(pretrained, labels, settings)
    encoded = EncodedExamples(
        examples.ids, examples.segments, options.length, examples.targets
    )
    callback = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: server.begin(),
        on_epoch_end=lambda epoch, logs: server.end(),
    )
    model.fit(encoded, epochs=examples.epochs, callbacks=[callback], verbose=0)


def serve(options: argparse.Namespace) -> None:
    """Run a peer."""
    server, examples = EpochServer(options), Examples(options)
    train: Callable[..., None] = electra_tf
    if options.peer in TORCH:
        from benchmark_trainer import train
    train(options, examples, server)


def report(
    peers: list[benchmark_train.Peer],
    first: dict[str, float],
    results: dict[str, list[float]],
    options: argparse.Namespace,
) -> None:
    """Print the table, and our time relative to the fastest of the others."""
    examples, median = Examples(options), common.statistics.median
    tokens = int(examples.lengths.sum())
    print(
        f"\n{options.config}, {options.task}: {len(examples.lengths):,} examples of "
        f"{examples.lengths.mean():.1f} tokens (maximum {examples.lengths.max()}), "
        f"batches of {options.batch_size}, {options.precision}, "
        f"{options.threads} threads, medians of {options.rounds} epochs after the "
        "first\n"
        f"{'':16}{'s/epoch':>9}{'min':>9}{'max':>9}{'tokens/s':>11}{'time/ours':>11}"
        f"{'first, s':>10}{'more':>9}{'GiB':>6}{'start s':>9}"
    )
    for peer in peers:
        times = [value / 1e3 for value in results[peer.name]]
        middle, start = median(times), first[peer.name] / 1e3
        pairs = zip(results[peer.name], results[OURS], strict=True)
        print(
            f"{peer.name:16}{middle:9.2f}{min(times):9.2f}{max(times):9.2f}"
            f"{tokens / middle:11,.0f}{median(a / b for a, b in pairs):11.2f}"
            f"{start:10.2f}{start - middle:9.2f}{peer.memory:6.2f}{peer.start:9.1f}"
        )
    others = [peer.name for peer in peers if peer.name != OURS]
    if others:
        best = min(others, key=lambda name: median(results[name]))
        pairs = zip(results[OURS], results[best], strict=True)
        ratios = [ours / other for ours, other in pairs]
        print(
            f"{OURS} takes {median(ratios):.2f} of the time of {best}, the fastest "
            f"of the others ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("ELECTRA_TF_DATA")
    parser.add_argument("--config", default=str(common.ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="--set of pretrain")
    parser.add_argument("--task", default="mrpc", help="classification task of GLUE")
    parser.add_argument(
        "--data", default=data and f"{data}/glue", help="folder of GLUE"
    )
    parser.add_argument("--vocab", default=data and f"{data}/vocab/bert_uncased_en.txt")
    parser.add_argument(
        "--examples", type=int, default=0, help="number of examples; 0: all"
    )
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128, help="maximum length")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5, help="epochs after the first")
    parser.add_argument(
        "--peers", default=",".join((OURS, *TORCH)), help="peers to run"
    )
    parser.add_argument("--torch_python", default=sys.executable)
    parser.add_argument(
        "--precision", default="float32", choices=["float32", "mixed_bfloat16"]
    )
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.set_defaults(device="cpu", steps=1)
    options = parser.parse_args()
    if not options.data or not options.vocab:
        sys.exit("error: pass --data=GLUE and --vocab=FILE (ELECTRA_TF_DATA is unset)")
    common.check_peers(
        options, [OURS], [OURS, *TORCH], "torch, transformers, accelerate"
    )
    return options


def main() -> None:
    options = parse()
    if options.peer:
        serve(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.work = f"{folder}/examples.npz"
        make_examples(options, pathlib.Path(options.work))
        sys.argv.append(f"--work={options.work}")  # peers get the same arguments
        peers = [
            benchmark_train.Peer(name, options) for name in options.peers.split(",")
        ]
        epoch = {peer.name: peer.milliseconds for peer in peers}
        print("milliseconds of the first epoch, then of the other epochs:", flush=True)
        first = common.interleaved(1, epoch)
        results = common.interleaved(options.rounds, epoch)
        for peer in peers:
            peer.end()
        first = {name: values[0] for name, values in first.items()}
        report(peers, first, results, options)


if __name__ == "__main__":
    main()
