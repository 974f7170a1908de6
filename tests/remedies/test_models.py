"""Remedies of errors about checkpoints and models of other libraries."""

import os
import shutil

import numpy as np
import safetensors.numpy
import tiny

from electra_tf.interop.task_heads import HeadOptions
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.training.checkpoint import open_checkpoint
from remedies.bench import (
    DISCRIMINATOR,
    GENERATOR,
    INTEROP,
    RECORDS,
    RUN,
    SAVED,
    STEP,
    VOCAB,
    remedy_test,
    saved_model,
)

TABLE = "electra.embeddings.word_embeddings.weight"


def _convert(b, *calls):
    """Return calls that convert (source, options) to a new folder each."""
    return [
        lambda source=source, options=options, number=number: convert_checkpoint(
            str(source), b.path(f"target{number}"), **options
        )
        for number, (source, options) in enumerate(calls)
    ]


def _folder(b, name, config=None, tensors=None, source=DISCRIMINATOR):
    """Copy a Hugging Face model, with other keys of its config and other tensors."""
    folder = b.copy(source, name)
    b.edit(folder / "config.json", **config or {})
    if tensors is not None:
        path = folder / "model.safetensors"
        stored = safetensors.numpy.load_file(path)
        stored |= tensors(stored) if callable(tensors) else tensors
        safetensors.numpy.save_file(stored, path)
    return folder


def _without(b, name, file, source=DISCRIMINATOR):
    folder = b.copy(source, name)
    (folder / file).unlink()
    return folder


def _restored(b, name, file, path=""):
    """Return calls that read a model without one of its files, and with it."""
    folder = b.copy(INTEROP / name, name)
    (folder / file).unlink()
    return [
        lambda: tiny.networks(str(folder / path)),
        lambda: (
            shutil.copy(INTEROP / name / file, folder / file),
            tiny.networks(str(folder / path)),
        ),
    ]


def _config(bad, good):
    def case(b):
        folders = [_folder(b, n, c) for n, c in (("bad", bad), ("good", good))]
        return [lambda folder=folder: tiny.networks(str(folder)) for folder in folders]

    return case


def _tagger(b, name, labels=None):
    """Write a Hugging Face tagger of two tags; without `labels`, no vocabulary."""
    tensors = {
        "classifier.weight": np.ones((2, 36), np.float32),
        "classifier.bias": np.zeros(2, np.float32),
    }
    config = {"id2label": labels, "architectures": ["ElectraForTokenClassification"]}
    folder = _folder(b, name, config)
    path = folder / "model.safetensors"
    stored = safetensors.numpy.load_file(path)
    tensors |= {n: t for n, t in stored.items() if n.startswith("electra.")}
    safetensors.numpy.save_file(tensors, path)
    if labels is None:
        (folder / "vocab.txt").unlink()
    return folder


def _tags():
    return tuple(saved_model("tagger").tags)


def _original_tagger(b):
    """Write a tagger as the original does, without the names of its tags."""
    folder = b.path("original")
    options = HeadOptions(task="chunk")
    convert_checkpoint(str(SAVED / "tagger"), folder, "tf1", head=options)
    (folder / "electra_tf.json").unlink()
    return folder


