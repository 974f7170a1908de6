"""Compute the FLOPs of a training step from its shapes.

FLOPs are those of the matmuls: two for each multiply-add. A backward pass has twice the
FLOPs of its forward pass.
"""

import dataclasses

from electra_tf.config.model import EncoderConfig
from electra_tf.config.pretraining import PretrainingConfig


def encoder_flops(shape: EncoderConfig, length: int) -> int:
    """Return the FLOPs of an encoder's forward pass on one row, padding included."""
    width = shape.width
    kernels = 4 * width * width + 2 * width * shape.feed_forward
    attention = 2 * length * width
    projection = shape.embedding * width if shape.embedding != width else 0
    return 2 * (shape.depth * (kernels + attention) + projection) * length


def masked_lm_flops(shape: EncoderConfig, positions: int) -> int:
    """Return the FLOPs of the masked-LM head's forward pass."""
    return 2 * shape.embedding * (shape.width + shape.vocabulary_size) * positions


def discriminator_flops(shape: EncoderConfig, length: int) -> int:
    """Return the FLOPs of the replaced-token head's forward pass on one row."""
    return 2 * (shape.width**2 + shape.width) * length


def step_flops(config: PretrainingConfig) -> int:
    """Return the FLOPs of a training step, forward and backward."""
    rows, length = config.input.batch_size, config.records.max_length
    masked = config.max_predictions_per_seq
    main, objective = config.model.encoder, config.objective
    forward = encoder_flops(main, length)
    if objective.head == "masked_lm":
        forward += masked_lm_flops(
            main, length if objective.softmax == "all" else masked
        )
    else:
        forward += discriminator_flops(main, length)
    if not objective.has_generator:
        return 3 * rows * forward
    generator = config.model.generator
    if objective.towers == 2:
        both = dataclasses.replace(generator, width=2 * generator.width)
        forward += 2 * encoder_flops(generator, length) + masked_lm_flops(both, length)
        return 3 * rows * forward
    predict = encoder_flops(generator, length) + masked_lm_flops(generator, masked)
    predict, forward = rows * predict, rows * forward
    is_frozen = objective.freeze_generator or objective.stages == 2
    both = 3 * forward + (predict if is_frozen else 3 * predict)
    share = config.generator_share
    return round(share * 3 * predict + (1 - share) * both)
