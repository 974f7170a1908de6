"""What a step costs, from the shapes alone: FLOPs of the products, and memory.

Products only, as is usual for such figures; a backward pass counts twice its forward
pass. Twice a multiply-add.
"""

import dataclasses

from electra_tf.config.pretraining import EncoderConfig, ModelConfig


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """What one training step works on."""

    rows: int
    length: int
    slots: int
    """Masked positions a row."""


def encoder_flops(shape: EncoderConfig, work: BatchShape) -> int:
    """FLOPs of an encoder's forward pass over all positions, padding included."""
    width, length = shape.width, work.length
    products = 4 * width * width + 2 * width * shape.feed_forward
    attention = 2 * length * width
    projection = shape.embedding * width if shape.embedding != width else 0
    per_token = 2 * (shape.depth * (products + attention) + projection)
    return per_token * work.rows * length


def masked_lm_flops(shape: EncoderConfig, work: BatchShape) -> int:
    """FLOPs of the masked-LM head's forward pass at the masked positions."""
    per_slot = shape.width * shape.embedding + shape.embedding * shape.vocabulary_size
    return 2 * per_slot * work.rows * work.slots


def discriminator_flops(shape: EncoderConfig, work: BatchShape) -> int:
    """FLOPs of the replaced-token head's forward pass."""
    return 2 * (shape.width**2 + shape.width) * work.rows * work.length


def step_flops(
    settings: ModelConfig, objective: str, generator: bool, work: BatchShape
) -> int:
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


def encoder_configs(
    settings: ModelConfig, objective: str, generator: bool
) -> list[EncoderConfig]:
    """The encoders that a step goes through.

    Args:
        settings: The model's shape, with a vocabulary size.
        objective: `electra` or `mlm`.
        generator: Whether there is a generator network.

    Returns:
        Their shapes, the discriminator's first.
    """
    if objective == "electra" and generator:
        return [settings.encoder, settings.generator]
    return [settings.encoder]


def step_memory(
    settings: ModelConfig,
    objective: str,
    generator: bool,
    parameters: int,
    work: BatchShape,
) -> int:
    """Bytes that a step holds at once: weights, slots, gradients, activations.

    As the backward pass goes on, gradients come and activations go, one tower's after
    the other's; the worst moment counts.

    Args:
        settings: The model's shape, with a vocabulary size.
        objective: `electra` or `mlm`.
        generator: Whether there is a generator network.
        parameters: Number of trained weights.
        work: Rows of a part of the batch, and lengths.

    Returns:
        Bytes on one replica, in float32.
    """
    logits = work.rows * work.slots * settings.encoder.vocabulary_size
    encoder = _activations(settings.encoder, work)
    table = settings.encoder.vocabulary_size * settings.encoder.embedding
    if objective == "mlm":
        moments = [encoder + 3 * logits]
    else:  # logits, softmax, a copy of it in blocks to sample from, the gradient
        moments = [4 * logits, encoder]
        if generator:
            moments = [_activations(settings.generator, work) + 4 * logits]
            moments += [encoder + table]
    moments += [parameters + table]
    return round(4 * (3 * parameters + max(moments)))


def _activations(shape: EncoderConfig, work: BatchShape) -> int:
    """Numbers an encoder's backward pass reads.

    Of each layer: query, key, value, what attention saw, two sums and two norms; the
    inner product before and after its activation; attention's softmax.
    """
    attention = shape.heads * work.length
    per_token = 8 * shape.width + 2 * shape.feed_forward + attention
    return shape.depth * work.rows * work.length * per_token


def layer_ops_bytes(rows: int, width: int, inner: int) -> int:
    """Bytes that a layer's chains read and write, forward and backward, in float32.

    Args:
        rows: Vectors.
        width: Of the two sums' norms: five tensors read, five written, sums of three
            over the rows.
        inner: Of the activation: three tensors read, two written, one sum.

    Returns:
        Bytes of one layer, attention's not among them.
    """
    return 4 * rows * (2 * 13 * width + 6 * inner)


def step_traffic(
    settings: ModelConfig,
    objective: str,
    generator: bool,
    parameters: int,
    work: BatchShape,
) -> int:
    """Bytes that a step's operations other than products read and write.

    Args:
        settings: The model's shape, with a vocabulary size.
        objective: `electra` or `mlm`.
        generator: Whether there is a generator network.
        parameters: Number of trained weights.
        work: Rows of the whole batch, and lengths.

    Returns:
        Bytes, in float32.
    """
    tokens = work.rows * work.length
    found = 0
    for shape in encoder_configs(settings, objective, generator):
        # Biases, transposes, sums of gradients; attention's softmax and dropout.
        attention = 4 * tokens * (26 * shape.width + 10 * shape.heads * work.length)
        chains = layer_ops_bytes(tokens, shape.width, shape.feed_forward)
        found += shape.depth * (chains + attention)
    logits = work.rows * work.slots * settings.encoder.vocabulary_size
    # Bias, softmax, sampling, gradient; norm, clipping, decay and update.
    return found + 4 * (13 * logits + 14 * parameters)
