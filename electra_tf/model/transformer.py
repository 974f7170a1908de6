"""BERT's encoder: from token ids to hidden states, layer norm after each residual sum.

All layers take `layer_ops`, which implements matmuls, attention and element-wise
operations including dropout (see `layer_ops.py`), and `dtype`, a Keras dtype policy.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import keras
from keras import ops

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError, check_type
from electra_tf.model.calls import (
    call_as_it_is,
    remat_scope_of_blocks,
    unpack_inputs,
)
from electra_tf.model.layer_ops import AttentionRecorder, LayerOps, Tensor
from electra_tf.model.saving import PACKAGE, build_layer
from electra_tf.model.summary import rows_of, summary

DELTA = "_delta"
"""End of the names of `DisentangledEmbeddings`' weights."""
_MASKED = -10000.0  # added to the scores of keys that are padding, as in BERT


class InitializerFactory:
    """Factory of initialisers with different seeds, derived from one seed."""

    def __init__(self, seed: int, stddev: float = 0.02):
        self._seed, self._stddev, self._drawn = seed, stddev, 0

    def normal(self) -> keras.initializers.Initializer:
        """Return BERT's initialiser: normal, truncated at two standard deviations."""
        return keras.initializers.TruncatedNormal(
            stddev=self._stddev, seed=self._next()
        )

    def glorot(self) -> keras.initializers.Initializer:
        """Return Glorot-uniform, the released code's default initialiser."""
        return keras.initializers.GlorotUniform(seed=self._next())

    def _next(self) -> int:
        self._drawn += 1
        digest = hashlib.sha256(f"{self._seed}:{self._drawn}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1


def layer_norm(
    name: str, epsilon: float, dtype: Any
) -> keras.layers.LayerNormalization:
    """Return a layer normalisation."""
    return keras.layers.LayerNormalization(epsilon=epsilon, name=name, dtype=dtype)


class DenseSkipBias(keras.layers.Dense):
    """Dense layer that skips its bias; the next fused operation adds it."""

    def call(self, x: Tensor, layer_ops: LayerOps | None = None) -> Tensor:
        """Multiply the last axis with the kernel."""
        return (layer_ops or LayerOps()).matmul(x, ops.convert_to_tensor(self.kernel))


class Embeddings(keras.layers.Layer):
    """Sum of token, segment and position embeddings, normalised."""

    def __init__(
        self, shape: EncoderConfig, seeds: InitializerFactory, dtype: Any = None
    ):
        super().__init__(name="embeddings", dtype=dtype)
        self._rows = {
            "word_embeddings": shape.vocabulary_size,
            "segment_embeddings": shape.segments,
            "position_embeddings": shape.max_positions,
        }
        self._initializers = {name: seeds.normal() for name in self._rows}
        self.width = shape.embedding
        self.layer_norm = layer_norm("layer_norm", shape.layer_norm_epsilon, dtype)
        self.dropout = keras.layers.Dropout(shape.dropout, dtype=dtype)

    def build(self, input_shape: Any = None) -> None:
        """Create the embedding tables."""
        for name, rows in self._rows.items():
            initializer = self._initializers[name]
            shape = (rows, self.width)
            # With autocast, Keras would round a shared table for all its uses.
            table = self.add_weight(
                name=name, shape=shape, initializer=initializer, autocast=False
            )
            setattr(self, name, table)
        self.layer_norm.build((None, None, self.width))

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        training: bool | None = None,
        layer_ops: LayerOps | None = None,
    ) -> Tensor:
        """Embed token and segment ids [B, L] as [B, L, E]."""
        length, longest = token_ids.shape[1], self._rows["position_embeddings"]
        if length is not None and length > longest:
            raise InputError(
                f"An input must have at most the encoder's {longest} positions",
                f"{length} positions",
                f"Cut the texts: tokenizer(texts, max_length={longest})",
            )
        layer_ops = layer_ops or LayerOps(training)
        words_BLE = self._look_up_words(token_ids, layer_ops)
        segments_BLE = ops.take(self.segment_embeddings, segment_ids, axis=0)
        positions_LE = self.position_embeddings[: ops.shape(token_ids)[1]]
        words_BLE, segments_BLE, positions_LE = (
            ops.cast(x, self.compute_dtype)
            for x in (words_BLE, segments_BLE, positions_LE)
        )
        x_BLE = self.layer_norm(words_BLE + segments_BLE + positions_LE)
        return layer_ops.dropout(x_BLE, self.dropout)

    output_shape = rows_of(lambda layer: layer.width)

    def _look_up_words(self, token_ids: Tensor, layer_ops: LayerOps) -> Tensor:
        return layer_ops.embedding_lookup(self.word_embeddings, token_ids)


