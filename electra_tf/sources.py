"""Find what a path, a URL, a hub id or a name of a preset or config is, and read it.

Nothing else in the package asks what a model's path is: `open_source` returns a
`Source`, and every command and every `from_preset` goes by its kind.
"""

import contextlib
import dataclasses
import functools
import glob
import hashlib
import os
import posixpath
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from electra_tf.config import loader
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop import checkpoint, formats, keras_file
from electra_tf.interop.hub import is_hub_id, local_folder
from electra_tf.interop.huggingface import CONFIG
from electra_tf.interop.keras_hub import WEIGHTS as HUB_WEIGHTS
from electra_tf.interop.model import PretrainedModel
from electra_tf.interop.task_heads import MODEL, HeadOptions, TaskHead, renamed
from electra_tf.interop.tensor_files import SHARD, find_weights
from electra_tf.interop.tensor_files import WEIGHTS as LIBRARY_WEIGHTS
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.model.transformer import weights_of_zeros
from electra_tf.model_names import check_exists, is_config, no_model, split_pair
from electra_tf.preset_files import preset_folder
from electra_tf.storage.mirror import fetch, local_path
from electra_tf.storage.objects import ObjectFolder, ObjectInfo, is_url, split_url
from electra_tf.text import records
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import open_tokenizer
from electra_tf.text.warnings import entry_warnings
from electra_tf.training.checkpoint import (
    CHECKPOINT_FILES,
    CHECKPOINTS,
    MANIFEST,
    WEIGHTS,
    Checkpoint,
    assign,
    open_checkpoint,
    parse_manifest,
)

Kind = Literal["checkpoint", "fine_tuned", "other_library", "config"]
_NO_OPTIONS = HeadOptions()
_FILES = (*CHECKPOINT_FILES, *LIBRARY_WEIGHTS, CONFIG, HUB_WEIGHTS)
_STEP = re.compile(rf"(?:{CHECKPOINTS}/)?step_(\d+)/{MANIFEST}")


@dataclasses.dataclass(frozen=True)
class PretrainedEncoder:
    """Shape and tokenizer of an encoder, with its weights if it is pre-trained."""

    shape: EncoderConfig
    tokenizer: WordPieceTokenizer
    weights: Mapping[str, np.ndarray] | None  # by path below it; None: random ones
    source: str  # path or name of the source, for messages
    identity: str = ""  # checksum of the weights
    trained_length: int | None = None  # positions of its records; None: not known
    trained_positions: int | None = None  # of all its batches; None: not known
    format: str = "electra_tf"  # the library whose files the source has

    def untrained(self) -> "PretrainedEncoder":
        """Return the same shape and tokenizer without weights."""
        return dataclasses.replace(self, weights=None)

    def build_encoder(
        self,
        seed: int = 0,
        kind: type[TransformerEncoder] = TransformerEncoder,
        **arguments: Any,
    ) -> Any:
        """Create a built encoder with the weights, or with random ones of the seed.

        `arguments` are `name`, `dtype` and `trainable`, as `kind` takes them.
        """
        is_loaded = self.weights is not None
        with weights_of_zeros() if is_loaded else contextlib.nullcontext():
            encoder = kind(self.shape, seed, **arguments)
        encoder.build((None, None))  # the shape is in the summary
        self.load_into(encoder)
        return encoder

    def load_into(self, encoder: TransformerEncoder) -> None:
        """Assign the weights, if there are any."""
        if self.weights is not None:
            own = {path_below_encoder(v.path, encoder.name): v for v in encoder.weights}
            assign(own, self.weights, self.source)


