"""Initialize a new run with the weights of a checkpoint."""

import json
from collections.abc import Mapping
from typing import Any

from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import CONFIG, open_checkpoint, restore_weights
from electra_tf.training.run_directory import changed_fields


def load_weights(trainer: Any, path: str, files: Mapping[str, bytes]) -> str:
    """Load the weights of a checkpoint into a new model.

    Args:
        trainer: Model with initial weights.
        path: A checkpoint, or a run directory.
        files: Files of the new run's checkpoints by name: config and vocabulary.

    Returns:
        A summary to print.

    Raises:
        InputError: No checkpoint, another vocabulary or another model.
    """
    checkpoint = open_checkpoint(path)
    for name in files:
        if name.endswith(".settings.json"):
            old, new = json.loads(checkpoint.read(name)), json.loads(files[name])
            if TokenizationConfig.complete(old) != TokenizationConfig.complete(new):
                raise InputError(
                    "The vocabulary of the initial checkpoint must be that of the run",
                    f"{checkpoint.path}: {old}, not {new}",
                    "Build the records with the checkpoint's vocab.txt",
                )
    old = config_lib.parse_config(checkpoint.read(CONFIG).decode(), checkpoint.path)
    new = config_lib.parse_config(files[CONFIG].decode(), "the new run's config")
    changed = changed_fields(old, new)
    try:
        restore_weights(trainer, checkpoint)
    except InputError as error:
        flags = [
            f"--set {name}={json.dumps(value)}"
            for name, (value, _) in changed.items()
            if name.startswith(("model.", "objective."))
        ]
        remedy = f"Train the model of the checkpoint: {' '.join(flags)}"
        raise InputError(error.required, error.received, remedy) from error
    differences = [f"  {name}: {a!r} -> {b!r}" for name, (a, b) in changed.items()]
    lines = [
        f"initial checkpoint {checkpoint.path}, step {checkpoint.step:,}:",
        f"  loaded: all {len(trainer.trainable_variables)} weights",
        "  not loaded: optimizer slots, step, learning-rate schedule, record order",
        *(["changed settings:", *differences] if differences else []),
    ]
    return "\n".join(lines)
