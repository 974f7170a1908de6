"""Fine-tuning beside Hugging Face's Trainer, on the same examples.

All sides begin with random weights of one shape and learn a GLUE task's classes, each
in a single call of its own interface: our `fit`, and `Trainer.train` with
ElectraForSequenceClassification. The training file is tokenised once before; batch,
longest input, dropout, clipping, AdamW and the linear schedule are the same.

  electra_tf       our fit(), batches of like length
  torch            the Trainer's usual batches, padded to the longest of each
  torch.grouped    its batches of like length (group_by_length)
  torch.compile    the same, compiled (torch_compile)

Each is a process of its own, held to the same cores; an epoch of one follows an epoch
of the other, and while one runs the others wait. The first epoch of each, with its
tracing and compiling, is told apart. --torch_python names an interpreter that has
torch, transformers and accelerate where this one has not (extra `interop-test`).
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
    """Tokenises the training file for all peers, which need not have TensorFlow."""
    import numpy as np

    from electra_tf.tasks.classification.preprocessing import encode_texts
    from electra_tf.tasks.classification.task import glue_task
    from electra_tf.text.data_errors import DataErrorLog
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.vocab import Vocabulary

    task = glue_task(options.task, options.data, DataErrorLog("stop", os.devnull))
    if task.labels is None:
        sys.exit(f"error: --task has classes; {options.task} has scores")
    part, count = task.splits["train"], options.examples
    if count and count > len(part):
        sys.exit(f"error: --examples is {len(part)} or less; {count} were asked for")
    targets = [task.labels.index(label) for label in part.targets][: count or None]
    tokenizer = Tokenizer(Vocabulary.read(options.vocab))
    items = part.items[: count or None]
    found = encode_texts(tokenizer, items, options.length, targets)
    np.savez(
        path,
        ids=np.concatenate(found.ids),
        segments=np.concatenate(found.segments),
        lengths=found.lengths,
        targets=found.targets,
        classes=len(task.labels),
        entries=len(tokenizer.vocabulary),
    )


class Work:
    """What all peers do: the examples, and the shape of the encoder."""

    def __init__(self, options: argparse.Namespace):
        import numpy as np

        from electra_tf.config.loader import load_config

        with np.load(options.work) as file:
            self.lengths = file["lengths"]
            ends = np.cumsum(self.lengths)[:-1]
            self.ids, self.segments = (
                [part.tolist() for part in np.split(file[name], ends)]
                for name in ("ids", "segments")
            )
            self.targets = file["targets"].tolist()
            self.classes, entries = int(file["classes"]), int(file["entries"])
        sets = [f"model.vocabulary_size={entries}", *options.set]
        self.shape = load_config(options.config, sets).model.encoder
        self.epochs = options.rounds + 1


class Turns:
    """Lets an epoch go for each line that comes in, and answers with its seconds."""

    def __init__(self, options: argparse.Namespace):
        self._options, self._ready, self._start = options, False, 0.0
        # What libraries print is not for the one who asks.
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def begin(self) -> None:
        """Waits for the next line; the first time says that all is ready."""
        if not self._ready:
            print(time.time() - self._options.begin, file=self._answers, flush=True)
        self._ready = True
        if not sys.stdin.readline():
            sys.exit("error: nobody asks any more")
        self._start = time.perf_counter()

    def end(self) -> None:
        """Answers with the epoch's seconds and the GiB held so far."""
        seconds = time.perf_counter() - self._start
        held = benchmark_train.memory(self._options)
        print(seconds, held, file=self._answers, flush=True)


def electra_tf(options: argparse.Namespace, work: Work, turns: Turns) -> None:
    """Ours."""
    import keras

    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.tasks.batching import EncodedExamples
    from electra_tf.tasks.classification.model import TextClassifier
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
    start = PretrainedEncoder(work.shape, tokenizer, None, "random weights")
    labels = [str(number) for number in range(work.classes)]
    model = TextClassifier(start, labels, settings)
    examples = EncodedExamples(work.ids, work.segments, options.length, work.targets)
    each = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: turns.begin(),
        on_epoch_end=lambda epoch, logs: turns.end(),
    )
    model.fit(examples, epochs=work.epochs, callbacks=[each], verbose=0)


def serve(options: argparse.Namespace) -> None:
    """A peer's process."""
    turns, work = Turns(options), Work(options)
    train: Callable[..., None] = electra_tf
    if options.peer in TORCH:
        from benchmark_trainer import train
    train(options, work, turns)


def report(
    peers: list[benchmark_train.Peer],
    first: dict[str, float],
    results: dict[str, list[float]],
    options: argparse.Namespace,
) -> None:
    """Prints the table, and ours beside the fastest of the others."""
    work, median = Work(options), common.statistics.median
    tokens = int(work.lengths.sum())
    print(
        f"\n{options.config}, {options.task}: {len(work.lengths):,} examples of "
        f"{work.lengths.mean():.1f} tokens (the longest {work.lengths.max()}), batches "
        f"of {options.batch_size}, {options.precision}, {options.threads} threads, "
        f"medians of {options.rounds} epochs after the first\n"
        f"{'':16}{'s/epoch':>9}{'min':>9}{'max':>9}{'tokens/s':>11}{'time/ours':>11}"
        f"{'first, s':>10}{'more':>9}{'GiB':>6}{'start s':>9}"
    )
    for peer in peers:
        own = [value / 1e3 for value in results[peer.name]]
        middle, begun = median(own), first[peer.name] / 1e3
        pairs = zip(results[peer.name], results[OURS], strict=True)
        print(
            f"{peer.name:16}{middle:9.2f}{min(own):9.2f}{max(own):9.2f}"
            f"{tokens / middle:11,.0f}{median(a / b for a, b in pairs):11.2f}"
            f"{begun:10.2f}{begun - middle:9.2f}{peer.memory:6.2f}{peer.start:9.1f}"
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
    """The options; what they name is checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("ELECTRA_TF_DATA")
    parser.add_argument("--config", default=str(common.ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="as for pretrain")
    parser.add_argument("--task", default="mrpc", help="one of GLUE's with classes")
    parser.add_argument("--data", default=data and f"{data}/glue", help="GLUE's folder")
    parser.add_argument("--vocab", default=data and f"{data}/vocab/bert_uncased_en.txt")
    parser.add_argument("--examples", type=int, default=0, help="the first; 0: all")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128, help="the longest input")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5, help="epochs after the first")
    parser.add_argument("--peers", default=",".join((OURS, *TORCH)), help="some of it")
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
        sys.exit("error: name --data=GLUE and --vocab=FILE (ELECTRA_TF_DATA is unset)")
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
        sys.argv.append(f"--work={options.work}")  # peers are started with the same
        peers = [
            benchmark_train.Peer(name, options) for name in options.peers.split(",")
        ]
        epoch = {peer.name: peer.milliseconds for peer in peers}
        print("milliseconds of the first epoch, then of the others:", flush=True)
        first = common.interleaved(1, epoch)
        results = common.interleaved(options.rounds, epoch)
        for peer in peers:
            peer.end()
        begun = {name: values[0] for name, values in first.items()}
        report(peers, begun, results, options)


if __name__ == "__main__":
    main()
