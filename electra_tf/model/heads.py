"""Heads: hidden states -> logits, always float32.

A head is a float32 layer and applies `dtype` to its hidden layer only. Keras would cast
the weights of a head with a mixed policy to low precision.
"""

from typing import Any

import keras
from keras import ops

from electra_tf.config.finetuning import POOLED_VECTORS, Pooler, Pooling
from electra_tf.config.model import EncoderConfig
from electra_tf.model.layer_ops import LayerOps, Tensor, gelu
from electra_tf.model.transformer import InitializerFactory, layer_norm

_EXCLUDED = -1e9  # a logit whose softmax is exactly 0
_OUTSIDE = -1000.0  # added to the logits of positions outside the context
_EPSILON = 1e-6  # of mean squares
_HIDDEN = 512  # width of the hidden layers of `SpanHead`


class MaskedLMHead(keras.layers.Layer):
    """Masked-LM head of BERT, with a token table of width `embedding` as output matrix.

    `width` is that of the hidden states; None: the encoder's.
    """

    def __init__(
        self,
        shape: EncoderConfig,
        embedding: int,
        seed: int,
        dtype: Any = None,
        width: int | None = None,
    ):
        super().__init__(name="head", dtype="float32")
        seeds = InitializerFactory(seed, shape.initializer_range)
        self._width, self._spare_rows = width or shape.width, shape.spare_rows
        self._vocabulary_size = shape.vocabulary_size
        self.dense = keras.layers.Dense(
            embedding,
            gelu,
            kernel_initializer=seeds.normal(),
            name="dense",
            dtype=dtype,
        )
        self.layer_norm = layer_norm("layer_norm", shape.layer_norm_epsilon, dtype)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights except the token table, which the embeddings own."""
        self.dense.build((None, None, self._width))
        self.layer_norm.build((None, None, self.dense.units))
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self._vocabulary_size,), initializer="zeros"
        )

    def call(
        self, x_BMD: Tensor, table_VE: Tensor, layer_ops: LayerOps | None = None
    ) -> Tensor:
        """Return logits, float32 [B, M, V], of hidden states [B, M, D]."""
        flat_XE = self.outputs(x_BMD)
        layer_ops = layer_ops or LayerOps()
        logits_XV = layer_ops.vocab_logits(flat_XE, table_VE, self.logit_bias)
        size = ops.shape(x_BMD)[1]
        return ops.reshape(logits_XV, (-1, size, self._vocabulary_size))

    @property
    def logit_bias(self) -> Tensor:
        """Return the bias of the logits, float32 [V], which excludes spare rows."""
        bias_V = ops.convert_to_tensor(self.output_bias, "float32")
        if not self._spare_rows:
            return bias_V
        excluded = ops.full((self._spare_rows,), _EXCLUDED, "float32")
        return ops.concatenate([bias_V[: -self._spare_rows], excluded])

    def outputs(self, x_BMD: Tensor) -> Tensor:
        """Return the factors of the token table, float32 [X, E]."""
        hidden_BME = _float32(self.layer_norm(self.dense(x_BMD)))
        return ops.reshape(hidden_BME, (-1, self.dense.units))


class ReplacedTokenHead(keras.layers.Layer):
    """Head that classifies each token as original or replaced (paper, section 2)."""

    def __init__(self, shape: EncoderConfig, seed: int, dtype: Any = None):
        super().__init__(name="head", dtype="float32")
        seeds = InitializerFactory(seed, shape.initializer_range)
        self._width = shape.width
        self.dense = keras.layers.Dense(
            shape.width,
            gelu,
            kernel_initializer=seeds.normal(),
            name="dense",
            dtype=dtype,
        )
        self.score = _dense("score", 1, seeds)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of both layers."""
        self.dense.build((None, None, self._width))
        self.score.build((None, None, self._width))

    def call(self, x_BLD: Tensor) -> Tensor:
        """Return logits of "replaced", float32 [B, L], of hidden states [B, L, D]."""
        return self.score(self.dense(x_BLD))[..., 0]