@dataclasses.dataclass(frozen=True)
class Source:
    """A model that was found; its files are read when a part is used."""

    kind: Kind
    path: str  # local path, hub id or config; of a pair DISCRIMINATOR,GENERATOR
    formats: tuple[str, ...] = ()  # format of each network's files
    vocabulary: str | None = None  # for a source without one, or replacing its own
    options: HeadOptions = _NO_OPTIONS  # facts on the head that its files lack

    @property
    def format(self) -> str:
        """The library whose files these are."""
        return "electra_tf" if self.formats[0] in formats.OURS else self.formats[0]

    @property
    def file(self) -> str:
        """The .keras file of a fine-tuned model of this package."""
        return keras_file.model_file(self.path)

    @property
    def task(self) -> str | None:
        """Name of the task of a fine-tuned model of this package; None: not known."""
        return keras_file.stored_task(self.path)

    @property
    def training_rows(self) -> np.ndarray | None:
        """Hashes of the texts that it was fine-tuned on; None: not known."""
        return keras_file.training_rows(self.path)

    @property
    def head(self) -> TaskHead | None:
        """Description of the head of a fine-tuned model."""
        return self.fine_tuned and self.fine_tuned.head

    @functools.cached_property
    def pretrained(self) -> PretrainedModel:
        """All networks, without the head of a task."""
        return self._stored.without_task_head()

    @functools.cached_property
    def fine_tuned(self) -> PretrainedModel | None:
        """The network of a fine-tuned model with its head; None: no such head."""
        if self.kind in ("checkpoint", "config") or self._stored.head is None:
            return None
        head = renamed(self._stored.head, self.options.labels, self.path)
        if self.options.pairs:
            settings = {**head.settings, "pairs": True}
            head = dataclasses.replace(head, settings=settings)
        return self._stored.with_head(head)

    @property
    def has_pretraining_head(self) -> bool:
        """Return whether the source has a pre-training head, so no other training."""
        if self.kind == "config" or self.fine_tuned is not None:
            return False
        return any(name.startswith("head/") for name in self.pretrained.main.weights)

    @functools.cached_property
    def encoder(self) -> PretrainedEncoder:
        """The encoder: that of the discriminator, or of the only network."""
        if self.kind == "config":
            return _read_config(self.path, self.vocabulary)
        model, trained, own = self.pretrained, (None, None), self.own_checkpoint
        tokenizer, weights = model.require_tokenizer(), model.main.encoder_weights
        if own:
            identity = hashlib.sha256(own.read(WEIGHTS)).hexdigest()
            # Weights that came from elsewhere may have seen more.
            if not any(map(own.metadata.get, ("init_checkpoint", "source"))):
                config = own.config()
                length = config.records.max_length
                trained = length, own.step * config.input.batch_size * length
        else:
            digest = hashlib.sha256()
            for name in sorted(weights):
                digest.update(weights[name].tobytes())
            identity = digest.hexdigest()
        return PretrainedEncoder(
            *(model.main.shape, tokenizer, weights, model.path, identity, *trained),
            format=self.format,
        )

    @functools.cached_property
    def run(self) -> checkpoint.TrainedRun:
        """A pre-trained model as a run; one of another library has no slots."""
        if self.own_checkpoint:
            return checkpoint.read_run(self.own_checkpoint)
        return checkpoint.as_run(self.pretrained)

    @functools.cached_property
    def own_checkpoint(self) -> Checkpoint | None:
        """The checkpoint of this package; None: a model of another kind."""
        return open_checkpoint(self.path) if self.kind == "checkpoint" else None

    @functools.cached_property
    def _stored(self) -> PretrainedModel:
        """All networks as their files have them."""
        if self.kind == "config":
            raise _not_pretrained(self)
        models = [
            formats.module_of(format).read(
                self.own_checkpoint or local_folder(part), self.vocabulary
            )
            for format, part in zip(self.formats, split_pair(self.path), strict=True)
        ]
        model = models[0]
        if len(models) > 1:
            model = PretrainedModel.of_pair(models, self.path)
        if model.tokenizer is not None and self.format != "electra_tf":
            for line in entry_warnings(model.tokenizer):
                warnings.warn(line, stacklevel=2)
        for note in model.notes:
            print(f"note: {note}", file=sys.stderr)
        return model


