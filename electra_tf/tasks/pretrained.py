"""What fine-tuning takes from a pre-training checkpoint: encoder and tokenizer."""

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
from electra_tf.model.transformer import Encoder
from electra_tf.text.records import VOCABULARY
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import CONFIG, WEIGHTS, assign, open_checkpoint

# Where the encoder that is left lies in a checkpoint, by objective.
_ENCODERS = ("electra/discriminator/encoder/", "bert/encoder/")


@dataclasses.dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder's shape, its tokenizer and, where it has been trained, its weights."""

    shape: EncoderConfig
    tokenizer: Tokenizer
    weights: Mapping[str, np.ndarray] | None
    """By path below the encoder; None: it begins with random ones."""
    source: str
    """Where it is from, for messages."""
    identity: str = ""
    """A checksum of the checkpoint's weights."""

    @classmethod
    def open(cls, path: str) -> "PretrainedEncoder":
        """Reads a checkpoint.

        Args:
            path: A checkpoint's folder, or a run's, whose newest is taken.

        Returns:
            Its discriminator's encoder, or BERT's.

        Raises:
            InputError: No checkpoint, a fine-tuned model, or a vocabulary that is not
                the table's.
        """
        if os.path.isdir(path) and glob.glob(f"{glob.escape(path)}/*.keras"):
            raise InputError(
                "Fine-tuning begins with what pretrain wrote",
                f"{path!r}, a folder of finetune",
                "Name the --checkpoint that folder was trained from",
            )
        checkpoint = open_checkpoint(path)
        settings = loader.parse_config(
            checkpoint.read(CONFIG).decode(), checkpoint.path
        )
        file = os.path.join(checkpoint.path, VOCABULARY)
        tokenizer = Tokenizer(Vocabulary.read(file), settings.tokenization)
        weights = _encoder_of(checkpoint.weights(), checkpoint.path)
        rows = len(weights["embeddings/word_embeddings"])
        if rows != len(tokenizer.vocabulary):
            raise InputError(
                f"{file} has an entry for each of the {rows} rows of the token table",
                f"{len(tokenizer.vocabulary)} entries",
                "Use the vocabulary the checkpoint was trained with",
            )
        identity = hashlib.sha256(checkpoint.read(WEIGHTS)).hexdigest()
        shape = settings.model.encoder
        return cls(shape, tokenizer, weights, checkpoint.path, identity)

    def untrained(self) -> "PretrainedEncoder":
        """The same shape and tokenizer with random weights."""
        return dataclasses.replace(self, weights=None)

    def load_into(self, encoder: Encoder) -> None:
        """Assigns the weights, if there are any.

        Args:
            encoder: A built one of this shape.
        """
        if self.weights is not None:
            variables = {
                path_below_encoder(v.path, encoder.name): v for v in encoder.weights
            }
            assign(variables, self.weights, self.source)


def from_saved_config(
    config_of: Mapping[str, Any],
) -> tuple[PretrainedEncoder, FinetuningConfig]:
    """What a saved model told of its encoder, tokenizer and settings.

    Args:
        config_of: What `TextModel.get_config` returned.

    Returns:
        A start without weights, and the settings.
    """
    stored = config_of["vocabulary"]
    # Models saved by earlier versions hold a list of entries.
    if isinstance(stored, str):
        vocabulary = Vocabulary.parse(stored, "the saved model")
    else:
        vocabulary = Vocabulary(tuple(stored), "the saved model")
    tokenizer = Tokenizer(vocabulary, TokenizationConfig(**config_of["tokenization"]))
    tree = config_of["settings"]
    named = {f"{part}.{name}": v for part in tree for name, v in tree[part].items()}
    settings = loader.load_config(base=named, root=FinetuningConfig)
    start = PretrainedEncoder(
        EncoderConfig(**config_of["shape"]), tokenizer, None, "the saved model"
    )
    return start, settings


def path_below_encoder(path: str, name: str = "encoder") -> str:
    """The part of a variable's path that is below its encoder.

    Args:
        path: Of a variable of an encoder.
        name: Of the encoder.

    Returns:
        `layer_0/attention/query/kernel` and the like.
    """
    return path.split(f"{name}/", 1)[1]


def _encoder_of(weights: Mapping[str, np.ndarray], source: str) -> dict:
    for prefix in _ENCODERS:
        found = {
            path.removeprefix(prefix): values
            for path, values in weights.items()
            if path.startswith(prefix)
        }
        if found:
            return found
    raise InputError(
        "A checkpoint to fine-tune holds an encoder",
        f"{source}, with {', '.join(sorted(weights)[:3])} and others",
        "Name a checkpoint that pretrain wrote",
    )
