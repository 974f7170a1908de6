"""Load models of tasks, and encoders, from checkpoints, saved models and configs."""

import dataclasses
import functools
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import keras

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.interop.conversion import is_foreign
from electra_tf.interop.remote_models import local_model
from electra_tf.interop.task_heads import MODEL, is_finished
from electra_tf.model.presets import PresetReader, read_preset, register_reader
from electra_tf.preset_files import preset_folder, preset_names
from electra_tf.storage.objects import is_url
from electra_tf.tasks.pretrained import PretrainedEncoder, path_below_encoder
from electra_tf.tasks.saved_file import check_saved_file, load_saved_file
from electra_tf.tasks.saved_optimizer import restore_optimizer
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.tokenizer_files import open_tokenizer
from electra_tf.text.warnings import entry_warnings
from electra_tf.training.checkpoint import is_checkpoint

if TYPE_CHECKING:
    from electra_tf.tasks.text_model import TextModel

Model = TypeVar("Model", bound="TextModel")


@dataclasses.dataclass(frozen=True)
class PresetArguments:
    """Arguments of `from_preset` that all tasks share."""

    source: str | os.PathLike
    vocabulary: str | None = None
    settings: FinetuningConfig | None = None
    seed: int = 0
    name: str | None = None
    dtype: Any = None
    trainable: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", local_model(self.source))

    def _has_head(self, kind: type[Model], given: Mapping[str, Any]) -> bool:
        """Return whether the source has the head of the model."""
        if is_finished(os.fspath(self.source)):
            return True
        is_new = any(name in given for name in kind.head_arguments)
        return not is_new and isinstance(self._other_library, kind)

    @functools.cached_property
    def _other_library(self) -> "TextModel | None":
        """Another library's model, if it has the head of a task."""
        # Imported here, as that module imports the models, which import this one.
        from electra_tf.tasks.finished_models import load_finished

        path = os.fspath(self.source)
        return load_finished(path) if is_foreign(path) else None

    def build(self, kind: type[Model], given: Mapping[str, Any]) -> Model:
        """Load the saved model, or create a new model on the source's encoder.

        Returns:
            A model that is not compiled.
        """
        if self._has_head(kind, given):
            return self._load(kind, given)
        own = kind.new_arguments(given)
        return kind(
            read_preset(self.source, self.vocabulary),
            **own,
            settings=self.settings,
            seed=self.seed,
            name=self.name,
            dtype=self.dtype,
            trainable=self.trainable,
        )

    def _load(self, kind: type[Model], head: Mapping[str, Any]) -> Model:
        # Imported here, as that module imports the models, which import this one.
        from electra_tf.tasks.inference import load

        _check_no_vocabulary(self.source, self.vocabulary)
        path = os.fspath(self.source)
        model = load(path) if is_finished(path) else self._other_library
        if not isinstance(model, kind):
            raise InputError(
                f"path_or_name must be a model of the class {kind.__name__}",
                f"{os.fspath(self.source)!r}, a {type(model).__name__}",
                f"Call {type(model).__name__}.from_preset, or name a checkpoint",
            )
        differing = [
            f"{name}={value!r:.60} for {stored!r:.60}"
            for name, value, stored in self._stored(model, head)
            if value != stored
        ]
        if differing:
            raise InputError(
                "The arguments of from_preset must equal those of the saved model",
                f"{os.fspath(self.source)!r} with {', '.join(differing)}",
                "Leave these arguments out, or name a checkpoint to train a new model",
            )
        model.name = self.name or model.name
        model.trainable = model.trainable and self.trainable
        return model

    def _stored(self, model: "TextModel", head: Mapping[str, Any]) -> list[tuple]:
        """Return (name, argument, value of the model) for each argument that is set."""
        values = [(name, value, getattr(model, name)) for name, value in head.items()]
        if self.settings is not None:
            values.append(("settings", self.settings, model.settings))
        if self.dtype is not None:
            precision = keras.dtype_policies.get(self.dtype).name
            values.append(("dtype", precision, model.settings.training.precision))
        if self.seed:
            values.append(("seed", self.seed, int(model.seed.numpy())))
        return values


