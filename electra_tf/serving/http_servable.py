"""Models of the local server: signatures that map arrays."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)

from electra_tf.errors import InputError, cause_of
from electra_tf.serving.export import ABOUT, ASSETS_EXTRA, warmup_requests
from electra_tf.serving.export_options import SAVED_MODEL, check_path
from electra_tf.serving.signatures import ServedModel
from electra_tf.storage.mirror import local_path
from electra_tf.storage.objects import ObjectFolder, is_url

_GRAPH = "saved_model.pb"
_WARMUP_LENGTHS = 1, 500


@dataclasses.dataclass(frozen=True)
class ServableSignature:
    """Function that is served."""

    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    function: Callable[..., Mapping[str, tf.Tensor]]  # of tensors by name

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the function."""
        specs = self.inputs.items()
        tensors = {name: tf.constant(arrays[name], spec.dtype) for name, spec in specs}
        outputs = self.function(**tensors)
        return {name: outputs[name].numpy() for name in self.outputs}


@dataclasses.dataclass(frozen=True)
class Servable:
    """Model that is served."""

    name: str
    version: int
    signatures: Mapping[str, ServableSignature]
    about: Mapping[str, Any]  # facts for clients: kind, labels, lengths

    def warm_up(self) -> None:
        """Run each signature, because its first requests are slow."""
        for signature in filter(lambda one: one.inputs, self.signatures.values()):
            axes = {n: spec.shape.rank for n, spec in signature.inputs.items()}
            for request in warmup_requests(axes, _WARMUP_LENGTHS):
                # The limits of an export may be smaller.
                with contextlib.suppress(tf.errors.InvalidArgumentError, InputError):
                    signature(request)


def export_folder(path: str) -> pathlib.Path | None:
    """Return the newest version of an export, fetched from a URL; None: it is none."""
    if is_url(path):
        names = ObjectFolder(path).find()
    else:
        files = pathlib.Path(path).glob(f"*/{_GRAPH}")
        names = [f"{file.parent.name}/{_GRAPH}" for file in files]
        names += [_GRAPH] * os.path.isfile(os.path.join(path, _GRAPH))
    versions = [name.removesuffix(f"/{_GRAPH}") for name in names]
    versions = [version for version in versions if version.isdecimal()]
    if _GRAPH not in names:
        if not versions:
            return None
        path = f"{path.rstrip('/')}/{max(versions, key=int)}"
    return pathlib.Path(local_path(path))


def open_export(folder: pathlib.Path, name: str) -> Servable:
    """Load a version of an export."""
    check_path(folder, SAVED_MODEL, "--model")
    try:
        about = dict(json.loads((folder / ASSETS_EXTRA / ABOUT).read_bytes()))
        functions = tf.saved_model.load(str(folder)).signatures
    except (tf.errors.OpError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the SavedModel {str(folder)!r} is damaged, or was not written by export: "
            f"{cause_of(error)}"
        ) from error
    signatures = {key: _signature(function) for key, function in functions.items()}
    number = folder.absolute().name
    version = int(number) if number.isdecimal() else 1
    return Servable(name, version, signatures, about)


def servable_of(served: ServedModel, name: str) -> Servable:
    """Return the functions of a model as a servable."""
    signatures = {
        key: _signature(function.get_concrete_function())
        for key, function in served.signatures().items()
    }
    return Servable(name, 1, signatures, {"kind": served.kind, **served.metadata})


def _signature(function: Any) -> ServableSignature:
    # The names of a loaded function's tensors are in lower case, its keywords are not.
    specs, keywords = function.structured_input_signature
    inputs = {spec.name: spec for spec in specs} | dict(sorted(keywords.items()))
    return ServableSignature(inputs, function.structured_outputs, function)
