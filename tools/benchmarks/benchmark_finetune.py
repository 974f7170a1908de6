"""Compare fine-tuning with Hugging Face's Trainer on the same examples.

All peers begin with random weights of one shape and are trained on MRPC with one call:
`fit`, or `Trainer.train` with ElectraForSequenceClassification. The training file is
tokenised before. Batch size, maximum length, dropout, clipping, AdamW and the linear
schedule are equal.

  electra_tf       fit(), batches of similar lengths
  torch            the Trainer's default batches, padded to the longest of each
  torch.grouped    its batches of similar lengths (group_by_length)

The first epoch, which traces and compiles, is listed separately. PyTorch needs the
extra `interop-test`.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
import types

import peers
from peers import OURS, TORCH

PEERS = (OURS, TORCH, "torch.grouped")


def make_examples(options: argparse.Namespace) -> None:
    """Tokenise the training file for all peers, which may lack TensorFlow."""
    from electra_tf.config.finetuning import DataConfig
    from electra_tf.tasks.classifier import encode_texts
    from electra_tf.tasks.datasets import read_task
    from electra_tf.text.data_errors import DataErrorLog
    from electra_tf.text.tokenizer_files import Tokenizer

    log = DataErrorLog("stop", os.devnull)
    task = read_task("mrpc", options.data, DataConfig(), log)
    labels, split = task.scorer.labels, task.splits["train"]
    part = split.subset(range(options.examples or len(split)))
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
    """Starts an epoch for each question of the benchmark, and answers with its time."""

    def __init__(self, channel: peers.Channel):
        self._channel, self._questions = channel, channel.questions()
        self._start: float | None = None

    def begin(self) -> None:
        """Wait for the next question; before the first, report that all is ready."""
        if self._start is None:
            self._channel.answer()
        next(self._questions)
        self._start = time.perf_counter()

    def end(self) -> None:
        """Answer with the epoch's milliseconds."""
        self._channel.answer(1e3 * (time.perf_counter() - self._start))


def serve(channel: peers.Channel, options: argparse.Namespace) -> None:
    train = electra_tf
    if channel.peer != OURS:
        from torch_models import train
    options.grouped = channel.peer != TORCH
    train(options, read_examples(options), Epochs(channel))


def electra_tf(
    options: argparse.Namespace, examples: types.SimpleNamespace, epochs: Epochs
) -> None:
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
    lengths = list(map(len, read_examples(options).ids))
    print(
        f"\n{options.config}, MRPC: {len(lengths):,} examples of "
        f"{sum(lengths) / len(lengths):.1f} tokens (maximum {max(lengths)}), "
        f"batches of {options.batch_size}, {options.threads} threads, medians of "
        f"{options.rounds} epochs after the first"
    )
    columns = {"first epoch": lambda peer: f"{first[peer.name][0]:,.1f}"}
    peers.report_peers(found, results, sum(lengths), columns)


def parse() -> argparse.Namespace:
    parser = peers.parser(__doc__, PEERS)
    add = parser.add_argument
    add("--data", default=peers.standard_file("glue"), help="folder of GLUE")
    add("--vocab", default=peers.standard_file(peers.VOCAB))
    add("--examples", type=int, default=0, help="number of examples; 0: all")
    add("--batch_size", type=int, default=32)
    add("--length", type=int, default=128, help="maximum length")
    options = parser.parse_args()
    if not options.data or not options.vocab:
        sys.exit("error: pass --data=GLUE and --vocab=FILE (ELECTRA_TF_DATA is unset)")
    return options


def main() -> None:
    options = parse()
    names = peers.names(options, PEERS, [OURS])
    with tempfile.TemporaryDirectory() as folder:
        options.work = f"{folder}/examples.json"
        make_examples(options)
        found = [peers.Peer(name, serve, options) for name in names]
        epoch = {p.name: lambda p=p: p.ask("epoch") for p in found}
        print("milliseconds of the first epoch, then of the other epochs:", flush=True)
        first = peers.interleaved(1, epoch)
        results = peers.interleaved(options.rounds, epoch)
        for peer in found:
            peer.end()
        report(found, first, results, options)


if __name__ == "__main__":
    main()