class DisentangledEmbeddings(Embeddings):
    """Embeddings whose tables are another's plus a trained difference, 0 at first.

    The other tables get no gradient from here (gradient-disentangled embedding sharing,
    DeBERTa v3). The layer norm is this layer's own.
    """

    def __init__(
        self,
        shape: EncoderConfig,
        seeds: InitializerFactory,
        base: Embeddings,
        dtype: Any = None,
    ):
        super().__init__(shape, seeds, dtype)
        # Keras would list the weights of an attribute as weights of this layer.
        self._base = lambda: base

    def build(self, input_shape: Any = None) -> None:
        """Create the differences, `word_embeddings_delta` and so on."""
        self._deltas = {
            name: self.add_weight(
                name=name + DELTA,
                shape=(rows, self.width),
                initializer="zeros",
                autocast=False,
            )
            for name, rows in self._rows.items()
        }
        self.layer_norm.build((None, None, self.width))

    def _sum(self, name: str) -> Tensor:
        base = ops.stop_gradient(ops.convert_to_tensor(getattr(self._base(), name)))
        return base + ops.convert_to_tensor(self._deltas[name])

    word_embeddings = property(lambda self: self._sum("word_embeddings"))
    segment_embeddings = property(lambda self: self._sum("segment_embeddings"))
    position_embeddings = property(lambda self: self._sum("position_embeddings"))

    def _look_up_words(self, token_ids: Tensor, layer_ops: LayerOps) -> Tensor:
        table_VE = self._base().word_embeddings
        base_BLE = ops.stop_gradient(layer_ops.embedding_lookup(table_VE, token_ids))
        return base_BLE + ops.take(self._deltas["word_embeddings"], token_ids, axis=0)


class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention."""

    def __init__(
        self, shape: EncoderConfig, seeds: InitializerFactory, dtype: Any = None
    ):
        super().__init__(name="attention", dtype=dtype)
        self.width, self.heads = shape.width, shape.heads
        self.head_width = shape.width // shape.heads
        self.query, self.key, self.value, self.output_dense = (
            layer(
                shape.width, kernel_initializer=seeds.normal(), name=name, dtype=dtype
            )
            for name, layer in (
                *((name, keras.layers.Dense) for name in ("query", "key", "value")),
                ("output", DenseSkipBias),
            )
        )
        self.dropout = keras.layers.Dropout(shape.attention_dropout, dtype=dtype)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of the query, key, value and output layers."""
        for dense in (self.query, self.key, self.value, self.output_dense):
            dense.build((None, None, self.width))

    def call(
        self,
        x_BLD: Tensor,
        bias_B11K: Tensor,
        training: bool | None = None,
        layer_ops: LayerOps | None = None,
    ) -> Tensor:
        """Return the output layer's matmul without its bias, which the caller adds."""
        layer_ops, length = layer_ops or LayerOps(training), ops.shape(x_BLD)[1]
        # TensorFlow fuses matmul and bias only in 2-D.
        x_XD = ops.reshape(x_BLD, (-1, self.width))
        projections = self._scaled_query(x_XD), self.key(x_XD), self.value(x_XD)
        q_BNLH, k_BNKH, v_BNKH = (self._split(x_XD, length) for x_XD in projections)
        context_BLNH = layer_ops.attention(
            q_BNLH, k_BNKH, bias_B11K, v_BNKH, self.dropout
        )
        context_BLD = ops.reshape(context_BLNH, (-1, length, self.width))
        return self.output_dense(context_BLD, layer_ops=layer_ops)

    def _scaled_query(self, x_XD: Tensor) -> Tensor:
        """Return queries / sqrt(H).

        The weights are scaled, because they are fewer than the queries.
        """
        weights = self.query.kernel, self.query.bias
        scale = self.head_width**-0.5
        kernel_DD, bias_D = (ops.convert_to_tensor(w) * scale for w in weights)
        # TensorFlow does not fuse a matmul with `+`.
        return ops.add(ops.matmul(x_XD, kernel_DD), bias_D)

    def _split(self, x_XD: Tensor, length: int) -> Tensor:
        """Split the heads: [B * L, D] to [B, N, L, H]."""
        x_BLNH = ops.reshape(x_XD, (-1, length, self.heads, self.head_width))
        return ops.transpose(x_BLNH, (0, 2, 1, 3))


