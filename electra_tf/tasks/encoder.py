"""The encoder with its tokenizer, from any source, and vectors of texts."""

import functools
import itertools
import numbers
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.model.keras_layers import PACKAGE
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.inference import INPUT_SPECS, compiled, outputs_by_row
from electra_tf.tasks.inputs import check_input, to_single_texts
from electra_tf.tasks.tokenizer import Tokenizer
from electra_tf.text.encoding import encode_rows, to_rows

VectorPooling = Literal["mean", "cls"]


_PRETRAINED_ONLY = (
    "the encoder was only pre-trained, so the cosines of its vectors say little about "
    "meaning. Use a sentence encoder such as all-MiniLM-L6-v2; see the page Compare "
    "texts and search by meaning"
)
BATCH_SIZES = range(1, 2**31)


@keras.saving.register_keras_serializable(PACKAGE)
class Encoder(TransformerEncoder):
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
        remat: Whether the backward pass computes each Transformer layer again, to save
            memory. The attribute of this name may be set later.

    Example:
        import electra_tf
        import numpy as np

        encoder = electra_tf.Encoder.from_preset("run")  # a run's newest checkpoint
        encoder.embed(["a fine film", "a dull film"])  # float32 [2, D]
        ids, mask = np.array([[2, 9, 3, 0]]), np.array([[1, 1, 1, 0]])
        encoder(ids, segment_ids=np.zeros_like(ids), padding_mask=mask)  # [1, 4, D]
    """

    tokenizer: Tokenizer | None = None
    """The tokenizer of `from_preset`, which is not part of the config; None: none."""
    has_pretraining_head = False
    """True if its weights come from pre-training alone; `embed` then warns."""

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        vocabulary: str | None = None,
        seed: int = 0,
        name: str = "encoder",
        dtype: Any = None,
        trainable: bool = True,
    ) -> "Encoder":
        """Load an encoder, or create one with random weights from a config.

        Args:
            path_or_name: Folder of a checkpoint or of a run (its newest checkpoint), a
                saved model, another library's model, or the name or path of a config.
            vocabulary: Path of the vocabulary; only for a config or another library.
            seed: Seed of random weights and of dropout.
            name: Name of the layer.
            dtype: Keras dtype policy.
            trainable: Whether the weights are trained.

        Returns:
            A built encoder, with its tokenizer.

        Raises:
            InputError: The source is damaged, or its kind is unknown.
        """
        source = sources.open_source(path_or_name, vocabulary)
        start = source.encoder
        encoder = start.build_encoder(
            seed, cls, name=name, dtype=dtype, trainable=trainable
        )
        encoder.tokenizer = Tokenizer.of(start.tokenizer)
        encoder.has_pretraining_head = source.has_pretraining_head
        return encoder

    def embed(
        self,
        texts: Sequence[Any],
        pooling: VectorPooling = "mean",
        layer: int = -1,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> np.ndarray:
        """Return a vector for each text, for search and clustering.

        Texts of similar lengths are computed together. A text's vector does not depend
        on the others, except for rounding. An encoder that was only pre-trained gives a
        warning, as the cosines of its vectors are poor.

        Args:
            texts: Strings, or pairs of strings: a list, an array or a column.
            pooling: `mean` of the states of all tokens, [CLS] and [SEP] included; or
                `cls`, the state of [CLS].
            layer: Index of the states: 0 below the first layer, 1 after it, -1 after
                the last one.
            batch_size: Texts that are computed together.
            max_length: Positions of a text, at most; None: those of the encoder. Longer
                texts are truncated, with a warning.

        Returns:
            float32 [N, D], in the order of the texts.

        Raises:
            InputError: An argument is not valid, or the encoder has no tokenizer.
        """
        if self.has_pretraining_head:
            warnings.warn(_PRETRAINED_ONLY, stacklevel=2)
        states = self.shape.depth + 1
        limit = self.shape.max_positions if max_length is None else max_length
        check_argument("pooling", pooling, get_args(VectorPooling))
        check_argument("layer", layer, range(-states, states))
        check_argument("max_length", limit, range(5, self.shape.max_positions + 1))
        check_argument("batch_size", batch_size, BATCH_SIZES)
        tokenizer = require_tokenizer(self)
        rows = to_rows(check_input(texts))
        encoded = encode_rows(tokenizer.wordpieces, tokenizer.vocabulary, rows, limit)
        if encoded.truncated:
            warnings.warn(
                f"{encoded.truncated:,} of {len(rows):,} texts were truncated to "
                f"{limit} positions",
                stacklevel=2,
            )
        examples = EncodedExamples(encoded.ids, encoded.segments, limit)
        layer %= states
        pool = functools.partial(self._pool, pooling, layer)
        pool = compiled(self, (pooling, layer), pool, INPUT_SPECS)
        vectors = outputs_by_row(examples, batch_size, lambda inputs, _: pool(inputs))
        return np.array(vectors, np.float32).reshape(-1, self.shape.width)

    def _pool(
        self, pooling: VectorPooling, layer: int, inputs: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Return the vectors of a batch, float32 [B, D]."""
        all_states = self.states(**inputs, layer_ops=LayerOps(training=False))
        x_BLD = tf.cast(next(itertools.islice(all_states, layer, None)), tf.float32)
        if pooling == "cls":
            return x_BLD[:, 0]
        real_BL1 = tf.cast(inputs["padding_mask"], tf.float32)[..., None]
        return tf.reduce_sum(x_BLD * real_BL1, 1) / tf.reduce_sum(real_BL1, 1)


def require_tokenizer(encoder: Encoder) -> Tokenizer:
    """Return the tokenizer of an encoder that is to take texts."""
    if encoder.tokenizer is None:
        raise InputError(
            f"{encoder.name!r} has no tokenizer, so it takes ids only; create it with "
            "from_preset, or set encoder.tokenizer = Tokenizer.read(PATH)"
        )
    return encoder.tokenizer


def check_argument(name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raise an error unless a value is one of some strings, or in a range."""
    is_range = isinstance(allowed, range)
    if value not in allowed or (is_range and not isinstance(value, numbers.Integral)):
        choices = f"{allowed[0]} to {allowed[-1]}" if is_range else " or ".join(allowed)
        raise InputError(f"{name} must be {choices}, not {value!r}")


def encode_single(
    encoder: Encoder, texts: Any, wordpieces: Callable[[str], str]
) -> tuple[EncodedExamples, list[str]]:
    """Encode single texts, none of which may be too long."""
    rows, limit = to_single_texts(texts), encoder.shape.max_positions
    encoded = encode_rows(wordpieces, encoder.tokenizer.vocabulary, rows, None)
    for index, length in enumerate(encoded.ids.lengths):
        if length > limit:
            raise InputError(
                f"The text at index {index}, {rows[index]!r:.60}, has {length - 2} "
                f"tokens, more than the model's {limit - 2}; split it"
            )
    return EncodedExamples(encoded.ids, encoded.segments, limit), rows