class ClassificationHead(keras.layers.Layer):
    """Dense layer on one vector of a text, for `units` classes or, with 1, regression.

    `pooling` makes the vector: `cls`, that of [CLS]; `mean`, the mean over positions
    without padding; `pair`, with the means u and v of segments 0 and 1, the
    concatenation of u, v, |u - v| and the terms of their cosine (after Reimers and
    Gurevych, 2019), where all but u are 0 for a single text. With one output and no
    pooler, `pair` begins as the cosine, whatever the seed. `pooler` adds a hidden
    layer: none in the original, gelu in Hugging Face's ELECTRA.
    """

    def __init__(
        self,
        width: int,
        units: int,
        dropout: float = 0.1,
        seed: int = 0,
        pooler: Pooler = "none",
        pooling: Pooling = "cls",
    ):
        super().__init__(name="head", dtype="float32")
        self._width = POOLED_VECTORS[pooling] * width
        self._hidden = width if pooler != "none" else self._width
        self._pooling = pooling
        seeds = InitializerFactory(seed)
        self.dropout = keras.layers.Dropout(dropout, dtype="float32")
        self.dense = _dense("dense", units, seeds)
        if pooling == "pair" and pooler == "none" and units == 1:
            self.dense.kernel_initializer = _CosineKernel()
        self.pooler = None
        if pooler != "none":
            self.pooler = keras.layers.Dense(
                width, gelu, name="pooler",
                kernel_initializer=seeds.normal(), dtype="float32",
            )  # fmt: skip

    def build(self, input_shape: Any = None) -> None:
        """Create the weights."""
        self.dense.build((None, self._hidden))
        if self.pooler is not None:
            self.pooler.build((None, self._width))

    def call(
        self,
        x_BLD: Tensor,
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        layer_ops: LayerOps | None = None,
    ) -> Tensor:
        """Return logits, float32 [B, C], of hidden states [B, L, D].

        `segment_ids` and `padding_mask`, int32 [B, L], are not used by `cls`.
        """
        layer_ops = layer_ops or LayerOps(training)
        x_BD = _pool(self._pooling, x_BLD, segment_ids, padding_mask)
        x_BD = layer_ops.dropout(x_BD, self.dropout)
        if self.pooler is not None:
            x_BD = layer_ops.dropout(self.pooler(x_BD), self.dropout)
        return self.dense(x_BD)


class TokenClassificationHead(keras.layers.Layer):
    """Dense layer on each vector, for `units` tags."""

    def __init__(self, width: int, units: int, seed: int = 0):
        super().__init__(name="head", dtype="float32")
        self._width = width
        self.dense = _dense("dense", units, InitializerFactory(seed))

    def build(self, input_shape: Any = None) -> None:
        """Create the weights."""
        self.dense.build((None, None, self._width))

    def call(self, x_BLD: Tensor) -> Tensor:
        """Return logits, float32 [B, L, C], of hidden states [B, L, D]."""
        return self.dense(x_BLD)


class _PairDense(keras.layers.Dense):
    """Dense layer on all pairs of vectors, equal to one on their concatenation.

    The kernel is split in two, so the second vectors are multiplied only once.
    """

    def build(self, input_shape: Any) -> None:
        """Create the weights for the width of the concatenation."""
        super().build(input_shape)
        self.input_spec = None  # neither input alone has both widths

    def call(self, first_BSD: Tensor, second_BLD: Tensor) -> Tensor:
        """Return outputs, [B, S, L, units], of all pairs of vectors."""
        width = second_BLD.shape[-1]
        first_BSF = ops.matmul(first_BSD, self.kernel[:width])
        second_BLF = ops.matmul(second_BLD, self.kernel[width:]) + self.bias
        # `expand_dims`, because LiteRT has no operation for `[:, None]`.
        first_BS1F = ops.expand_dims(first_BSF, 2)
        return self.activation(first_BS1F + ops.expand_dims(second_BLF, 1))