class Block(keras.layers.Layer):
    """Transformer layer: self-attention and feed-forward network with residuals."""

    def __init__(
        self,
        shape: EncoderConfig,
        seeds: InitializerFactory,
        name: str,
        dtype: Any = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.width, self.inner = shape.width, shape.feed_forward
        self.attention = SelfAttention(shape, seeds, dtype)
        self.attention_layer_norm = layer_norm(
            "attention_layer_norm", shape.layer_norm_epsilon, dtype
        )
        self.intermediate, self.output_dense = (
            DenseSkipBias(
                size, kernel_initializer=seeds.normal(), name=name, dtype=dtype
            )
            for name, size in (("intermediate", self.inner), ("output", self.width))
        )
        self.output_layer_norm = layer_norm(
            "output_layer_norm", shape.layer_norm_epsilon, dtype
        )
        self.attention_drop = keras.layers.Dropout(shape.dropout, dtype=dtype)
        self.output_drop = keras.layers.Dropout(shape.dropout, dtype=dtype)

    output_shape = rows_of(lambda layer: layer.width)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of attention, feed-forward network and norms."""
        hidden = (None, None, self.width)
        self.attention.build(hidden)
        self.attention_layer_norm.build(hidden)
        self.intermediate.build(hidden)
        self.output_dense.build((None, None, self.inner))
        self.output_layer_norm.build(hidden)

    # No property: Keras would store the layers under its name.
    def dense_layers(self) -> list[keras.layers.Dense]:
        """Return the layers with a kernel."""
        attention = self.attention
        projections = [attention.query, attention.key, attention.value]
        return [
            *projections,
            attention.output_dense,
            self.intermediate,
            self.output_dense,
        ]

    def rematerialized_call(
        self, layer_call: Callable[..., Tensor], *args: Any, **kwargs: Any
    ) -> Callable[..., Tensor]:
        """Return the call for a layer that was created in a `keras.RematScope`."""
        if super().rematerialized_call(layer_call) is layer_call:
            return layer_call  # the scope is for other layers

        def call(
            x_BLD: Tensor,
            bias_B11K: Tensor,
            training: bool | None = None,
            layer_ops: LayerOps | None = None,
        ) -> Tensor:
            def call_once(x_BLD: Tensor, layer_ops: LayerOps) -> Tensor:
                return layer_call(x_BLD, bias_B11K, layer_ops=layer_ops)

            return (layer_ops or LayerOps(training)).recompute(call_once, x_BLD)

        return call

    def call(
        self,
        x_BLD: Tensor,
        bias_B11K: Tensor,
        training: bool | None = None,
        layer_ops: LayerOps | None = None,
    ) -> Tensor:
        """Return the next hidden states, [B, L, D]."""
        layer_ops = layer_ops or LayerOps(training)
        x_BLD = layer_ops.bias_dropout_add_norm(
            self.attention(x_BLD, bias_B11K, layer_ops=layer_ops),
            self.attention.output_dense.bias,
            x_BLD,
            self.attention_drop,
            self.attention_layer_norm,
        )
        inner_BLF = self.intermediate(x_BLD, layer_ops=layer_ops)
        inner_BLF = layer_ops.bias_gelu(inner_BLF, self.intermediate.bias)
        return layer_ops.bias_dropout_add_norm(
            self.output_dense(inner_BLF, layer_ops=layer_ops),
            self.output_dense.bias,
            x_BLD,
            self.output_drop,
            self.output_layer_norm,
        )


@keras.saving.register_keras_serializable(PACKAGE)
class Encoder(keras.layers.Layer):
    """Transformer encoder (BERT; ELECTRA paper, section 2).

    Embeddings whose width differs from that of the hidden states are projected after
    their layer norm and dropout.

    Args:
        shape: Depth, widths, tables and dropout.
        seed: Seed of the initial values.
        embeddings: Another encoder's embeddings to share; None creates new ones.
        name: Name of the layer, with which the paths of its weights begin.
        dtype: Keras dtype policy.
        trainable: Whether the weights are trained.

    Example:
        import electra_tf
        import numpy as np

        encoder = electra_tf.Encoder.from_preset("run")  # a run's newest checkpoint
        encoder.embed(["a fine film", "a dull film"])  # float32 [2, D]
        ids, mask = np.array([[2, 9, 3, 0]]), np.array([[1, 1, 1, 0]])
        encoder(ids, segment_ids=np.zeros_like(ids), padding_mask=mask)  # [1, 4, D]
    """

    # `electra_tf/__init__.py`, above, sets these.
    from_preset: ClassVar[Callable[..., "Encoder"]]
    """Load an encoder from any source."""
    embed: ClassVar[Callable[..., Any]]
    """Return a vector for each text (`tasks/pretrained_texts.py`)."""

    rematerialized_call = call_as_it_is
    tokenizer: Any = None
    """The `Tokenizer` of `from_preset`, which is not part of the config; None: none."""

    def __init__(
        self,
        shape: EncoderConfig,
        seed: int = 0,
        embeddings: Embeddings | None = None,
        name: str = "encoder",
        dtype: Any = None,
        trainable: bool = True,
    ):
        super().__init__(name=name, dtype=dtype)
        remedy = "Pass config.model.encoder, or call Encoder.from_preset"
        check_type("shape", shape, EncoderConfig, remedy)
        self.shape, self.seed = shape, seed
        seeds = InitializerFactory(seed, shape.initializer_range)
        names = [f"layer_{i}" for i in range(shape.depth)]
        with remat_scope_of_blocks(self, names):
            self.embeddings = embeddings or Embeddings(shape, seeds, dtype)
            self.embeddings_project = None
            if self.embeddings.width != shape.width:
                self.embeddings_project = keras.layers.Dense(
                    shape.width, kernel_initializer=seeds.glorot(),
                    name="embeddings_project", dtype=dtype,
                )  # fmt: skip
            self.blocks = [Block(shape, seeds, name, dtype) for name in names]
        self._has_own_tables = embeddings is None
        self.trainable = trainable

    summary = summary
    output_shape = rows_of(lambda layer: layer.shape.width)

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """Return the parts in the order of the computation."""
        project = [self.embeddings_project] * (self.embeddings_project is not None)
        return [self.embeddings, *project, *self.blocks]

    def build(self, input_shape: Any = None) -> None:
        """Create all weights, except those of shared embeddings that are built."""
        if not self.embeddings.built:
            self.embeddings.build((None, None))
        if self.embeddings_project is not None:
            self.embeddings_project.build((None, None, self.embeddings.width))
        for block in self.blocks:
            block.build((None, None, self.shape.width))

    def call(
        self,
        token_ids: Tensor | Mapping[str, Tensor],
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        layer_ops: LayerOps | None = None,
        attends_to: Literal["all", "left", "right"] = "all",
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Tensor | dict[str, Any]:
        """Compute the hidden states of the last layer.

        Args:
            token_ids: int32 [B, L]; or a dictionary of `token_ids`, `segment_ids` and
                `padding_mask`.
            segment_ids: int32 [B, L].
            padding_mask: [B, L], 1 at real tokens.
            training: Whether dropout is applied; ignored if `layer_ops` is given.
            layer_ops: Implementation of the operations; None uses Keras operations.
            attends_to: Positions that a position attends to: all, or itself and those
                on one side.
            output_hidden_states: Whether to return the states of all layers too.
            output_attentions: Whether to return the attention maps too.

        Returns:
            [B, L, D]. The vector of [CLS], a row's first, represents the row. With one
            of the last two arguments a dictionary: `last_hidden_state`, [B, L, D];
            `hidden_states`, the states below the first layer and after each layer;
            `attentions`, for each layer the attention of each position to each other
            before dropout, float32 [B, heads, L, L].
        """
        inputs = unpack_inputs(token_ids, segment_ids, padding_mask)
        maps: list[Tensor] = []
        if output_attentions:
            if layer_ops is not None:
                raise InputError(
                    "output_attentions must be used without layer_ops",
                    f"layer_ops={layer_ops!r}",
                    "Leave out layer_ops",
                )
            layer_ops = AttentionRecorder(training)
            maps = layer_ops.maps
        hidden_states = []
        for x_BLD in self.states(*inputs, training, layer_ops, attends_to):
            if output_hidden_states:
                hidden_states.append(x_BLD)
        outputs = {"hidden_states": hidden_states, "attentions": maps}
        outputs = {name: values for name, values in outputs.items() if values}
        return {"last_hidden_state": x_BLD, **outputs} if outputs else x_BLD

    def states(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        padding_mask: Tensor,
        training: bool | None = None,
        layer_ops: LayerOps | None = None,
        attends_to: Literal["all", "left", "right"] = "all",
    ) -> Iterator[Tensor]:
        """Yield the hidden states below the first layer and after each layer.

        The arguments are those of `call`.
        """
        real_BL = ops.cast(padding_mask, "float32")
        # Not `real_BL[:, None, None, :]`, which LiteRT does not support.
        visible_B11K = ops.expand_dims(real_BL, (1, 2))
        if attends_to != "all":
            every_LK = ops.ones([token_ids.shape[1]] * 2, "float32")
            side_LK = ops.tril(every_LK) if attends_to == "left" else ops.triu(every_LK)
            visible_B11K = visible_B11K * side_LK
        bias_B11K = (1.0 - visible_B11K) * _MASKED
        layer_ops = layer_ops or LayerOps(training)
        x = self.embeddings(token_ids, segment_ids, layer_ops=layer_ops)
        if self.embeddings_project is not None:
            x = self.embeddings_project(x)
        yield x
        for block in self.blocks:
            x = block(x, bias_B11K, layer_ops=layer_ops)
            yield x

    def enable_lora(
        self,
        rank: int,
        target_layer_names: Sequence[str] = ("query", "value"),
        seed: int = 0,
    ) -> None:
        """Freeze the encoder, and train low-rank changes of some kernels (LoRA).

        The changes are 0 at first. Files of `save` have them added to the kernels, so
        a loaded model has no LoRA.

        Args:
            rank: Rank of the change of a kernel: rank x (inputs + outputs) weights.
            target_layer_names: Dense layers of each block: `query`, `key`, `value`,
                `output` (of attention and of the feed-forward network) and
                `intermediate`.
            seed: Of the first of a change's two factors; the second is 0.

        Raises:
            InputError: A name is unknown, the rank is not positive, or the encoder has
                LoRA already.
        """
        names = {*target_layer_names}
        layers = [layer for block in self.blocks for layer in block.dense_layers()]
        known = {layer.name for layer in layers}
        chosen = [layer for layer in layers if layer.name in names]
        if rank < 1 or not names or names - known or chosen[0].lora_enabled:
            raise InputError(
                "enable_lora must be called once, with a rank of 1 or more and some of "
                f"the layers {', '.join(sorted(known))}",
                f"rank={rank!r}, target_layer_names={target_layer_names!r}"
                + ", with LoRA already" * any(layer.lora_enabled for layer in layers),
                "Pass other arguments, or load the encoder again",
            )
        for weight in self.weights:
            weight.trainable = False
        for number, layer in enumerate(chosen):
            factor = keras.initializers.HeUniform(seed * len(chosen) + number)
            layer.enable_lora(rank, a_initializer=factor)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of an equal encoder, as JSON.

        Raises:
            InputError: The embeddings are shared, which a config cannot express.
        """
        if not self._has_own_tables:
            raise InputError(
                "An encoder must have its own embeddings to be saved as a layer",
                f"{self.name!r}, which uses the embeddings of another encoder",
                "Save the Electra layer that contains both",
            )
        arguments = {"shape": dataclasses.asdict(self.shape), "seed": self.seed}
        return super().get_config() | arguments

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Encoder":
        """Create an encoder of the same shape and initial values."""
        return build_layer(cls, config, shape=EncoderConfig)
