"""Read encoder, tokenizer and settings from the config of a saved model."""

from collections.abc import Mapping
from typing import Any

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import EncoderConfig
from electra_tf.interop.keras_file import saved_tokenizer
from electra_tf.sources import PretrainedEncoder


def from_saved_config(
    model_config: Mapping[str, Any],
) -> tuple[PretrainedEncoder, FinetuningConfig]:
    """Return an encoder without weights, and the settings."""
    base = {
        f"{section}.{name}": value
        for section, values in model_config["settings"].items()
        for name, value in values.items()
    }
    settings = loader.load_config(base=base, root=FinetuningConfig)
    shape = EncoderConfig(**model_config["shape"])
    tokenizer = saved_tokenizer(model_config)
    return PretrainedEncoder(shape, tokenizer, None, "the saved model"), settings
