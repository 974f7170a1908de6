"""Load the networks of pre-training as Keras layers, from a source of any format."""

import dataclasses
import os
from typing import Any, NamedTuple

from electra_tf import sources
from electra_tf.config.model import ModelConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError, with_suggestions
from electra_tf.interop.run_networks import plain_weights
from electra_tf.model.electra import (
    Electra,
    MaskedLanguageModel,
    MaskedLMPair,
    pretraining_model,
)
from electra_tf.model.encoder import Encoder
from electra_tf.model.transformer import weights_of_zeros
from electra_tf.sources import Source
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.training.checkpoint import assign


class Networks(NamedTuple):
    """The networks of a pre-trained model, with what they need."""

    model: Electra | MaskedLMPair | MaskedLanguageModel
    shapes: ModelConfig
    config: PretrainingConfig
    tokenizer: Tokenizer
    path: str
    step: int

    def check_discriminator(self) -> None:
        """Raise an error if the discriminator has had no update yet."""
        if any(self.step <= start for start in self.config.stage_starts):
            raise InputError(
                "A model must be past its generator's first steps to score texts",
                f"{self.path}, step {self.step:,}: its discriminator is untrained",
                "Name a later checkpoint",
            )


def load_networks(source: Source) -> Networks:
    """Load the networks of a pre-trained model, without a generator if it has none."""
    config, tokenizer, weights, _, step = source.run
    shapes, weights = plain_weights(config, step, weights)
    objective = config.objective
    generators = "/generator/", "/cloze/"
    if objective.facts.head != "masked_lm" and not any(
        generator in name for name in weights for generator in generators
    ):
        # Another library's discriminator alone, or one without generator network.
        objective = dataclasses.replace(objective, uniform_generator=True)
    with weights_of_zeros():
        model = pretraining_model(shapes, objective)
    model.build()
    main = model.discriminator if isinstance(model, Electra) else model
    if missing := sorted({v.path for v in main.weights} - weights.keys()):
        is_encoder = all("/head/" in name for name in missing)
        state = "an encoder without a head" if is_encoder else f"without {missing[0]}"
        raise InputError(
            "A pre-trained model must have a head to score or complete texts",
            f"{source.path!r}, {state}",
            "Name a discriminator or a masked language model",
        )
    assign({v.path: v for v in model.weights}, weights, source.path)
    return Networks(model, shapes, config, tokenizer, source.path, step)


@with_suggestions
def encoder_from_preset(
    cls: type[Encoder],
    path_or_name: str | os.PathLike,
    vocabulary: str | None = None,
    seed: int = 0,
    name: str = "encoder",
    dtype: Any = None,
    trainable: bool = True,
) -> Encoder:
    """Load an encoder, or create one with random weights from a config.

    Args:
        path_or_name: Folder of a checkpoint or of a run (its newest checkpoint), a
            saved model, another library's model, or the name or path of a config.
        vocabulary: Path of the vocabulary; only for a config or another library.
        seed: Seed of random weights and of dropout.
        name: Name of the layer.
        dtype: Keras dtype policy.
        trainable: Whether the weights are trained.

    Returns:
        A built encoder, with its tokenizer.

    Raises:
        InputError: The source is damaged, or its kind is unknown.
    """
    source = sources.open_source(path_or_name, vocabulary)
    start = source.encoder
    encoder = start.build_encoder(
        seed, cls, name=name, dtype=dtype, trainable=trainable
    )
    encoder.tokenizer = start.tokenizer
    encoder.has_pretraining_head = source.has_pretraining_head
    return encoder


@with_suggestions
def electra_from_preset(
    cls: type[Electra],
    path_or_name: str | os.PathLike,
    vocabulary: str | os.PathLike | None = None,
    name: str = "electra",
    dtype: Any = None,
    trainable: bool = True,
) -> Electra:
    """Load a discriminator, and its generator if there is one.

    Args:
        path_or_name: Folder of a checkpoint or of a run (its newest checkpoint), or
            another library's pre-trained model.
        vocabulary: Path of the vocabulary; only for another library.
        name: Name of the layer.
        dtype: Keras dtype policy.
        trainable: Whether the weights are trained.

    Returns:
        A built layer, whose encoder has its tokenizer.

    Raises:
        InputError: The source has no discriminator, or its kind is unknown.
    """
    networks = load_networks(sources.open_pretrained(path_or_name, vocabulary))
    model = networks.model
    if not isinstance(model, Electra) or model.cloze is not None:
        raise InputError(
            "The source of an Electra must have a discriminator of replaced tokens",
            f"{networks.path}, objective.name: {networks.config.objective.name}",
            "Load it with MaskedLanguageModel.from_preset, or with "
            "Encoder.from_preset, or score texts with TextScorer.from_preset",
        )
    networks.check_discriminator()
    has_generator = model.generator is not None
    with weights_of_zeros():
        electra = cls(networks.shapes, 0, has_generator, dtype, name, trainable)
    electra.build()
    electra.discriminator.set_weights(model.discriminator.get_weights())
    if has_generator:
        electra.generator.set_weights(model.generator.get_weights())
    electra.encoder.tokenizer = networks.tokenizer
    return electra


@with_suggestions
def masked_lm_from_preset(
    cls: type[MaskedLanguageModel],
    path_or_name: str | os.PathLike,
    vocabulary: str | os.PathLike | None = None,
    name: str = "masked_language_model",
    dtype: Any = None,
    trainable: bool = True,
) -> MaskedLanguageModel:
    """Load a masked language model: BERT's kind, or the generator of an ELECTRA.

    Args:
        path_or_name: Folder of a checkpoint or of a run (its newest checkpoint), or
            another library's pre-trained model.
        vocabulary: Path of the vocabulary; only for another library.
        name: Name of the layer.
        dtype: Keras dtype policy.
        trainable: Whether the weights are trained.

    Returns:
        A built layer, whose encoder has its tokenizer.

    Raises:
        InputError: The source has no masked-LM head, or its kind is unknown.
    """
    networks = load_networks(sources.open_pretrained(path_or_name, vocabulary))
    model = networks.model
    if not isinstance(model, MaskedLanguageModel):
        model = model.main if isinstance(model, MaskedLMPair) else model.generator
    if model is None:
        raise InputError(
            "The source must have a masked-LM head",
            f"{networks.path}, a discriminator without a generator of one tower",
            "Name a run with a generator, a pair DISCRIMINATOR,GENERATOR, or load the "
            "discriminator with Electra.from_preset",
        )
    # With tables of its own, so that the layer can be saved.
    with weights_of_zeros():
        encoder = Encoder(model.encoder.shape, dtype=dtype)
        masked_lm = cls(encoder, name=name, dtype=dtype, trainable=trainable)
    masked_lm.build()
    masked_lm.set_weights(model.get_weights())
    encoder.tokenizer = networks.tokenizer
    return masked_lm
