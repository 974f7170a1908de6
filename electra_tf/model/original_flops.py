"""FLOPs by the counting rules of the released code, in which the paper's are given.

An operation is one mathematical operation: a matmul of [m, k] by [k, n] has 2mkn. The
rules count embedding lookups as matmuls with one-hot vectors, and a backward pass like
a forward pass. `cost.py` counts what this package executes instead.
"""

from electra_tf.config.model import EncoderConfig
from electra_tf.config.pretraining import PretrainingConfig

# Operations for each value.
_DROPOUT, _LAYER_NORM, _GELU, _SOFTMAX = 4, 5, 8, 5
_PASSES = 2  # forward and backward

OUTPUT_SHARE = 0.15625
"""Share of the positions that get a softmax in the published figures: 20 of 128."""


def encoder_flops(shape: EncoderConfig, length: int) -> int:
    """Return the FLOPs of embeddings and layers for one row, forward."""
    h, s, e, inner = shape.width, length, shape.embedding, shape.feed_forward
    attention = (
        *(6 * h * h, 3 * h),  # queries, keys, values
        *(2 * h * s, s * shape.heads * (_SOFTMAX + _DROPOUT + 1), 2 * h * s),
        *(2 * h * h, h * (1 + _DROPOUT + 1)),  # output
        _LAYER_NORM,  # not multiplied by the width: a slip of the released code
    )
    feed_forward = (
        *(4 * h * inner, inner * (_GELU + 1)),
        h * (1 + _DROPOUT + 1 + _LAYER_NORM),
    )
    lookups = 2 * e * shape.vocabulary_size + 2 * e * (s + 2)
    rest = e * (2 + _LAYER_NORM + _DROPOUT)
    projection = 2 * h * e + h if e != h else 0
    layers = shape.depth * (sum(attention) + sum(feed_forward))
    return (layers + lookups + rest + projection) * s


def softmax_flops(
    shape: EncoderConfig, length: int, share: float, width: int | None = None
) -> float:
    """Return the FLOPs of the masked-LM head for one row, forward.

    `width` is that of its inputs; None: the encoder's.
    """
    e, v = shape.embedding, shape.vocabulary_size
    matmuls = 2 * e * v + 2 * (width or shape.width) * e
    rest = e * (1 + _GELU + _LAYER_NORM) + v * (_SOFTMAX + 2)
    return share * (matmuls + rest) * length


def discriminator_flops(shape: EncoderConfig, length: int) -> int:
    """Return the FLOPs of encoder and replaced-token head for one row, forward."""
    h = shape.width
    return encoder_flops(shape, length) + (2 * h * h + h + _GELU * h + 2 * h) * length


def masked_lm_flops(
    shape: EncoderConfig,
    length: int,
    rows: float,
    steps: float,
    share: float = OUTPUT_SHARE,
) -> float:
    """Return the FLOPs of training a masked language model."""
    forward = encoder_flops(shape, length) + softmax_flops(shape, length, share)
    return float(_PASSES * rows * steps * forward)


def training_flops(
    config: PretrainingConfig, softmax_share: float = OUTPUT_SHARE
) -> float:
    """Return the FLOPs of a config's training."""
    objective, facts = config.objective, config.objective.facts
    length, rows = config.records.max_length, config.input.batch_size
    steps = config.training.steps
    main = config.model.encoder
    if facts.head == "masked_lm":
        share = 1.0 if facts.softmax == "all" else softmax_share
        total = masked_lm_flops(main, length, rows, steps, share)
    else:
        together = steps * (1 - config.generator_share)
        total = _PASSES * rows * together * discriminator_flops(main, length)
    if not objective.has_generator:
        return total
    generator = config.model.generator
    if facts.towers == 2:
        softmax = softmax_flops(generator, length, 1.0, 2 * generator.width)
        forward = 2 * encoder_flops(generator, length) + softmax
        return total + _PASSES * rows * steps * forward
    trained = masked_lm_flops(generator, length, rows, steps, softmax_share)
    # In stage 2, or frozen, it runs forward only: half of the passes.
    if facts.stages == 2 or objective.freeze_generator:
        trained *= 1 - (1 - config.generator_share) / 2
    return total + trained