def open_source(
    name: str | os.PathLike,
    vocabulary: str | os.PathLike | None = None,
    options: HeadOptions = _NO_OPTIONS,
) -> Source:
    """Find a model; one at a URL is fetched.

    Args:
        name: A file or folder, a prefix of a TensorFlow checkpoint, a URL, an id of the
            Hugging Face hub, or the name of a preset; two of these, separated by a
            comma: discriminator and generator; or the name or path of a config.
        vocabulary: For a config, or for another library's model in place of its own.
        options: Facts about the head of a fine-tuned model that its files lack.
    """
    names = os.fspath(name).split(",")
    path = _local_model(",".join(map(os.path.expanduser, names)))
    check_exists(path)
    parts = split_pair(path)
    found = tuple(map(_format, parts))
    if vocabulary is not None:
        vocabulary = os.path.expanduser(os.fspath(vocabulary))
        if set(found) & {*formats.OURS}:
            raise InputError(
                f"{path!r} has a vocabulary of its own; omit vocabulary={vocabulary!r}"
            )
    if None not in found:
        single = len(found) == 1 and found[0] in formats.OURS
        kind: Kind = found[0] if single else "other_library"
        return Source(kind, path, found, vocabulary, options)
    if is_config(path):
        return Source("config", path, vocabulary=vocabulary)
    unknown = parts[found.index(None)]
    if state := _known_defect(unknown):
        raise InputError(f"{unknown!r} {state}")
    is_folder = os.path.isdir(unknown)
    raise no_model(unknown, f"is a {'folder' if is_folder else 'file'} of another kind")


def open_pretrained(
    name: str | os.PathLike, vocabulary: str | os.PathLike | None = None
) -> Source:
    """Find a pre-trained model: a checkpoint, or a model of another library."""
    source = open_source(name, vocabulary)
    if source.kind in ("fine_tuned", "config"):
        raise _not_pretrained(source)
    return source


def path_below_encoder(path: str, name: str = "encoder") -> str:
    """Return a variable's path relative to its encoder."""
    return path.split(f"{name}/", 1)[1]


def model_tokenizer(
    name: str | os.PathLike, vocabulary: str | os.PathLike | None = None
) -> WordPieceTokenizer:
    """Return the tokenizer of a model, or of the vocabulary at a path."""
    path = os.fspath(name)
    if os.path.exists(path) and not is_config(path) and _format(path) is None:
        return open_tokenizer(path).tokenizer()
    return open_source(path, vocabulary).encoder.tokenizer


def _format(path: str) -> str | None:
    """Return the format of a file, folder, prefix or hub id, or None."""
    return "huggingface" if is_hub_id(path) else formats.format_of(path)