class SpanHead(keras.layers.Layer):
    """Extractive question answering head: start, end and answerability logits.

    An answer is in segment 1; position 0 represents no answer. The logits of all other
    positions are lowered by 1000, as in the original. There are `start_n_top`
    candidates for the start, and for the end given each start. With `joint_prediction`
    the end logits depend on the start; with `answerable` there is a logit of no answer.
    """

    def __init__(
        self,
        width: int,
        seeds: InitializerFactory,
        start_n_top: int = 20,
        joint_prediction: bool = True,
        answerable: bool = True,
        dtype: Any = None,
    ):
        super().__init__(name="head", dtype="float32")
        self._width, self._start_n_top = width, start_n_top
        self.start = _dense("start", 1, seeds)
        self.end_hidden = self.answerable_hidden = self.answerable = None
        if joint_prediction:
            self.end_hidden = _PairDense(
                _HIDDEN, gelu, kernel_initializer=seeds.glorot(), name="end_hidden",
                dtype=dtype,
            )  # fmt: skip
        self.end = _dense("end", 1, seeds)
        if answerable:
            self.answerable_hidden = keras.layers.Dense(
                _HIDDEN, gelu, kernel_initializer=seeds.glorot(),
                name="answerable_hidden", dtype=dtype,
            )  # fmt: skip
            self.answerable = _dense("answerable", 1, seeds)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights."""
        pair, hidden = (None, 2 * self._width), self._width
        self.start.build((None, self._width))
        if self.end_hidden is not None:
            self.end_hidden.build(pair)
            hidden = self.end_hidden.units
        self.end.build((None, hidden))
        if self.answerable is not None:
            self.answerable_hidden.build(pair)
            self.answerable.build((None, self.answerable_hidden.units))

    def call(
        self, x_BLD: Tensor, segment_ids_BL: Tensor, starts_B: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Compute logits or, in joint prediction without `starts_B`, the best spans.

        Args:
            x_BLD: Hidden states.
            segment_ids_BL: int32, 1 at the context, 0 elsewhere and at padding.
            starts_B: int32, the gold starts, for training.

        Returns:
            `start_logits_BL` and, if the head has it, `answerable_logit_B`, which is
            above 0 for no answer. `end_logits_BL` with `starts_B` or without joint
            prediction; otherwise min(start_n_top, L) candidates, best first, as
            `start_top_log_probs_BS`, `start_top_index_BS`, `end_top_log_probs_BSK` and
            `end_top_index_BSK`. Indices are int32, all other outputs float32.
        """
        outside_BL = _outside(segment_ids_BL)
        start_BL = self.start(x_BLD)[..., 0] + outside_BL
        outputs = {"start_logits_BL": start_BL}
        if self.answerable is not None:
            outputs["answerable_logit_B"] = self._answerable(x_BLD, start_BL)
        if self.end_hidden is None:
            outputs["end_logits_BL"] = self.end(x_BLD)[..., 0] + outside_BL
        elif starts_B is not None:
            end_BSL = self._ends(x_BLD, starts_B[:, None], outside_BL)
            outputs["end_logits_BL"] = end_BSL[:, 0]
        else:
            outputs.update(self._top_spans(x_BLD, start_BL, outside_BL))
        return outputs

    def _top_spans(
        self, x_BLD: Tensor, start_BL: Tensor, outside_BL: Tensor
    ) -> dict[str, Tensor]:
        """Return the best starts, and the best ends given each start."""
        length = x_BLD.shape[1]
        if length is None:
            size = ops.minimum(self._start_n_top, ops.shape(x_BLD)[1])
        else:
            size = min(self._start_n_top, length)
        start_BS, index_BS = ops.top_k(ops.log_softmax(start_BL), size)
        end_BSL = self._ends(x_BLD, index_BS, outside_BL)
        end_BSK, index_BSK = ops.top_k(ops.log_softmax(end_BSL), size)
        return {
            "start_top_log_probs_BS": start_BS,
            "start_top_index_BS": index_BS,
            "end_top_log_probs_BSK": end_BSK,
            "end_top_index_BSK": index_BSK,
        }

    def _ends(self, x_BLD: Tensor, index_BS: Tensor, outside_BL: Tensor) -> Tensor:
        """Return the end logits [B, S, L] given each start."""
        # A matmul with a one-hot matrix is exact, and faster than a gather.
        one_hot_BSL = ops.one_hot(index_BS, ops.shape(x_BLD)[1], dtype=x_BLD.dtype)
        start_BSD = ops.matmul(one_hot_BSL, x_BLD)
        hidden_BSLF = self.end_hidden(start_BSD, x_BLD)
        return self.end(hidden_BSLF)[..., 0] + ops.expand_dims(outside_BL, 1)

    def _answerable(self, x_BLD: Tensor, start_BL: Tensor) -> Tensor:
        """Return the logit of no answer, [B], from [CLS] and the expected start."""
        weights_BL = ops.softmax(start_BL)
        x32_BLD = _float32(x_BLD)
        start_BD = ops.matmul(ops.expand_dims(weights_BL, 1), x32_BLD)[:, 0]
        pair_BD = ops.concatenate([x32_BLD[:, 0], start_BD], axis=-1)
        return self.answerable(self.answerable_hidden(pair_BD))[..., 0]