def load_model(path: str | os.PathLike) -> keras.Model:
    """Load a model that `save` wrote, compiled with its optimizer.

    No code in the file is run. Optimizers other than those of this package and of
    `keras.optimizers`, and other arguments of `compile`, are ignored with a line.

    Args:
        path: A `.keras` file, or a folder with `model.keras`, as finetune writes it.

    Returns:
        The model: one of a task, or any Keras model with layers of this package.

    Raises:
        InputError: There is no such file, or it is damaged.

    Example:
        import electra_tf

        model = electra_tf.load_model("model.keras")
        model.predict(["a fine film"])
    """
    file = local_model(path)
    if os.path.isdir(file):
        file = os.path.join(file, MODEL)
    if not os.path.isfile(file):
        raise InputError(
            f"path must be a .keras file, or a folder with {MODEL}",
            repr(os.fspath(path)),
            "Check the path; load a checkpoint with from_preset of a model class",
        )
    check_saved_file(file)
    model = load_saved_file(file)
    restore_optimizer(model, file)
    return model


def _read_checkpoint(path: str, vocabulary: str | None) -> PretrainedEncoder:
    _check_no_vocabulary(path, vocabulary)
    return PretrainedEncoder.open(path)


def _read_saved_model(path: str, vocabulary: str | None) -> PretrainedEncoder:
    from electra_tf.tasks.inference import load  # as above

    _check_no_vocabulary(path, vocabulary)
    model = load(path)
    weights = {path_below_encoder(v.path): v.numpy() for v in model.encoder.weights}
    return PretrainedEncoder(model.shape, model.tokenizer, weights, path)


def _read_config(name: str, vocabulary: str | None) -> PretrainedEncoder:
    """Return the shape of a config, without weights."""
    if vocabulary is None:
        raise InputError(
            "vocabulary must be set for a config",
            f"{name!r} without it",
            "Pass vocabulary=PATH, the vocab.txt of the model",
        )
    stored = open_tokenizer(vocabulary)
    config = loader.load_config(name, base=stored.base)
    stored.check(config.tokenization)
    entries = stored.vocabulary
    model = config.model.of_vocabulary(len(entries), os.fspath(vocabulary))
    tokenizer = Tokenizer(entries, config.tokenization)
    for line in entry_warnings(tokenizer):
        warnings.warn(line, stacklevel=2)
    return PretrainedEncoder(model.encoder, tokenizer, None, name)


def _is_elsewhere(name: str) -> bool:
    return is_url(name) or preset_folder(name) is not None


def _read_elsewhere(name: str, vocabulary: str | None) -> PretrainedEncoder:
    return read_preset(local_model(name), vocabulary)


def _is_config(name: str) -> bool:
    is_file = name.endswith((".yaml", ".yml")) and os.path.isfile(name)
    return is_file or (name in _pretraining_configs() and not os.path.exists(name))


def _pretraining_configs() -> list[str]:
    return [name for name in loader.installed() if not name.startswith("finetune")]


def _check_no_vocabulary(source: str | os.PathLike, vocabulary: str | None) -> None:
    if vocabulary is not None:
        raise InputError(
            "vocabulary must be left out for a source with a vocabulary",
            f"vocabulary={os.fspath(vocabulary)!r} for {os.fspath(source)!r}",
            "Leave it out",
        )


for _name, _reader in {
    "elsewhere": PresetReader(
        f"a preset ({', '.join(preset_names()) or 'none ships'}), or a URL of an "
        "object store (s3://, gs://) with one of the following",
        _is_elsewhere,
        _read_elsewhere,
    ),
    "saved model": PresetReader(
        f"a saved model (a .keras file, or a folder with {MODEL})",
        is_finished,
        _read_saved_model,
    ),
    "checkpoint": PresetReader(
        "a folder of a checkpoint, or of a run, whose newest checkpoint is read",
        is_checkpoint,
        _read_checkpoint,
    ),
    "other library": PresetReader(
        "a Hugging Face folder or hub id, a TensorFlow 1 or Model Garden checkpoint, "
        "or a KerasHub preset",
        is_foreign,
        PretrainedEncoder.open_foreign,
    ),
    "config": PresetReader(
        f"a config ({', '.join(_pretraining_configs())}, or a .yaml file) with "
        "vocabulary=PATH, for random weights",
        _is_config,
        _read_config,
    ),
}.items():
    register_reader(_name, _reader)
