"""Compare fine-tuning with Hugging Face's Trainer on the same examples.

All peers begin with random weights of one shape and are trained on a classification
task of GLUE with one call: `fit`, or `Trainer.train` with
ElectraForSequenceClassification. The training file is tokenised before. Batch size,
maximum length, dropout, clipping, AdamW and the linear schedule are equal.

  electra_tf       fit(), batches of similar lengths
  torch            the Trainer's default batches, padded to the longest of each
  torch.grouped    its batches of similar lengths (group_by_length)
  torch.compile    the same, compiled (torch_compile)

The first epoch, which traces and compiles, is listed separately. --torch_python is an
interpreter with torch, transformers and accelerate, if this one does not have them
(extra `interop-test`).
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
import types

import peers
from peers import COMPILED, OURS, TORCH

PEERS = (OURS, TORCH, "torch.grouped", COMPILED)


def make_examples(options: argparse.Namespace) -> None:
    """Tokenise the training file for all peers, which may lack TensorFlow."""
    from electra_tf.config.finetuning import DataConfig
    from electra_tf.tasks.classifier import encode_texts
    from electra_tf.tasks.datasets import read_task
    from electra_tf.text.data_errors import DataErrorLog
    from electra_tf.text.tokenizer_files import Tokenizer

    log = DataErrorLog("stop", os.devnull)
    task = read_task(options.task, options.data, DataConfig(), log)
    if (labels := task.scorer.labels) is None:
        sys.exit(f"error: --task must have classes. Received: {options.task}")
    split, count = task.splits["train"], options.examples
    if count > len(split):
        sys.exit(f"error: --examples must be at most {len(split)}. Received: {count}")
    part = split.subset(range(count or len(split)))
    tokenizer = Tokenizer.read(options.vocab)
    targets = [labels.index(label) for label in part.targets]
    encoded = encode_texts(tokenizer, part.items, options.length, targets)
    examples = {
        "ids": [list(map(int, ids)) for ids in encoded.ids],
        "segments": [list(map(int, ids)) for ids in encoded.segments],
        "targets": targets,
        "num_classes": len(labels),
        "vocabulary_size": len(tokenizer.vocabulary),
    }
    pathlib.Path(options.work).write_text(json.dumps(examples))


def read_examples(options: argparse.Namespace) -> types.SimpleNamespace:
    """Return the examples and the shape of the encoder, equal for all peers."""
    from electra_tf.config.loader import load_config

    read = types.SimpleNamespace(**json.loads(pathlib.Path(options.work).read_text()))
    sets = [f"model.vocabulary_size={read.vocabulary_size}", *options.set]
    read.shape = load_config(options.config, sets).model.encoder
    read.epochs = options.rounds + 1
    return read


class Epochs:
    """Starts an epoch for each line of the benchmark, and answers with its time."""

    def __init__(self, options: argparse.Namespace):
        self._channel = peers.Channel(options)
        self._lines, self._start = self._channel.lines(), None

    def begin(self) -> None:
        """Wait for the next line; the first call answers with the start-up time."""
        if self._start is None:
            self._channel.ready()
        next(self._lines)
        self._start = time.perf_counter()

    def end(self) -> None:
        """Answer with the epoch's milliseconds."""
        self._channel.answer(1e3 * (time.perf_counter() - self._start))


def electra_tf(
    options: argparse.Namespace, examples: types.SimpleNamespace, epochs: Epochs
) -> None:
    """Train with `fit`."""
    import keras

    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.sources import PretrainedEncoder
    from electra_tf.tasks.classifier import TextClassifier
    from electra_tf.tasks.examples import EncodedExamples
    from electra_tf.text.tokenizer_files import Tokenizer

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
    tokenizer = Tokenizer.read(options.vocab)
    pretrained = PretrainedEncoder(examples.shape, tokenizer, None, "random weights")
    labels = [str(number) for number in range(examples.num_classes)]
    model = TextClassifier(pretrained, labels, settings)
    encoded = EncodedExamples(
        examples.ids, examples.segments, options.length, examples.targets
    )
    callback = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: epochs.begin(),
        on_epoch_end=lambda epoch, logs: epochs.end(),
    )
    model.fit(encoded, epochs=examples.epochs, callbacks=[callback], verbose=0)


def report(found: list[peers.Peer], first: dict, results: dict, options) -> None:
    """Print the table."""
    examples, median = read_examples(options), statistics.median
    lengths = list(map(len, examples.ids))
    tokens = sum(lengths)
    print(
        f"\n{options.config}, {options.task}: {len(lengths):,} examples of "
        f"{tokens / len(lengths):.1f} tokens (maximum {max(lengths)}), "
        f"batches of {options.batch_size}, {options.precision}, "
        f"{options.threads} threads, medians of {options.rounds} epochs after the "
        "first\n"
        f"{'':16}{'s/epoch':>9}{'min':>9}{'max':>9}{'tokens/s':>11}{'time/ours':>11}"
        f"{'first, s':>10}{'GiB':>6}{'start s':>9}"
    )
    for peer in found:
        times = [value / 1e3 for value in results[peer.name]]
        print(
            f"{peer.name:16}{median(times):9.2f}{min(times):9.2f}{max(times):9.2f}"
            f"{tokens / median(times):11,.0f}"
            f"{peers.ratio(results[peer.name], results[OURS]):11.2f}"
            f"{first[peer.name][0] / 1e3:10.2f}{peer.memory:6.2f}{peer.start:9.1f}"
        )


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = peers.parser(__doc__, PEERS, packages="torch, transformers, accelerate")
    data = os.environ.get("ELECTRA_TF_DATA")
    add = parser.add_argument
    add("--task", default="mrpc", help="classification task of GLUE")
    add("--data", default=data and f"{data}/glue", help="folder of GLUE")
    add("--vocab", default=data and f"{data}/vocab/bert_uncased_en.txt")
    add("--examples", type=int, default=0, help="number of examples; 0: all")
    add("--batch_size", type=int, default=32)
    add("--length", type=int, default=128, help="maximum length")
    add("--precision", default="float32", choices=["float32", "mixed_bfloat16"])
    options = parser.parse_args()
    if not options.data or not options.vocab:
        sys.exit("error: pass --data=GLUE and --vocab=FILE (ELECTRA_TF_DATA is unset)")
    return options


def main() -> None:
    """Train all peers epoch by epoch, and print the table."""
    options = parse()
    if options.peer:
        train = electra_tf
        if options.peer != OURS:
            from torch_models import train
        epochs, examples = Epochs(options), read_examples(options)
        train(options, examples, epochs)
        return
    names = peers.names(options, [OURS])
    with tempfile.TemporaryDirectory() as folder:
        options.work = f"{folder}/examples.json"
        make_examples(options)
        found = [peers.Peer(name, options) for name in names]
        epoch = {p.name: lambda p=p: p.ask("epoch")[0] for p in found}
        print("milliseconds of the first epoch, then of the other epochs:", flush=True)
        first = peers.interleaved(1, epoch)
        results = peers.interleaved(options.rounds, epoch)
        for peer in found:
            peer.end()
        report(found, first, results, options)


if __name__ == "__main__":
    main()