WEIGHTS = {
    "no vocabulary": lambda b: [
        *_convert(b, (_without(b, "a", "vocab.txt"), {})),
        lambda: (
            shutil.copy(DISCRIMINATOR / "vocab.txt", b.path("a")),
            tiny.encoder(str(b.path("a"))),
        ),
        *_named_result(b, _without(b, "c", "vocab.txt"), vocab=DISCRIMINATOR),
    ],
    "no vocabulary of a fine-tuned model": lambda b: [
        lambda: tiny.load(str(_tagger(b, "a"))),
        lambda: (
            shutil.copy(DISCRIMINATOR / "vocab.txt", b.path("a")),
            tiny.load(str(b.path("a"))),
        ),
        *_finished_result(b, _tagger(b, "c"), vocab=str(DISCRIMINATOR / "vocab.txt")),
    ],
    "repeated labels": lambda b: [
        lambda: tiny.load(str(_tagger(b, "a", {"0": "A", "1": "A"}))),
        *_finished_result(b, b.path("a"), head=HeadOptions(labels=("A", "B"))),
    ],
    "a TensorFlow 1 tagger without labels": lambda b: [
        lambda: tiny.load(str(_original_tagger(b))),
        *_finished_result(b, b.path("original"), head=HeadOptions(labels=_tags())),
    ],
    "a task that a TensorFlow 1 model lacks": lambda b: _convert(
        b,
        (_original_tagger(b), {"head": HeadOptions("cola", None, _tags())}),
        (b.path("original"), {"head": HeadOptions(None, None, _tags())}),
        (b.path("original"), {"head": HeadOptions("chunk", None, _tags())}),
    ),
    "a KerasHub preset without weights": lambda b: _restored(
        b, "keras_hub", "model.weights.h5"
    ),
    "a KerasHub preset without a vocabulary": lambda b: _restored(
        b, "keras_hub", os.path.join("assets", "tokenizer", "vocabulary.txt")
    ),
    "a KerasHub preset without settings": lambda b: _restored(
        b, "keras_hub", "tokenizer.json"
    ),
    "a checkpoint without its index": lambda b: _restored(
        b, "model_garden", "encoder.ckpt-1.index", "encoder.ckpt-1"
    ),
    "a checkpoint without its data": lambda b: _restored(
        b, "model_garden", "encoder.ckpt-1.data-00000-of-00001", "encoder.ckpt-1"
    ),
    "damaged settings of a TensorFlow 1 model": lambda b: [
        lambda: (
            convert_checkpoint(RUN, b.path("original"), "tf1"),
            b.file("original/electra_tf.json", {"tokenization": {"lower_case": 3}}),
            tiny.networks(str(b.path("original"))),
        ),
        lambda: (
            b.path("original/electra_tf.json").unlink(),
            tiny.networks(str(b.path("original"))),
        ),
    ],
    "another activation": _config(
        {"hidden_act": "relu"}, {"hidden_act": "gelu_pytorch_tanh"}
    ),
    "an output layer that is not tied": lambda b: [
        lambda number=number: tiny.networks(
            str(
                _folder(
                    b,
                    f"model{number}",
                    tensors=lambda t: {"generator_lm_head.weight": t[TABLE] + number},
                    source=GENERATOR,
                )
            )
        )
        for number in (1, 0)
    ],
    "two halves of one kind": lambda b: _convert(
        b,
        (f"{GENERATOR},{GENERATOR}", {}),
        (f"{DISCRIMINATOR},{GENERATOR}", {}),
    ),
    "halves of other vocabularies": lambda b: [
        *_convert(b, (f"{DISCRIMINATOR},{_other_vocabulary(b)}", {})),
        *_named_result(
            b, f"{DISCRIMINATOR},{b.path('other')}", vocab=DISCRIMINATOR / "vocab.txt"
        ),
    ],
    "halves of other tables": lambda b: [
        *_convert(b, (f"{DISCRIMINATOR},{_other_table(b)}", {})),
        *_named_result(b, f"{DISCRIMINATOR},{b.path('other')}", sharing="none"),
    ],
    "a part that is not there": lambda b: _convert(
        b,
        (GENERATOR, {"part": "discriminator"}),
        (GENERATOR, {"part": "generator"}),
        (GENERATOR, {}),
    ),
    "a target that exists": lambda b: [
        lambda: convert_checkpoint(str(RUN), b.file("a/b", "").parent),
        lambda: convert_checkpoint(str(RUN), b.path("c")),
        lambda: (shutil.rmtree(b.path("a")), convert_checkpoint(RUN, b.path("a"))),
    ],
    "a vocabulary beside another": lambda b: _convert(
        b, (RUN, {"vocab": str(VOCAB)}), (RUN, {})
    ),
    "a setting that the target lacks": lambda b: _convert(
        b,
        (DISCRIMINATOR, {"format": "keras_hub"}),
        (DISCRIMINATOR, {"format": "keras_hub", "force": True}),
    ),
    "a head that the target lacks": lambda b: _convert(
        b,
        (SAVED / "classifier", {"format": "huggingface"}),
        (SAVED / "classifier", {"format": "huggingface", "drop_head": True}),
        (SAVED / "classifier", {"format": "tf1"}),
    ),
    "a KerasHub preset of another model": lambda b: [
        lambda name=name: (
            b.edit(_hub(b) / "config.json", registered_name=name),
            tiny.networks(str(_hub(b))),
        )
        for name in ("keras_hub>BertBackbone", "keras_hub>ElectraBackbone")
    ],
    "records as a checkpoint": lambda b: (
        lambda: open_checkpoint(str(RECORDS)),
        lambda: open_checkpoint(str(RUN)),
        lambda: open_checkpoint(str(STEP)),
    ),
}


def _named_result(b, source, **options):
    """Return calls that convert and then name the result as a checkpoint."""
    options = {name: str(value) for name, value in options.items()}
    target = str(b.path("result"))
    return [
        lambda: (
            convert_checkpoint(source, target, **options),
            open_checkpoint(target),
        )
    ]


def _hub(b):
    folder = b.path("hub")
    return folder if folder.exists() else b.copy(INTEROP / "keras_hub", "hub")


def _other_vocabulary(b):
    folder = b.copy(GENERATOR, "other")
    lines = (folder / "vocab.txt").read_text().splitlines()
    b.file("other/vocab.txt", "\n".join([*lines[:-1], "other"]) + "\n")
    return folder


def _other_table(b):
    return _folder(b, "other", {}, lambda t: {TABLE: t[TABLE] + 1}, GENERATOR)


def _finished_result(b, source, **options):
    """Return calls that convert a fine-tuned model and load the result."""
    return [
        lambda: (
            convert_checkpoint(str(source), b.path("result"), **options),
            tiny.load(str(b.path("result"))),
        )
    ]


test_a_remedy_works = remedy_test(weights=WEIGHTS)
