"""Generator and discriminator, and the sharing of their weights.

`dtype` is the Keras dtype policy of the encoders. The layers around them are float32
(see `heads.py`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
from keras import ops

from electra_tf.config.ended_settings import drop_ended
from electra_tf.config.model import ModelConfig
from electra_tf.config.objectives import ObjectiveSettings
from electra_tf.errors import InputError, check_type
from electra_tf.model import keras_layers
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.model.heads import MaskedLMHead, ReplacedTokenHead
from electra_tf.model.layer_ops import LayerOps, Tensor
from electra_tf.model.transformer import DisentangledEmbeddings, InitializerFactory
from electra_tf.model.two_towers import TwoTowerGenerator

# Each part has its own seed, so changing one part keeps the others' initial values.
_DISCRIMINATOR, _GENERATOR, _DISCRIMINATOR_HEAD, _GENERATOR_HEAD = range(4)


class MaskedLM(keras.layers.Layer):
    """The layers of `electra_tf.MaskedLanguageModel`, which adds files and texts."""

    def __init__(
        self,
        encoder: TransformerEncoder,
        seed: int = 0,
        name: str = "masked_language_model",
        dtype: Any = None,
        trainable: bool = True,
    ):
        super().__init__(name=name, dtype="float32")
        remedy = "pass Encoder.from_preset(...)"
        check_type("encoder", encoder, TransformerEncoder, remedy)
        self.encoder, self._seed = encoder, seed
        self._policy = keras_layers.policy_config(dtype)
        width = encoder.embeddings.width
        self.head = MaskedLMHead(encoder.shape, width, seed, dtype)
        self.trainable = trainable

    def build(self, input_shape: Any = None) -> None:
        """Create the weights, except those of an encoder that is already built."""
        _build(self.encoder, self.head)

    def call(
        self,
        token_ids: Tensor | Mapping[str, Tensor],
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool | None = None,
        layer_ops: LayerOps | None = None,
    ) -> Tensor:
        """Return the logits at int32 `positions` [B, M], float32 [B, M, V].

        The other arguments are those of `Encoder.call`.
        """
        if positions is None:
            raise InputError(
                "positions must be set, int32 [B, M]; call fill_mask for texts"
            )
        inputs = keras_layers.unpack_inputs(token_ids, segment_ids, padding_mask)
        x_BLD = self.encoder(*inputs, training=training, layer_ops=layer_ops)
        return self.logits(gather(x_BLD, positions), layer_ops)

    def logits(self, x_BMD: Tensor, layer_ops: LayerOps | None = None) -> Tensor:
        """Return the logits of hidden states at some positions, float32 [B, M, V]."""
        table_VE = self.encoder.embeddings.word_embeddings
        return self.head(x_BMD, table_VE, layer_ops=layer_ops)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as JSON."""
        return super().get_config() | {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "seed": self._seed,
            "dtype": self._policy,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MaskedLM":
        """Create a layer with the same shapes and initial values."""
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return keras_layers.build_layer(cls, {**config, "encoder": encoder})


class Discriminator(keras.layers.Layer):
    """Encoder with a head that classifies each token as original or replaced."""

    def __init__(self, encoder: TransformerEncoder, seed: int = 0, dtype: Any = None):
        super().__init__(name="discriminator", dtype="float32")
        self.encoder = encoder
        self.head = ReplacedTokenHead(encoder.shape, seed, dtype)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights, except those of an encoder that is already built."""
        _build(self.encoder, self.head)

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        padding_mask: Tensor,
        layer_ops: LayerOps | None = None,
    ) -> Tensor:
        """Return the logits of "replaced", float32 [B, L]."""
        inputs = token_ids, segment_ids, padding_mask
        return self.head(self.encoder(*inputs, layer_ops=layer_ops))


class ElectraPair(keras.layers.Layer):
    """The layers of `electra_tf.Electra`, which adds files and texts."""

    encoder_class: ClassVar[type[TransformerEncoder]] = TransformerEncoder
    """Class of the encoders of one tower."""
    masked_lm_class: ClassVar[type[MaskedLM]] = MaskedLM  # class of the generator

    def __init__(
        self,
        settings: ModelConfig,
        seed: int = 0,
        generator: bool = True,
        dtype: Any = None,
        name: str = "electra",
        trainable: bool = True,
        baseline: bool = False,
        two_towers: bool = False,
    ):
        super().__init__(name=name, dtype="float32")
        self._policy = keras_layers.policy_config(dtype)
        remedy = "pass config.model, or call Electra.from_preset"
        check_type("settings", settings, ModelConfig, remedy)
        self.settings, self.seed = settings, seed
        has_one_tower = generator and not two_towers
        classes = self.encoder_class, self.masked_lm_class
        encoder, masked_lm = _networks(settings, seed, has_one_tower, dtype, *classes)
        # The order of the parts is that of their variables, in optimizers too.
        self.discriminator = Discriminator(
            encoder, _part_seed(seed, _DISCRIMINATOR_HEAD), dtype
        )
        self.generator = masked_lm
        self.cloze = self.baseline = None
        if two_towers:
            shared = settings.sharing == "embeddings"
            self.cloze = TwoTowerGenerator(
                settings.generator,
                _part_seed(seed, _GENERATOR),
                _part_seed(seed, _GENERATOR_HEAD),
                encoder.embeddings if shared else None,
                dtype,
            )
        if baseline:
            self.baseline = _vector("baseline")
        self.trainable = trainable

    @property
    def encoder(self) -> TransformerEncoder:
        """Return the discriminator's encoder, which fine-tuning uses."""
        return self.discriminator.encoder

    def build(self, input_shape: Any = None) -> None:
        """Create all weights. Shared weights have the discriminator's names."""
        _build(self.discriminator, self.generator, self.cloze)
        if self.baseline is not None:
            self.baseline.build((None, None, self.generator.encoder.shape.width))

    def call(
        self,
        token_ids: Tensor | Mapping[str, Tensor],
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the discriminator's logits, float32 [B, L].

        The arguments are those of `Encoder.call`.
        """
        inputs = keras_layers.unpack_inputs(token_ids, segment_ids, padding_mask)
        return self.discriminator(*inputs)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as JSON."""
        return super().get_config() | {
            "settings": dataclasses.asdict(self.settings),
            "seed": self.seed,
            "generator": self.generator is not None,
            "baseline": self.baseline is not None,
            "two_towers": self.cloze is not None,
            "dtype": self._policy,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ElectraPair":
        """Create a model with the same shapes and initial values."""
        config = dict(config)
        drop_ended({"Electra": config}, "the saved model")
        return keras_layers.build_layer(cls, config, settings=ModelConfig)


class MaskedLMPair(keras.layers.Layer):
    """Generator, and a full-size masked LM that reads its samples (section 3.5).

    The networks of Replace MLM and All-Tokens MLM; `gate` is the vector with which the
    latter decides between copying and predicting.
    """

    def __init__(
        self,
        settings: ModelConfig,
        seed: int = 0,
        generator: bool = True,
        gate: bool = False,
        dtype: Any = None,
    ):
        super().__init__(name="masked_lm_pair", dtype="float32")
        encoder, masked_lm = _networks(settings, seed, generator, dtype)
        self.main = MaskedLM(
            encoder, _part_seed(seed, _DISCRIMINATOR_HEAD), "main", dtype
        )
        self.generator = masked_lm
        self.gate = _vector("gate") if gate else None

    @property
    def encoder(self) -> TransformerEncoder:
        """Return the main network's encoder, which fine-tuning uses."""
        return self.main.encoder

    def build(self, input_shape: Any = None) -> None:
        """Create all weights. Shared weights have the main network's names."""
        _build(self.main, self.generator)
        if self.gate is not None:
            self.gate.build((None, None, self.encoder.shape.width))

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        padding_mask: Tensor,
        positions: Tensor,
    ) -> Tensor:
        """Return the main network's logits at `positions`, float32 [B, M, V]."""
        return self.main(token_ids, segment_ids, padding_mask, positions)


def bert(settings: ModelConfig, seed: int = 0, dtype: Any = None) -> MaskedLM:
    """Create a full-size encoder with a masked-LM head, for the BERT baseline.

    The encoder's initial values are those of the discriminator of the same seed.
    """
    encoder = TransformerEncoder(
        settings.encoder, _part_seed(seed, _DISCRIMINATOR), dtype=dtype
    )
    return MaskedLM(encoder, _part_seed(seed, _GENERATOR_HEAD), "bert", dtype)


def pretraining_model(
    settings: ModelConfig,
    objective: ObjectiveSettings,
    seed: int = 0,
    dtype: Any = None,
) -> ElectraPair | MaskedLMPair | MaskedLM:
    """Create the networks of an objective, as `config/objectives.py` lists them."""
    if objective.head == "masked_lm" and not objective.generator:
        return bert(settings, seed, dtype)
    if objective.head == "masked_lm":
        return MaskedLMPair(
            settings, seed, objective.has_generator, objective.softmax == "all", dtype
        )
    return ElectraPair(
        settings,
        seed,
        generator=objective.has_generator,
        dtype=dtype,
        baseline=objective.has_baseline,
        two_towers=objective.towers == 2,
    )


def gather(x_BLD: Tensor, positions_BM: Tensor) -> Tensor:
    """Gather the vectors at given positions of each row, [B, M, D]."""
    _, length, width = ops.shape(x_BLD)
    rows = ops.arange(ops.shape(positions_BM)[0], dtype="int32")
    flat_BM = rows[:, None] * length + ops.cast(positions_BM, "int32")
    return ops.take(ops.reshape(x_BLD, (-1, width)), flat_BM, axis=0)


def _networks(
    settings: ModelConfig,
    seed: int,
    has_generator: bool,
    dtype: Any,
    encoder_class: type[TransformerEncoder] = TransformerEncoder,
    masked_lm_class: type[MaskedLM] = MaskedLM,
) -> tuple[TransformerEncoder, MaskedLM | None]:
    """Return the main network's encoder and the generator, with what they share."""
    shape, small = settings.encoder, settings.generator
    main_seed, other_seed = (_part_seed(seed, i) for i in (_DISCRIMINATOR, _GENERATOR))
    tables = shared = None
    if settings.sharing == "gdes" and has_generator:
        other = encoder_class(small, other_seed, dtype=dtype)
        factory = InitializerFactory(main_seed, shape.initializer_range)
        tables = DisentangledEmbeddings(shape, factory, other.embeddings, dtype)
    encoder = encoder_class(shape, main_seed, tables, dtype=dtype)
    if not has_generator:
        return encoder, None
    if settings.sharing == "all":
        other = encoder
    elif settings.sharing != "gdes":
        shared = encoder.embeddings if settings.sharing == "embeddings" else None
        other = encoder_class(small, other_seed, shared, dtype=dtype)
    head_seed = _part_seed(seed, _GENERATOR_HEAD)
    return encoder, masked_lm_class(other, head_seed, "generator", dtype)


def _vector(name: str) -> keras.layers.Dense:
    """Return a vector that hidden states are multiplied with, 0 at first."""
    return keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name=name)


def _build(*layers: keras.layers.Layer | None) -> None:
    """Build layers that exist and are not built."""
    for layer in layers:
        if layer is not None and not layer.built:
            layer.build((None, None))


def _part_seed(seed: int, part: int) -> int:
    return seed * 4 + part
