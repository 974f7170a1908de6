"""Settings that ended. Stored configs of checkpoints and saved models may name them."""

from collections.abc import Mapping
from typing import Any

from electra_tf.config.objectives import drop_foreign
from electra_tf.errors import InputError

_ANY = object()  # the setting has no effect, whatever its value
_DEFAULTS: Mapping[str, Any] = {
    "data.on_error": "stop",
    "Electra.corrector": False,  # an argument of the layer, not a setting
    "LayerwiseMultipliers.rule": "original",  # as above
    "input.batch_size_ramp": [],
    "objective.discriminator_start": 0,
    "objective.discriminator_weight_schedule": [],
    "optimizer.generator_learning_rate": None,
    "optimizer.layer_rule": "original",
    "training.length_buckets": True,
    "records.duplicate_similarity": 0.8,
    "input.on_error": "stop",
    "tokenization.keep_whole_normalized": [],
    "tokenization.pad_id": _ANY,  # the vocabulary has it
}
"""Former default by dotted name, in the types of YAML."""


def drop_ended(tree: dict[str, Any], source: str) -> None:
    """Remove ended settings with their former defaults from a stored config.

    Settings that only other objectives have are ended ones too.

    Raises:
        InputError: An ended setting has another value, which would have no effect.
    """
    objective = tree.get("objective")
    if isinstance(objective, dict):
        drop_foreign(objective)
    for dotted, default in _DEFAULTS.items():
        section, _, name = dotted.partition(".")
        values = tree.get(section)
        if not isinstance(values, dict) or name not in values:
            continue
        if (value := values.pop(name)) != default is not _ANY:
            raise InputError(
                f"{source}: `{dotted}` no longer exists and must be {default!r}, its "
                f"former default, not {value!r}"
            )