def _known_defect(path: str) -> str:
    """Return what a path without a known format lacks; empty: unknown."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if os.path.isfile(f"{path}.index"):
        return "is a TensorFlow checkpoint of another model"
    if glob.glob(f"{glob.escape(path)}.data-*"):
        return "lacks its .index file"
    if find_weights(folder) and not os.path.isfile(os.path.join(folder, CONFIG)):
        return f"lacks the model's {CONFIG}"
    if folder != path:
        return f"is one file of {folder}; pass that" if _format(folder) else ""
    if os.path.isdir(os.path.join(path, "trial_1")):
        return (
            f"has no {MODEL} yet; run the same finetune command again until a trial "
            "is finished"
        )
    exported = ("saved_model.pb", "*/saved_model.pb")  # `served` and `served/1`
    if any(glob.glob(f"{glob.escape(path)}/{name}") for name in exported):
        return (
            "is a SavedModel; name the --output of finetune that it was exported from"
        )
    if inner := glob.glob(f"{glob.escape(path)}/*_Transformer/{CONFIG}"):
        return f"has its encoder in {os.path.dirname(inner[0])}; pass that"
    if shards := sorted(filter(SHARD.fullmatch, os.listdir(path))):
        kind, suffix = SHARD.fullmatch(shards[0]).groups()
        return (
            f"has {len(shards)} shards of weights without their index, {kind}.{suffix}"
            ".index.json; copy it beside them"
        )
    if os.path.isfile(os.path.join(path, CONFIG)):
        return f"has {CONFIG} without weights, {' or '.join(LIBRARY_WEIGHTS)}"
    return ""


def _not_pretrained(source: Source) -> InputError:
    state = "fine-tuned; name the checkpoint that it was trained from"
    if source.kind == "config":
        state = "a config, which has no weights; name a run that was trained with it"
    return InputError(f"the model must be pre-trained, but {source.path!r} is {state}")


def _read_config(name: str, vocabulary: str | None) -> PretrainedEncoder:
    """Return the shape of a config, without weights."""
    if vocabulary is None:
        raise InputError(
            f"the config {name!r} needs vocabulary=PATH, the vocab.txt of the model"
        )
    stored = open_tokenizer(vocabulary)
    config = loader.load_config(name, base=stored.base)
    stored.check(config.tokenization)
    model = config.model.of_vocabulary(len(stored.vocabulary), vocabulary)
    tokenizer = WordPieceTokenizer(stored.vocabulary, config.tokenization)
    for line in entry_warnings(tokenizer):
        warnings.warn(line, stacklevel=2)
    return PretrainedEncoder(model.encoder, tokenizer, None, name)


# Models at URLs: only the files that a reader needs are copied to this machine.


def _local_model(path: str) -> str:
    """Return the local path of a preset, or of a model that is fetched from a URL."""
    if "://" not in path:
        return ",".join(preset_folder(part) or part for part in path.split(","))
    return ",".join(p if not is_url(p) else _fetch(p) for p in path.split(","))


def _fetch(url: str) -> str:
    parent, name = split_url(url)
    source, folder = ObjectFolder(url), ObjectFolder(parent)
    objects = source.find()
    steps = {int(m[1]): m[0] for m in map(_STEP.fullmatch, objects) if m}
    if MANIFEST in objects or steps:
        manifest = MANIFEST if MANIFEST in objects else steps[max(steps)]
        return _fetch_checkpoint(source, objects, manifest)
    if MODEL in objects:
        objects = {n: info for n, info in objects.items() if "/" not in n}
        return os.path.join(fetch(source, objects), name)
    if not objects and name in _FILES and name in folder.find():
        return _fetch(parent)
    if not objects and (files := _with_prefix(folder, name)):
        return os.path.join(fetch(folder, files, folder="."), name)
    return local_path(url)


def _fetch_checkpoint(
    source: ObjectFolder, objects: dict[str, ObjectInfo], manifest: str
) -> str:
    """Fetch a checkpoint by the sums of its manifest."""
    step = posixpath.dirname(manifest)  # empty: the URL is that of the checkpoint
    url = source.url_of(step).rstrip("/")
    files = parse_manifest(source.read(manifest) or b"", url)["files"]
    sums = {posixpath.join(step, file): sha256 for file, (_, sha256) in files.items()}
    missing = sums.keys() - objects.keys()
    if missing:
        raise InputError(
            f"{source.url} has not the files of its manifest: no "
            f"{', '.join(sorted(missing))}"
        )
    wanted = {*sums, manifest}
    objects = {name: info for name, info in objects.items() if name in wanted}
    path = os.path.join(fetch(source, objects, sums), split_url(source.url)[1], step)
    return path.rstrip("/")


def _with_prefix(folder: ObjectFolder, prefix: str) -> dict[str, ObjectInfo]:
    """Return the files of a TensorFlow checkpoint, and what is read beside them."""
    objects = {n: i for n, i in folder.find().items() if "/" not in n}
    if not any(name.startswith(f"{prefix}.") for name in objects):
        return {}
    return {
        name: info
        for name, info in objects.items()
        if name.startswith(f"{prefix}.")
        or name == records.VOCABULARY
        or name.endswith(".json")
    }
