"""Load the encoder and the tokenizer of a pre-training checkpoint."""

import dataclasses
import glob
import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import EncoderConfig, TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.interop.conversion import is_foreign, read_model
from electra_tf.interop.plain_weights import plain_weights
from electra_tf.interop.pretrained import ADD_VOCABULARY
from electra_tf.model.transformer import Encoder
from electra_tf.text.records import VOCABULARY
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import WEIGHTS, assign, open_checkpoint

# Paths of the encoder to fine-tune in a checkpoint, by objective.
_ENCODERS = (
    "electra/discriminator/encoder/",
    "masked_lm_pair/main/encoder/",
    "bert/encoder/",
)


@dataclasses.dataclass(frozen=True)
class PretrainedEncoder:
    """Shape and tokenizer of an encoder, with its weights if it is pre-trained."""

    shape: EncoderConfig
    tokenizer: Tokenizer
    weights: Mapping[str, np.ndarray] | None
    """Weights by path below the encoder; None: random initial weights."""
    source: str
    """Path or name of the source, for messages."""
    identity: str = ""
    """Checksum of the checkpoint's weights."""
    trained_length: int | None = None
    """Positions of the records that it was trained on; None: not known."""

    @classmethod
    def open(cls, path: str) -> "PretrainedEncoder":
        """Read a checkpoint."""
        if os.path.isdir(path) and glob.glob(f"{glob.escape(path)}/*.keras"):
            raise InputError(
                "Fine-tuning must start from a checkpoint of pretrain",
                f"{path!r}, a folder of finetune",
                "Name the --checkpoint that this folder was trained from",
            )
        if is_foreign(path):
            return cls.open_foreign(path)
        checkpoint = open_checkpoint(path)
        settings = checkpoint.config()
        file = os.path.join(checkpoint.path, VOCABULARY)
        tokenizer = Tokenizer(Vocabulary.read(file), settings.tokenization)
        _, weights = plain_weights(settings, checkpoint.step, checkpoint.weights())
        weights = _encoder_weights(weights, checkpoint.path)
        shape = settings.model.encoder
        rows = len(weights["embeddings/word_embeddings"]) - shape.spare_rows
        if rows != len(tokenizer.vocabulary):
            raise InputError(
                f"{file} must have an entry for each of the {rows} rows of the "
                "embedding table without the spare ones",
                f"{len(tokenizer.vocabulary)} entries",
                "Use the vocabulary that the checkpoint was trained with",
            )
        identity = hashlib.sha256(checkpoint.read(WEIGHTS)).hexdigest()
        # Weights from elsewhere may have been trained on longer records.
        origins = map(checkpoint.metadata.get, ("init_checkpoint", "source"))
        length = None if any(origins) else settings.records.max_length
        return cls(shape, tokenizer, weights, checkpoint.path, identity, length)

    @classmethod
    def open_foreign(
        cls, path: str, vocabulary: str | None = None
    ) -> "PretrainedEncoder":
        """Load the encoder of another library's model.

        Returns:
            The discriminator's encoder, or the only one there is.
        """
        model, _ = read_model(path, vocabulary)
        if model.tokenizer is None:
            raise InputError(
                "A pre-trained model must have a vocabulary",
                f"{path!r} without vocab.txt",
                ADD_VOCABULARY,
            )
        network, weights = model.main, model.main.encoder_weights
        digest = hashlib.sha256()
        for name in sorted(weights):
            digest.update(weights[name].tobytes())
        return cls(network.shape, model.tokenizer, weights, path, digest.hexdigest())

    def untrained(self) -> "PretrainedEncoder":
        """Return the same shape and tokenizer without weights."""
        return dataclasses.replace(self, weights=None)

    def load_into(self, encoder: Encoder) -> None:
        """Assign the weights, if there are any."""
        if self.weights is not None:
            variables = {
                path_below_encoder(v.path, encoder.name): v for v in encoder.weights
            }
            assign(variables, self.weights, self.source)


def from_saved_config(
    model_config: Mapping[str, Any],
) -> tuple[PretrainedEncoder, FinetuningConfig]:
    """Read encoder, tokenizer and settings from the config of a saved model.

    Returns:
        An encoder without weights, and the settings.
    """
    text = model_config["vocabulary"]
    # Models saved by earlier versions have a list of entries.
    if isinstance(text, str):
        vocabulary = Vocabulary.parse(text, "the saved model")
    else:
        vocabulary = Vocabulary(tuple(text), "the saved model")
    stored = TokenizationConfig.complete(model_config["tokenization"])
    tokenization = TokenizationConfig(**stored)
    tokenizer = Tokenizer(vocabulary, tokenization)
    sections = model_config["settings"]
    base = {
        f"{section}.{name}": value
        for section, values in sections.items()
        for name, value in values.items()
    }
    settings = loader.load_config(base=base, root=FinetuningConfig)
    shape = EncoderConfig(**model_config["shape"])
    return PretrainedEncoder(shape, tokenizer, None, "the saved model"), settings


def path_below_encoder(path: str, name: str = "encoder") -> str:
    """Return a variable's path relative to its encoder."""
    return path.split(f"{name}/", 1)[1]


def _encoder_weights(weights: Mapping[str, np.ndarray], source: str) -> dict:
    for prefix in _ENCODERS:
        by_path = {
            path.removeprefix(prefix): values
            for path, values in weights.items()
            if path.startswith(prefix)
        }
        if by_path:
            return by_path
    raise InputError(
        "A checkpoint to fine-tune must have an encoder",
        f"{source}, with {', '.join(sorted(weights)[:3])} and others",
        "Name a checkpoint that pretrain wrote",
    )
