"""Create the networks of a pre-trained model as Keras layers."""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf.config.model import EncoderConfig
from electra_tf.config.objectives import Electra
from electra_tf.errors import InputError
from electra_tf.interop.checkpoint import TrainedRun, plain_weights
from electra_tf.model import electra
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.model.transformer import weights_of_zeros
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.training.checkpoint import assign


@dataclasses.dataclass(frozen=True)
class PretrainedEncoder:
    """Shape and tokenizer of an encoder, with its weights if it is pre-trained."""

    shape: EncoderConfig
    tokenizer: WordPieceTokenizer
    weights: Mapping[str, np.ndarray] | None  # by path below it; None: random ones
    source: str  # path or name of the source, for messages
    identity: str = ""  # checksum of the weights
    trained_length: int | None = None  # positions of its records; None: not known
    trained_positions: int | None = None  # of all its batches; None: not known
    format: str = "electra_tf"  # the library whose files the source has

    def untrained(self) -> "PretrainedEncoder":
        """Return the same shape and tokenizer without weights."""
        return dataclasses.replace(self, weights=None)

    def build_encoder(
        self,
        seed: int = 0,
        kind: type[TransformerEncoder] = TransformerEncoder,
        **arguments: Any,
    ) -> Any:
        """Create a built encoder with the weights, or with random ones of the seed.

        `arguments` are `name`, `dtype` and `trainable`, as `kind` takes them.
        """
        is_loaded = self.weights is not None
        with weights_of_zeros() if is_loaded else contextlib.nullcontext():
            encoder = kind(self.shape, seed, **arguments)
        encoder.build((None, None))  # the shape is in the summary
        self.load_into(encoder)
        return encoder

    def load_into(self, encoder: TransformerEncoder) -> None:
        """Assign the weights, if there are any."""
        if self.weights is not None:
            own = {path_below_encoder(v.path, encoder.name): v for v in encoder.weights}
            assign(own, self.weights, self.source)


def path_below_encoder(path: str, name: str = "encoder") -> str:
    """Return a variable's path relative to its encoder."""
    return path.split(f"{name}/", 1)[1]


def load_networks(
    run: TrainedRun,
) -> electra.ElectraPair | electra.MaskedLMPair | electra.MaskedLM:
    """Create the networks of a run, without a generator if it has none."""
    settings, weights = plain_weights(run.config, run.step, run.weights)
    objective = run.config.objective
    generators = "/generator/", "/cloze/"
    if objective.head != "masked_lm" and not any(
        generator in name for name in weights for generator in generators
    ):
        # Another library's discriminator alone, or one without generator network.
        objective = Electra(uniform_generator=True)
    with weights_of_zeros():
        model = electra.pretraining_model(settings, objective)
    model.build()
    main = model.discriminator if isinstance(model, electra.ElectraPair) else model
    if missing := sorted({v.path for v in main.weights} - weights.keys()):
        is_encoder = all("/head/" in name for name in missing)
        state = "an encoder without a head" if is_encoder else f"without {missing[0]}"
        raise InputError(
            f"{run.path!r} is {state}; a model that scores or completes texts must be "
            "a discriminator or a masked language model"
        )
    assign({v.path: v for v in model.weights}, weights, run.path)
    return model
