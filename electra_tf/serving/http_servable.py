"""Open a model or an export for the HTTP server: signatures that map arrays."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.serving.export import load_exportable, select_signatures
from electra_tf.serving.export_options import SIGNATURES
from electra_tf.serving.formats.saved_model import ABOUT, ASSETS_EXTRA
from electra_tf.serving.signatures import ExportSpec
from electra_tf.serving.warmup import warmup_requests

_GRAPH = "saved_model.pb"
_WARMUP_LENGTHS = 1, 500
Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ServableSignature:
    """Function that is served."""

    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    function: Callable[..., Mapping[str, tf.Tensor]]
    """Function of tensors in the order of `inputs`."""

    @functools.cached_property
    def takes_texts(self) -> bool:
        """Return whether all inputs are strings."""
        return {spec.dtype for spec in self.inputs.values()} == {tf.string}

    @functools.cached_property
    def padded(self) -> tuple[str, ...]:
        """Outputs that are as long as the longest row: of tokens, words or entities."""
        return tuple(n for n, spec in self.outputs.items() if None in spec.shape[1:2])

    def __call__(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """Run the function."""
        tensors = [
            tf.constant(arrays[name], spec.dtype) for name, spec in self.inputs.items()
        ]
        outputs = self.function(*tensors)
        return {name: outputs[name].numpy() for name in self.outputs}


@dataclasses.dataclass(frozen=True)
class Servable:
    """Model that is served."""

    name: str
    version: int
    signatures: Mapping[str, ServableSignature]
    about: Mapping[str, Any]
    """Facts for clients: kind, labels, lengths."""

    def warm_up(self) -> None:
        """Run each signature of strings, because its first requests are slow."""
        for signature in self.signatures.values():
            if signature.takes_texts:
                axes = {n: spec.shape.rank for n, spec in signature.inputs.items()}
                for request in warmup_requests(axes, _WARMUP_LENGTHS):
                    # The limits of an export may be smaller.
                    with contextlib.suppress(tf.errors.InvalidArgumentError):
                        signature(request)


def open_servable(
    path: str, name: str | None = None, output_kind: str | None = None
) -> Servable:
    """Open a model for the server.

    Args:
        path: The `--output` of export or one of its versions; or a model, as for
            `load_exportable`, whose graphs are created in memory.
        name: In URLs. Default: the last part of the path.
        output_kind: Of a pre-trained model. Default: replaced tokens and masks.
    """
    version = _export_folder(path)
    if name is None:
        base = os.path.basename(os.path.normpath(path))
        if version and base.isdecimal():
            base = version.absolute().parent.name
        name = re.sub(r"[^\w.-]", "-", base, flags=re.ASCII)
    elif not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise InputError(
            "--name must have letters, digits, `_`, `.` and `-` only, because it is "
            "part of a URL",
            repr(name),
            "Pass another --name",
        )
    if version is None:
        return _of_model(path, name, output_kind)
    if output_kind is not None:
        raise InputError(
            "--output_kind must be omitted for an export, whose outputs are fixed",
            f"--output_kind={output_kind} for {path!r}",
            "Omit it, or name the model in place of its export",
        )
    return _of_export(version, name)


def _export_folder(path: str) -> pathlib.Path | None:
    """Return the newest version of an export; None if the path is none."""
    folder = pathlib.Path(path)
    if (folder / _GRAPH).is_file():
        return folder
    versions = [p.parent for p in folder.glob(f"*/{_GRAPH}")]
    versions = [v for v in versions if v.name.isdecimal()]
    return max(versions, key=lambda version: int(version.name), default=None)


def _of_export(folder: pathlib.Path, name: str) -> Servable:
    about = _about(folder / ASSETS_EXTRA / ABOUT)
    try:
        loaded = tf.saved_model.load(str(folder))
    except (tf.errors.OpError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "An export must be a complete SavedModel",
            f"{str(folder)!r}: {str(error).splitlines()[0][:300]}",
            "Export the model again",
        ) from error
    number = folder.absolute().name
    return Servable(
        name,
        int(number) if number.isdecimal() else 1,
        {
            key: _signature(function, by_name=True)
            for key, function in loaded.signatures.items()
        },
        about,
    )


def _about(path: pathlib.Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError):
        about = None
    if not isinstance(about, dict):
        raise InputError(
            f"A SavedModel to serve must be one of electra-tf export, with {ABOUT}",
            f"{str(path)!r}, which is missing or no JSON object",
            "Export the model again",
        )
    return about


def _of_model(path: str, name: str, output_kind: str | None) -> Servable:
    source = sources.open(path)
    if output_kind or source.kind == "fine_tuned" or source.fine_tuned:
        return servable_of(load_exportable(path, output_kind), name)
    try:
        return servable_of(load_exportable(path, "electra"), name)
    except InputError as error:
        encoder = "pass --output_kind=encoder for vectors"
        remedy = f"{error.remedy}; or {encoder}"
        raise InputError(error.required, error.received, remedy) from error


def servable_of(spec: ExportSpec, name: str) -> Servable:
    """Return the functions of a model as a servable."""
    signatures = select_signatures(spec, SIGNATURES)
    return Servable(
        name,
        1,
        {
            key: _signature(signature.function.get_concrete_function())
            for key, signature in signatures.items()
        },
        {"kind": spec.kind, **spec.metadata},
    )


def _signature(function: Any, by_name: bool = False) -> ServableSignature:
    """Return a concrete function as a signature; `by_name`: its inputs need names."""
    specs: Sequence[tf.TensorSpec] = tf.nest.flatten(
        function.structured_input_signature
    )
    inputs = {spec.name: spec for spec in specs}
    call = function
    if by_name:

        def call(*tensors: tf.Tensor) -> Mapping[str, tf.Tensor]:
            return function(**dict(zip(inputs, tensors, strict=True)))

    outputs = function.structured_outputs
    return ServableSignature(inputs, dict(sorted(outputs.items())), call)
