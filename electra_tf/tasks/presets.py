"""Load models of tasks from checkpoints, saved models and configs."""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import keras

from electra_tf import sources
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError

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

    @functools.cached_property
    def _opened(self) -> sources.Source:
        return sources.open(self.source, self.vocabulary)

    def _has_head(self, kind: type[Model], given: Mapping[str, Any]) -> bool:
        """Return whether the source has the head of the model."""
        if self._opened.kind == "fine_tuned":
            return True
        is_new = any(name in given for name in kind.head_arguments)
        return not is_new and isinstance(self._other_library, kind)

    @functools.cached_property
    def _other_library(self) -> "TextModel | None":
        """Another library's model, if it has the head of a task."""
        # Imported here, as that module imports the models, which import this one.
        from electra_tf.tasks.load import load

        return load(self._opened) if self._opened.fine_tuned else None

    def build(self, kind: type[Model], given: Mapping[str, Any]) -> Model:
        """Load the saved model, or create a new model on the source's encoder.

        Returns:
            A model that is not compiled.
        """
        if self._has_head(kind, given):
            return self._load(kind, given)
        own = kind.new_arguments(given)
        return kind(
            self._opened.encoder,
            **own,
            settings=self.settings,
            seed=self.seed,
            name=self.name,
            dtype=self.dtype,
            trainable=self.trainable,
        )

    def _load(self, kind: type[Model], head: Mapping[str, Any]) -> Model:
        # Imported here, as that module imports the models, which import this one.
        from electra_tf.tasks.load import load

        model = load(self._opened)
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
