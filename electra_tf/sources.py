"""Find what a path, a URL, a hub id or a name of a preset or config is, and read it.

Nothing else in the package asks what a model's path is: `open_source` returns a
`Source`, and every command and every `from_preset` goes by its kind.
"""

import dataclasses
import functools
import hashlib
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Literal

import numpy as np

from electra_tf.config import loader
from electra_tf.errors import InputError
from electra_tf.interop import checkpoint, formats, hub, keras_file
from electra_tf.interop.heads import HeadOptions, TaskHead
from electra_tf.interop.keras_networks import PretrainedEncoder
from electra_tf.interop.model import PretrainedModel
from electra_tf.interop.remote import fetch_model
from electra_tf.model_names import check_exists, is_config, no_model_at, split_pair
from electra_tf.preset_files import preset_folder
from electra_tf.storage.objects import is_url
from electra_tf.text.checks import entry_warnings
from electra_tf.text.record_set import resolve_config
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import open_tokenizer
from electra_tf.training.checkpoint import (
    SLOTS,
    WEIGHTS,
    Checkpoint,
    open_checkpoint,
)

Kind = Literal["checkpoint", "fine_tuned", "networks", "config"]
"""`networks`: of other libraries, or a discriminator and its generator."""
_NO_OPTIONS = HeadOptions()


@dataclasses.dataclass(frozen=True)
class Source:
    """A model that was found; its files are read when a part is used."""

    kind: Kind
    path: str  # local path, or name of a config; of a pair DISCRIMINATOR,GENERATOR
    formats: tuple[str, ...] = ()  # format of each network's files
    vocabulary: str | None = None  # for a source without one, or replacing its own
    options: HeadOptions = _NO_OPTIONS  # facts on the head that its files lack
    is_verified: bool = False  # whether checksums were compared when it was fetched

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
        head = self.options.applied_to(self._stored.head, self.path)
        network = dataclasses.replace(self._stored.main, head=head)
        return dataclasses.replace(self._stored, networks=(network,))

    @property
    def has_pretraining_head(self) -> bool:
        """True for a discriminator or generator, which has no head of a task."""
        roles = "discriminator", "generator"
        return self.kind != "config" and self._stored.main.role in roles

    @functools.cached_property
    def encoder(self) -> PretrainedEncoder:
        """The encoder: that of the discriminator, or of the only network."""
        if self.kind == "config":
            return _read_config(self.path, self.vocabulary)
        model, own = self.pretrained, self.own_checkpoint
        weights, length, positions = model.main.encoder_weights, None, None
        # Weights that came from elsewhere may have seen more.
        if own and not any(map(own.metadata.get, ("init_checkpoint", "source"))):
            config = own.config()
            length = config.records.max_length
            positions = own.step * config.input.batch_size * length
        return PretrainedEncoder(
            model.main.shape,
            model.require_tokenizer(),
            weights,
            source=model.path,
            identity=own.sums[WEIGHTS] if own else _sha256(weights),
            trained_length=length,
            trained_positions=positions,
            format=self.format,
        )

    @functools.cached_property
    def run(self) -> checkpoint.TrainedRun:
        """A pre-trained model as a run."""
        if self.own_checkpoint:
            return checkpoint.read_run(self.own_checkpoint)
        return checkpoint.as_run(self.pretrained)

    @functools.cached_property
    def own_checkpoint(self) -> Checkpoint | None:
        """The checkpoint of this package; None: a model of another kind."""
        if self.kind != "checkpoint":
            return None
        return open_checkpoint(self.path, not self.is_verified, skip=(SLOTS,))

    @functools.cached_property
    def _stored(self) -> PretrainedModel:
        """All networks as their files have them."""
        if self.kind == "config":
            raise _not_pretrained(self)
        parts = zip(self.formats, split_pair(self.path), strict=True)
        models = [
            formats.module_of(format).read(self.own_checkpoint or part, self.vocabulary)
            for format, part in parts
        ]
        is_pair = len(models) > 1
        model = PretrainedModel.of_pair(models, self.path) if is_pair else models[0]
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
    """Find a model; one at a URL or of the hub is fetched.

    Args:
        name: A file or folder, a prefix of a TensorFlow checkpoint, a URL, an id of the
            Hugging Face hub, or the name of a preset; two of these, separated by a
            comma: discriminator and generator; or the name or path of a config.
        vocabulary: For a config, or for another library's model in place of its own.
        options: Facts about the head of a fine-tuned model that its files lack.
    """
    names = [*map(os.path.expanduser, split_pair(os.fspath(name)))]
    check_exists(",".join(names))
    paths = [*map(_local_path, names)]
    path, kinds = ",".join(paths), tuple(map(formats.format_of, paths))
    if vocabulary is not None:
        vocabulary = os.path.expanduser(os.fspath(vocabulary))
        if set(kinds) & {*formats.OURS}:
            raise InputError(
                f"{path!r} has a vocabulary of its own; omit vocabulary={vocabulary!r}"
            )
    if None not in kinds:
        single = len(kinds) == 1 and kinds[0] in formats.OURS
        kind: Kind = kinds[0] if single else "networks"
        return Source(kind, path, kinds, vocabulary, options, is_url(names[0]))
    if is_config(path):
        return Source("config", path, vocabulary=vocabulary)
    raise no_model_at(paths[kinds.index(None)])


def open_pretrained(
    name: str | os.PathLike, vocabulary: str | os.PathLike | None = None
) -> Source:
    """Find a pre-trained model: a checkpoint, or a model of another library."""
    source = open_source(name, vocabulary)
    if source.kind in ("fine_tuned", "config"):
        raise _not_pretrained(source)
    return source


def model_tokenizer(
    name: str | os.PathLike, vocabulary: str | os.PathLike | None = None
) -> WordPieceTokenizer:
    """Return the tokenizer of a model, or of the vocabulary at a path."""
    path = os.fspath(name)
    is_file = os.path.exists(path) and not is_config(path)
    if is_file and formats.format_of(path) is None:
        return open_tokenizer(path).tokenizer()
    return open_source(path, vocabulary).encoder.tokenizer


def _local_path(name: str) -> str:
    """Return the path of a preset, or of a model that is fetched, or the name."""
    if is_url(name):
        return fetch_model(name)
    return preset_folder(name) or hub.local_folder(name)


def _sha256(weights: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of all weights."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(weights[name].tobytes())
    return digest.hexdigest()


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
    config, tokenizer = resolve_config(
        "", vocabulary, lambda stored: loader.load_config(name, base=stored)
    )
    for line in entry_warnings(tokenizer):
        warnings.warn(line, stacklevel=2)
    return PretrainedEncoder(config.model.encoder, tokenizer, None, name)
