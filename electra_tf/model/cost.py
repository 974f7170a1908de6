"""What a step costs, from the shapes alone: FLOPs of the products, and memory.

Products only, as is usual for such figures; a backward pass counts twice its forward
pass. Twice a multiply-add.
"""

import dataclasses

from electra_tf.settings import Encoder, Model


@dataclasses.dataclass(frozen=True)
class Work:
    """What one training step works on."""

    rows: int
    length: int
    slots: int
    """Masked positions a row."""


def encoder_flops(shape: Encoder, work: Work) -> int:
    """FLOPs of an encoder's forward pass over all positions, padding included."""
    width, length = shape.width, work.length
    products = 4 * width * width + 2 * width * shape.feed_forward
    attention = 2 * length * width
    projection = shape.embedding * width if shape.embedding != width else 0
    per_token = 2 * (shape.depth * (products + attention) + projection)
    return per_token * work.rows * length


def masked_lm_flops(shape: Encoder, work: Work) -> int:
    """FLOPs of the masked-LM head's forward pass at the masked positions."""
    per_slot = shape.width * shape.embedding + shape.embedding * shape.vocabulary_size
    return 2 * per_slot * work.rows * work.slots


def discriminator_flops(shape: Encoder, work: Work) -> int:
    """FLOPs of the replaced-token head's forward pass."""
    return 2 * (shape.width**2 + shape.width) * work.rows * work.length


def step_flops(settings: Model, objective: str, generator: bool, work: Work) -> int:
    """FLOPs of a training step, forward and backward.

    Args:
        settings: The model's shape, with a vocabulary size.
        objective: `electra` or `mlm`.
        generator: Whether there is a generator network.
        work: Rows and lengths.

    Returns:
        The number of floating-point operations of all products.
    """
    encoder = settings.encoder
    if objective == "mlm":
        forward = encoder_flops(encoder, work) + masked_lm_flops(encoder, work)
        return 3 * forward
    forward = encoder_flops(encoder, work) + discriminator_flops(encoder, work)
    if generator:
        shape = settings.generator
        forward += encoder_flops(shape, work) + masked_lm_flops(shape, work)
    return 3 * forward


def step_bytes(
    settings: Model, objective: str, generator: bool, parameters: int, work: Work
) -> int:
    """An estimate of a step's memory: weights, slots, gradients, activations.

    Args:
        settings: The model's shape, with a vocabulary size.
        objective: `electra` or `mlm`.
        generator: Whether there is a generator network.
        parameters: Number of trained weights.
        work: Rows of a part of the batch, and lengths.

    Returns:
        Bytes on one replica, in float32.
    """
    towers = [settings.encoder]
    if objective == "electra" and generator:
        towers.append(settings.generator)
    tokens = work.rows * work.length
    # Of each layer, what the backward pass reads: query, key, value, what attention
    # saw, two products and two sums' norms, and the bits of two dropouts; the inner
    # product before and after its activation; attention before and after its dropout,
    # and the bits of that.
    values = sum(
        shape.depth
        * tokens
        * (9 * shape.width + 2 * shape.feed_forward + 1.5 * shape.heads * work.length)
        for shape in towers
    )
    # Logits, their softmax, a copy of it in blocks to sample from, the gradient.
    values += 4 * work.rows * work.slots * settings.encoder.vocabulary_size
    return round(4 * (4 * parameters + values))
