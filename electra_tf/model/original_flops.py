"""FLOPs by the counting rules of the released code, in which the paper's are given.

An operation is one mathematical operation: a matmul of [m, k] by [k, n] has 2mkn. The
rules count embedding lookups as matmuls with one-hot vectors, and a backward pass like
a forward pass. `cost.py` counts what this package executes instead.
"""

import dataclasses

from electra_tf.config.model import EncoderConfig
from electra_tf.config.pretraining import PretrainingConfig

# Operations for each value.
_DROPOUT, _LAYER_NORM, _GELU, _SOFTMAX = 4, 5, 8, 5
_PASSES = 2  # forward and backward

OUTPUT_SHARE = 0.15625
"""Share of the positions that get a softmax in the published figures: 20 of 128."""


@dataclasses.dataclass(frozen=True)
class Network:
    """Shape of a Transformer and of its inputs."""

    width: int
    depth: int
    length: int = 512
    vocabulary_size: int = 30522
    embedding: int | None = None
    """None: `width`."""
    feed_forward: int | None = None
    """None: 4 x `width`."""
    heads: int | None = None
    """None: `width` / 64, at least 1."""

    @classmethod
    def of(cls, shape: EncoderConfig, length: int) -> "Network":
        """Return the network of an encoder's settings."""
        return cls(
            shape.width,
            shape.depth,
            length,
            shape.vocabulary_size,
            shape.embedding,
            shape.feed_forward,
            shape.heads,
        )

    def encoder(self) -> int:
        """Return the FLOPs of embeddings and layers for one row, forward."""
        return self.depth * self._layer() + self._embeddings()

    def softmax(self, share: float, width: int | None = None) -> float:
        """Return the FLOPs of the masked-LM head for one row, forward."""
        e, v = self._embedding, self.vocabulary_size
        matmuls = 2 * e * v + 2 * (width or self.width) * e
        rest = e * (1 + _GELU + _LAYER_NORM) + v * (_SOFTMAX + 2)
        return share * (matmuls + rest) * self.length

    def classifier(self) -> int:
        """Return the FLOPs of the replaced-token head for one row, forward."""
        h = self.width
        return (2 * h * h + h + _GELU * h + 2 * h) * self.length

    @property
    def _embedding(self) -> int:
        return self.embedding or self.width

    def _layer(self) -> int:
        h, s = self.width, self.length
        heads = self.heads or max(h // 64, 1)
        inner = self.feed_forward or 4 * h
        attention = (
            *(6 * h * h, 3 * h),  # queries, keys, values
            *(2 * h * s, s * heads * (_SOFTMAX + _DROPOUT + 1), 2 * h * s),
            *(2 * h * h, h * (1 + _DROPOUT + 1)),  # output
            _LAYER_NORM,  # not multiplied by the width: a slip of the released code
        )
        feed_forward = (
            *(4 * h * inner, inner * (_GELU + 1)),
            h * (1 + _DROPOUT + 1 + _LAYER_NORM),
        )
        return (sum(attention) + sum(feed_forward)) * s

    def _embeddings(self) -> int:
        e, s, h = self._embedding, self.length, self.width
        lookups = 2 * e * self.vocabulary_size + 2 * e * (s + 2)
        rest = e * (2 + _LAYER_NORM + _DROPOUT)
        projection = 2 * h * e + h if e != h else 0
        return (lookups + rest + projection) * s


def masked_lm_flops(
    network: Network, rows: float, steps: float, share: float = OUTPUT_SHARE
) -> float:
    """Return the FLOPs of training a masked language model."""
    forward = network.encoder() + network.softmax(share)
    return float(_PASSES * rows * steps * forward)


def discriminator_flops(network: Network, rows: float, steps: float) -> float:
    """Return the FLOPs of training a discriminator."""
    return _PASSES * rows * steps * (network.encoder() + network.classifier())


def training_flops(
    config: PretrainingConfig, softmax_share: float = OUTPUT_SHARE
) -> float:
    """Return the FLOPs of a config's training."""
    objective, facts = config.objective, config.objective.facts
    length, rows = config.records.max_length, config.mean_batch_size
    steps = config.training.steps
    main = Network.of(config.model.encoder, length)
    if facts.head == "masked_lm":
        share = 1.0 if facts.softmax == "all" else softmax_share
        total = masked_lm_flops(main, rows, steps, share)
    else:
        together = steps * (1 - config.generator_share)
        total = discriminator_flops(main, rows, together)
        if facts.corrector:
            total += _PASSES * rows * together * main.softmax(softmax_share)
    if not objective.has_generator:
        return total
    generator = Network.of(config.model.generator, length)
    if facts.towers == 2:
        softmax = generator.softmax(1.0, width=2 * generator.width)
        return total + _PASSES * rows * steps * (2 * generator.encoder() + softmax)
    trained = masked_lm_flops(generator, rows, steps, softmax_share)
    # In stage 2, or frozen, it runs forward only: half of the passes.
    if facts.stages == 2 or objective.freeze_generator:
        trained *= 1 - (1 - config.generator_share) / 2
    return total + trained
