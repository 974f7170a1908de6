"""Compute the FLOPs of a training step from its shapes.

FLOPs are those of the matmuls: two for each multiply-add. A backward pass has twice the
FLOPs of its forward pass.
"""

import dataclasses
import math

from electra_tf.config.model import EncoderConfig, ModelConfig
from electra_tf.config.objectives import FACTS
from electra_tf.config.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """Shape of a batch."""

    batch_size: int
    """Number of rows."""
    length: int
    """Positions of a row."""
    max_predictions_per_seq: int
    """Masked positions of a row, at most."""


def encoder_flops(shape: EncoderConfig, batch: BatchShape) -> int:
    """Return the FLOPs of an encoder's forward pass, padding included."""
    width, length = shape.width, batch.length
    kernels = 4 * width * width + 2 * width * shape.feed_forward
    attention = 2 * length * width
    projection = shape.embedding * width if shape.embedding != width else 0
    per_token = 2 * (shape.depth * (kernels + attention) + projection)
    return per_token * batch.batch_size * length


def masked_lm_flops(
    shape: EncoderConfig, batch: BatchShape, positions: int | None = None
) -> int:
    """Return the FLOPs of the masked-LM head's forward pass."""
    positions = positions or batch.max_predictions_per_seq
    per_position = (
        shape.width * shape.embedding + shape.embedding * shape.vocabulary_size
    )
    return 2 * per_position * batch.batch_size * positions


def discriminator_flops(shape: EncoderConfig, batch: BatchShape) -> int:
    """Return the FLOPs of the replaced-token head's forward pass."""
    return 2 * (shape.width**2 + shape.width) * batch.batch_size * batch.length


def step_flops(
    settings: ModelConfig,
    objective: str,
    has_generator: bool,
    batch: BatchShape,
    freeze_generator: bool = False,
    generator_share: float = 0.0,
) -> int:
    """Return the FLOPs of a training step, forward and backward."""
    main, *generator = encoder_configs(settings, objective, has_generator)
    facts = FACTS[objective]
    forward = encoder_flops(main, batch)
    if facts.head == "masked_lm":
        positions = batch.length if facts.softmax == "all" else None
        forward += masked_lm_flops(main, batch, positions)
    else:
        forward += discriminator_flops(main, batch)
    if facts.corrector:
        forward += masked_lm_flops(main, batch)
    for shape in generator:
        if facts.towers == 2:
            both = dataclasses.replace(shape, width=2 * shape.width)
            forward += 2 * encoder_flops(shape, batch)
            forward += masked_lm_flops(both, batch, batch.length)
        else:
            predict = encoder_flops(shape, batch) + masked_lm_flops(shape, batch)
            is_frozen = freeze_generator or facts.stages == 2
            both = 3 * forward + (predict if is_frozen else 3 * predict)
            return round(generator_share * 3 * predict + (1 - generator_share) * both)
    return 3 * forward


def training_flops(config: PretrainingConfig) -> int:
    """Return the FLOPs that a whole training executes, recomputed logits included."""
    length, objective = config.records.max_length, config.objective
    masked = math.ceil(config.masking.rate * length)
    batch = BatchShape(config.input.rows_until(config.training.steps), length, masked)
    return recomputed_flops(config.model, objective.name, batch) + step_flops(
        config.model,
        objective.name,
        objective.has_generator,
        batch,
        objective.freeze_generator,
        config.generator_share,
    )


def recomputed_flops(settings: ModelConfig, objective: str, batch: BatchShape) -> int:
    """Return the FLOPs of a step's logits that are computed a second time.

    A softmax at all positions computes its logits again in the backward pass. Electric
    also computes those at the drawn positions once more, to sample from them.
    """
    facts = FACTS[objective]
    if facts.towers == 2:
        shape, positions = (
            settings.generator,
            batch.length + batch.max_predictions_per_seq,
        )
    elif facts.softmax == "all":
        shape, positions = settings.encoder, batch.length
    else:
        return 0
    logits = batch.batch_size * positions * shape.vocabulary_size
    return 2 * shape.embedding * logits


def encoder_configs(
    settings: ModelConfig, objective: str, has_generator: bool
) -> list[EncoderConfig]:
    """Return the shapes of the encoders that a step runs."""
    if FACTS[objective].generator and has_generator:
        return [settings.encoder, settings.generator]
    return [settings.encoder]
