"""Remedies of errors about checkpoints and models of other libraries."""

import json
import shutil

import numpy as np
import tiny

from electra_tf.interop.task_heads import HeadOptions
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.training.checkpoint import open_checkpoint
from remedies.bench import (
    DISCRIMINATOR,
    GENERATOR,
    INTEROP,
    PAIR,
    RUN,
    VOCAB,
    remedy_test,
    write,
)

ENTRIES = DISCRIMINATOR / "vocab.txt"
OUTPUT, TABLE = (
    "generator_lm_head.weight",
    "electra.embeddings.word_embeddings.weight",
)


def convert(source, path, **options):
    """Convert to a new folder, and return it."""
    target = path / f"target{len(list(path.iterdir()))}"
    convert_checkpoint(str(source), target, **options)
    return str(target)


def converting(source, *options):
    return [lambda path, one=one: convert(source, path, **one) for one in options]


def without(folder, file, source=DISCRIMINATOR):
    """Copy a model without one of its files."""
    if not folder.exists():
        shutil.copytree(source, folder)
        (folder / file).unlink()
    return folder


def restoring(name, file, model=""):
    """Return calls that read a model without one of its files, and with it."""

    def restore(path):
        shutil.copy(INTEROP / name / file, path / name / file)
        tiny.networks(str(path / name / model))

    def read(path):
        tiny.networks(str(without(path / name, file, INTEROP / name) / model))

    return read, restore


def of_config(change, *values):
    """Return calls that read a golden model after a change with each value."""

    def read(path, value):
        folder = path / str(value)
        change(folder, value)
        tiny.networks(str(folder))

    return [lambda path, value=value: read(path, value) for value in values]


def tagger(path, labels=None):
    """Write a Hugging Face tagger of two tags; without `labels`, no vocabulary."""
    head = {
        "classifier.weight": np.ones((2, 36), np.float32),
        "classifier.bias": np.zeros(2, np.float32),
    }
    folder = path / "tagger"
    if not folder.exists():
        tiny.huggingface(
            folder,
            lambda t: head | {n: a for n, a in t.items() if n.startswith("electra.")},
            id2label=labels,
            architectures=["ElectraForTokenClassification"],
        )
        if labels is None:
            (folder / "vocab.txt").unlink()
    return str(folder)


def add_entries(folder):
    shutil.copy(ENTRIES, folder)
    return str(folder)


def other_vocabulary(path):
    folder = path / "other"
    if not folder.exists():
        shutil.copytree(GENERATOR, folder)
        *entries, _ = ENTRIES.read_text().splitlines()
        write(folder / "vocab.txt", "\n".join([*entries, "other", ""]))
    return f"{DISCRIMINATOR},{folder}"


def other_table(path):
    folder = path / "other"
    if not folder.exists():
        tiny.huggingface(folder, lambda t: t | {TABLE: t[TABLE] + 1}, "generator")
    return f"{DISCRIMINATOR},{folder}"


def of_class(folder, name):
    shutil.copytree(INTEROP / "keras_hub", folder)
    config = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", config | {"registered_name": name})


def damaged_settings(path):
    convert_checkpoint(RUN, path / "tf1", "tf1")
    settings = {"tokenization": {"lower_case": 3}}
    write(path / "tf1" / "electra_tf.json", settings)
    tiny.networks(str(path / "tf1"))


def without_settings(path):
    (path / "tf1" / "electra_tf.json").unlink()
    tiny.networks(str(path / "tf1"))


WEIGHTS = {
    "no vocabulary": (
        lambda path: convert(without(path / "a", "vocab.txt"), path),
        lambda path: open_checkpoint(convert(path / "a", path, vocab=str(ENTRIES))),
        lambda path: tiny.encoder(add_entries(path / "a")),
    ),
    "no vocabulary of a fine-tuned model": (
        lambda path: tiny.load(tagger(path)),
        lambda path: tiny.load(convert(tagger(path), path, vocab=str(ENTRIES))),
        lambda path: tiny.load(add_entries(path / "tagger")),
    ),
    "repeated labels": (
        lambda path: tiny.load(tagger(path, {"0": "A", "1": "A"})),
        lambda path: tiny.load(
            convert(tagger(path), path, head=HeadOptions(labels=("A", "B")))
        ),
    ),
    "a KerasHub preset without weights": restoring("keras_hub", "model.weights.h5"),
    "a KerasHub preset without a vocabulary": restoring(
        "keras_hub", "assets/tokenizer/vocabulary.txt"
    ),
    "a KerasHub preset without settings": restoring("keras_hub", "tokenizer.json"),
    "a checkpoint without its index": restoring(
        "model_garden", "encoder.ckpt-1.index", "encoder.ckpt-1"
    ),
    "damaged settings of a TensorFlow 1 model": (damaged_settings, without_settings),
    "another activation": of_config(
        lambda folder, name: tiny.huggingface(folder, hidden_act=name),
        *("relu", "gelu_pytorch_tanh"),
    ),
    "a network of another library's family": of_config(
        lambda folder, name: tiny.huggingface(folder, model_type=name),
        *("mpnet", "bert"),
    ),
    "a decoder": of_config(
        lambda folder, value: tiny.huggingface(folder, is_decoder=value),
        *(True, None),
    ),
    "an output layer that is not tied": of_config(
        lambda folder, shift: tiny.huggingface(
            folder, lambda t: t | {OUTPUT: t[TABLE] + shift}, "generator"
        ),
        *(1, 0),
    ),
    "a KerasHub preset of another model": of_config(
        of_class, *("keras_hub>BertBackbone", "keras_hub>ElectraBackbone")
    ),
    "two halves of one kind": (
        lambda path: convert(f"{GENERATOR},{GENERATOR}", path),
        lambda path: convert(PAIR, path),
    ),
    "halves of other vocabularies": (
        lambda path: convert(other_vocabulary(path), path),
        lambda path: open_checkpoint(
            convert(other_vocabulary(path), path, vocab=str(ENTRIES))
        ),
    ),
    "halves of other tables": (
        lambda path: convert(other_table(path), path),
        lambda path: open_checkpoint(convert(other_table(path), path, sharing="none")),
    ),
    "a part that is not there": converting(
        GENERATOR, {"part": "discriminator"}, {"part": "generator"}, {}
    ),
    "a target that exists": (
        lambda path: convert_checkpoint(RUN, write(path / "a" / "b", "").parent),
        lambda path: convert_checkpoint(RUN, path / "c"),
    ),
    "a vocabulary beside another": converting(RUN, {"vocab": str(VOCAB)}, {}),
    "a setting that the target lacks": converting(
        DISCRIMINATOR,
        {"format": "keras_hub"},
        {"format": "keras_hub", "force": True},
    ),
}

test_a_remedy_works = remedy_test(WEIGHTS)
