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
        files: Files of the new run's checkpoints: config and vocabulary.

    Returns:
        A summary to print.

    Raises:
        InputError: No checkpoint, another vocabulary, other weights.
    """
    checkpoint = open_checkpoint(path)
    for name in files:
        if name.endswith(".settings.json"):
            then, now = json.loads(checkpoint.read(name)), json.loads(files[name])
            if TokenizationConfig.complete(then) != TokenizationConfig.complete(now):
                raise InputError(
                    "A run begins with weights of its own vocabulary",
                    f"{checkpoint.path}: {then}, not {now}",
                    "Build the records with the checkpoint's vocab.txt",
                )
    then = config_lib.parse_config(checkpoint.read(CONFIG).decode(), checkpoint.path)
    now = config_lib.parse_config(files[CONFIG].decode(), "the new run's config")
    differing = changed_fields(then, now)
    try:
        restore_weights(trainer, checkpoint)
    except InputError as error:
        theirs = [
            f"--set {name}={json.dumps(old)}"
            for name, (old, _) in differing.items()
            if name.startswith(("model.", "objective."))
        ]
        remedy = f"Train the model it holds: {' '.join(theirs)}"
        raise InputError(error.required, error.received, remedy) from error
    changed = [f"  {name}: {a!r} -> {b!r}" for name, (a, b) in differing.items()]
    lines = [
        f"from {checkpoint.path}, step {checkpoint.step:,}:",
        f"  carried over: all {len(trainer.trainable_variables)} weights",
        "  begun anew: the optimizer's moments, the step, the learning rate's "
        "schedule, the order of the records",
        *(["settings that differ:", *changed] if changed else []),
    ]
    return "\n".join(lines)