def _outside(segment_ids_BL: Tensor) -> Tensor:
    """Return 0 where an answer may be, -1000 elsewhere."""
    first_L = _float32(ops.arange(ops.shape(segment_ids_BL)[1]) == 0)
    inside_BL = _float32(segment_ids_BL) + first_L
    return (1.0 - inside_BL) * _OUTSIDE


def _pool(
    pooling: Pooling, x_BLD: Tensor, segment_ids_BL: Tensor, padding_mask_BL: Tensor
) -> Tensor:
    """Return the vector of each text, float32 [B, D] or, of `pair`, [B, 4 D]."""
    if pooling == "cls":
        return _float32(x_BLD[:, 0])
    x_BLD, real_BL = _float32(x_BLD), _float32(padding_mask_BL)
    if pooling == "mean":
        return _mean(x_BLD, real_BL)
    second_BL = real_BL * _float32(segment_ids_BL)
    u_BD, v_BD = _mean(x_BLD, real_BL - second_BL), _mean(x_BLD, second_BL)
    is_pair_B1 = ops.max(second_BL, axis=1, keepdims=True)
    cosines_BD = _unit_scale(u_BD) * _unit_scale(v_BD)  # their mean is the cosine
    return ops.concatenate(
        [u_BD, v_BD, is_pair_B1 * ops.abs(u_BD - v_BD), cosines_BD], axis=-1
    )


def _mean(x_BLD: Tensor, weights_BL: Tensor) -> Tensor:
    """Return the weighted means over positions [B, D], 0 without any weight."""
    sums_BD = ops.matmul(ops.expand_dims(weights_BL, 1), x_BLD)[:, 0]
    return sums_BD / ops.maximum(ops.sum(weights_BL, axis=1, keepdims=True), 1.0)


def _unit_scale(x_BD: Tensor) -> Tensor:
    """Return vectors with a root mean square of 1; 0 stays 0."""
    squares_B1 = ops.mean(ops.square(x_BD), axis=-1, keepdims=True)
    return x_BD * ops.rsqrt(squares_B1 + _EPSILON)


class _CosineKernel(keras.initializers.Initializer):
    """Kernel of which the output is the cosine of the two texts' vectors."""

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """Return the kernel, [4 D, 1]."""
        width = shape[0] // POOLED_VECTORS["pair"]
        return ops.reshape(ops.repeat([0.0, 1.0 / width], [3 * width, width]), shape)


def _dense(name: str, units: int, seeds: InitializerFactory) -> keras.layers.Dense:
    """Return an output layer, which is float32 under any global policy."""
    return keras.layers.Dense(
        units, kernel_initializer=seeds.glorot(), name=name, dtype="float32"
    )


def _float32(x: Tensor) -> Tensor:
    return ops.cast(x, "float32")
