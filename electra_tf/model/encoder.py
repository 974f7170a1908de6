"""Encoder: embeddings and Transformer layers, from token ids to hidden states."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import keras
from keras import ops

from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError, check_type
from electra_tf.model import keras_layers
from electra_tf.model.layer_ops import AttentionRecorder, LayerOps, Tensor
from electra_tf.model.transformer import Block, Embeddings, InitializerFactory

_MASKED = -10000.0  # added to the scores of keys that are padding, as in BERT


class TransformerEncoder(keras.layers.Layer):
    """The layers of `electra_tf.Encoder`, which adds its tokenizer and files."""

    def __init__(
        self,
        shape: EncoderConfig,
        seed: int = 0,
        embeddings: Embeddings | None = None,
        name: str = "encoder",
        dtype: Any = None,
        trainable: bool = True,
        remat: bool = False,
    ):
        super().__init__(name=name, dtype=dtype)
        remedy = "pass config.model.encoder, or call Encoder.from_preset"
        check_type("shape", shape, EncoderConfig, remedy)
        self.shape, self.seed = shape, seed
        self.remat = remat
        """True if the backward pass computes each Transformer layer again."""
        seeds = InitializerFactory(seed, shape.initializer_range)
        names = [f"layer_{i}" for i in range(shape.depth)]
        self.embeddings = embeddings or Embeddings(shape, seeds, dtype)
        self.embeddings_project = None
        if self.embeddings.width != shape.width:
            self.embeddings_project = keras.layers.Dense(
                shape.width,
                kernel_initializer=seeds.glorot(),
                name="embeddings_project",
                dtype=dtype,
            )
        self.blocks = [Block(shape, seeds, name, dtype) for name in names]
        self._has_own_tables = embeddings is None
        self.trainable = trainable

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
        cls_only: bool = False,
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
            cls_only: Whether the last layer computes the vector of [CLS] alone, so that
                the last state is [B, 1, D].

        Returns:
            [B, L, D]. The vector of [CLS], a row's first, represents the row. With one
            of the last two arguments a dictionary: `last_hidden_state`, [B, L, D];
            `hidden_states`, the states below the first layer and after each layer;
            `attentions`, for each layer the attention of each position to each other
            before dropout, float32 [B, heads, L, L].
        """
        inputs = keras_layers.unpack_inputs(token_ids, segment_ids, padding_mask)
        maps: list[Tensor] = []
        if output_attentions:
            if layer_ops is not None:
                raise InputError("output_attentions must be used without layer_ops")
            layer_ops = AttentionRecorder(training)
            maps = layer_ops.maps
        hidden_states = []
        layer_ops = layer_ops or LayerOps(training)
        for x_BLD in self.states(*inputs, layer_ops, attends_to, cls_only):
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
        layer_ops: LayerOps,
        attends_to: Literal["all", "left", "right"] = "all",
        cls_only: bool = False,
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
        x = self.embeddings(token_ids, segment_ids, layer_ops=layer_ops)
        if self.embeddings_project is not None:
            x = self.embeddings_project(x)
        yield x
        for block in self.blocks[:-1]:
            x = self._call_block(block, x, bias_B11K, layer_ops)
            yield x
        if cls_only:
            bias_B11K = bias_B11K[:, :, :1]
        yield self._call_block(self.blocks[-1], x, bias_B11K, layer_ops, cls_only)

    def _call_block(
        self,
        block: Block,
        x_BLD: Tensor,
        bias_B11K: Tensor,
        layer_ops: LayerOps,
        cls_only: bool = False,
    ) -> Tensor:
        """Call a layer; with `remat` again in the backward pass, with equal dropout."""
        if not self.remat or isinstance(layer_ops, AttentionRecorder):
            return block(x_BLD, bias_B11K, layer_ops=layer_ops, cls_only=cls_only)
        start = layer_ops.reserve(block.dropouts)

        def call(x_BLD: Tensor) -> Tensor:
            with layer_ops.starting_at(start) as ops_of_block:
                return block(
                    x_BLD, bias_B11K, layer_ops=ops_of_block, cls_only=cls_only
                )

        return keras.remat(call)(x_BLD)

    def set_dropout(self, dropout: float, attention_dropout: float) -> None:
        """Set rates; functions that are compiled already keep theirs."""
        rates = {"dropout": dropout, "attention_dropout": attention_dropout}
        self.shape = dataclasses.replace(self.shape, **rates)
        self.embeddings.dropout.rate = dropout
        for block in self.blocks:
            block.attention_drop.rate = block.output_drop.rate = dropout
            block.attention.dropout.rate = attention_dropout

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of an equal encoder, as JSON.

        Raises:
            InputError: The embeddings are shared, which a config cannot express.
        """
        if not self._has_own_tables:
            raise InputError(
                f"{self.name!r} uses the embeddings of another encoder; save the "
                "Electra layer that contains both"
            )
        arguments = {"shape": dataclasses.asdict(self.shape), "seed": self.seed}
        arguments["remat"] = self.remat
        return super().get_config() | arguments

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TransformerEncoder":
        """Create an encoder of the same shape and initial values."""
        return keras_layers.build_layer(cls, config, shape=EncoderConfig)
