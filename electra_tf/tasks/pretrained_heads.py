"""Pre-trained models with their heads: replaced tokens, and tokens for masks."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop.keras_networks import load_networks
from electra_tf.model.electra import ElectraPair, MaskedLM, MaskedLMPair
from electra_tf.model.keras_layers import PACKAGE
from electra_tf.model.layer_ops import LayerOps
from electra_tf.model.transformer import weights_of_zeros
from electra_tf.tasks.encoder import (
    BATCH_SIZES,
    Encoder,
    check_argument,
    encode_single,
    require_tokenizer,
)
from electra_tf.tasks.inference import IDS_SPEC, INPUT_SPECS, compiled, outputs_by_row
from electra_tf.tasks.tokenizer import Tokenizer
from electra_tf.text.encoding import encode_masked
from electra_tf.text.vocab import MASK


class ReplacedToken(NamedTuple):
    """A wordpiece of a text and the probability that it was replaced."""

    token: str
    """The entry of the vocabulary."""
    start: int
    """Index of its first character (code point) in the text."""
    end: int
    """Index after the last one."""
    probability: float
    """Probability that it was replaced."""


class Proposal(NamedTuple):
    """A token for a [MASK]."""

    token: str
    """The entry of the vocabulary."""
    probability: float
    """Probability of this token in place of the [MASK]."""
    text: str
    """The text with this token in place of the [MASK]."""


@keras.saving.register_keras_serializable(PACKAGE)
class MaskedLanguageModel(MaskedLM):
    """Encoder with a masked-LM head, which predicts the tokens at given positions.

    Args:
        encoder: The encoder; its token table is also the output matrix.
        seed: Seed of the initial values of the head.
        name: Name of the layer.
        dtype: Keras dtype policy.
        trainable: Whether the weights are trained, the encoder's too.

    Example:
        import electra_tf
        import numpy as np

        model = electra_tf.MaskedLanguageModel.from_preset("run")  # the generator
        model.fill_mask("Paris is the [MASK] of France.", top_k=5)  # [Proposal(...), ]

        encoder = electra_tf.Encoder.from_preset("run")
        model = electra_tf.MaskedLanguageModel(encoder)  # with a new head
        inputs = encoder.tokenizer(["a fine film"])
        model(inputs, positions=np.array([[1]]))  # logits [1, 1, V] of position 1
    """

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        vocabulary: str | os.PathLike | None = None,
        name: str = "masked_language_model",
        dtype: Any = None,
        trainable: bool = True,
    ) -> "MaskedLanguageModel":
        """Load a masked language model: BERT's kind, or the generator of an ELECTRA.

        Args:
            path_or_name: Folder of a checkpoint or of a run (its newest checkpoint), or
                another library's pre-trained model.
            vocabulary: Path of the vocabulary; only for another library.
            name: Name of the layer.
            dtype: Keras dtype policy.
            trainable: Whether the weights are trained.

        Returns:
            A built layer, whose encoder has its tokenizer.

        Raises:
            InputError: The source has no masked-LM head, or its kind is unknown.
        """
        run = sources.open_pretrained(path_or_name, vocabulary).run
        model = load_networks(run)
        if not isinstance(model, MaskedLM):
            model = model.main if isinstance(model, MaskedLMPair) else model.generator
        if model is None:
            raise InputError(
                f"{run.path} has no masked-LM head: it is a discriminator without "
                "a generator of one tower; name a run with a generator or a pair "
                "DISCRIMINATOR,GENERATOR, or load it with Electra.from_preset"
            )
        # With tables of its own, so that the layer can be saved.
        with weights_of_zeros():
            encoder = Encoder(model.encoder.shape, dtype=dtype)
            masked_lm = cls(encoder, name=name, dtype=dtype, trainable=trainable)
        masked_lm.build()
        masked_lm.set_weights(model.get_weights())
        encoder.tokenizer = Tokenizer.of(run.tokenizer)
        return masked_lm

    def fill_mask(
        self, texts: str | Sequence[str], top_k: int = 5, batch_size: int = 32
    ) -> list[Any]:
        """Return the most likely tokens for each [MASK] of texts.

        Args:
            texts: A text with one or more `[MASK]`, or several such texts.
            top_k: Tokens for each [MASK].
            batch_size: Texts that are computed together.

        Returns:
            For a text with one [MASK] its `Proposal`s, best first; for a text with
            several a list for each [MASK], which are predicted independently; for texts
            a list of these.

        Raises:
            InputError: A text has no [MASK], or more tokens than positions.
        """
        tokenizer = require_tokenizer(self.encoder)
        entries, mask = tokenizer.vocabulary.tokens, tokenizer.vocabulary.ids[MASK]
        check_argument("top_k", top_k, range(1, len(entries) + 1))
        check_argument("batch_size", batch_size, BATCH_SIZES)
        single = isinstance(texts, str)
        examples, rows = encode_single(
            self.encoder,
            [texts] if single else texts,
            lambda text: encode_masked(text, tokenizer),
        )
        places = [
            _places(ids, mask, text, index)
            for index, (ids, text) in enumerate(zip(examples.ids, rows, strict=True))
        ]

        def propose(inputs: Mapping[str, tf.Tensor], positions_BM: tf.Tensor) -> Any:
            logits_BMV = self(**inputs, positions=positions_BM, training=False)
            return tf.math.top_k(tf.nn.softmax(logits_BMV), top_k)

        propose = compiled(self, (top_k,), propose, INPUT_SPECS, IDS_SPEC)

        def propose_rows(inputs: Mapping[str, Any], numbers: Sequence[int]) -> Any:
            slots = max(len(places[number]) for number in numbers)
            positions = [np.resize(places[number], slots) for number in numbers]
            return propose(inputs, np.array(positions, np.int32))

        results = []
        outputs = outputs_by_row(examples, batch_size, propose_rows)
        for text, positions, best in zip(rows, places, outputs, strict=True):
            proposals = [
                [
                    Proposal(entries[n], float(p), _fill(text, slot, entries[n]))
                    for p, n in zip(best[0][slot], best[1][slot], strict=True)
                ]
                for slot in range(len(positions))
            ]
            results.append(proposals if len(proposals) > 1 else proposals[0])
        return results[0] if single else results


@keras.saving.register_keras_serializable(PACKAGE)
class Electra(ElectraPair):
    """Generator and discriminator (paper, sections 2 and 3.2).

    `settings.sharing` selects the shared weights:

    - `embeddings`: the embedding tables and their layer norm; each encoder has its own
      projection.
    - `all`: the whole encoder.
    - `gdes`: the discriminator's tables are the generator's plus a difference; its
      loss does not reach the generator's.
    - `none`: nothing; the generator's tables have the generator's width.

    Args:
        settings: Shapes and weight sharing, with a vocabulary size.
        seed: Seed of the initial values.
        generator: Whether to create a generator; a uniform generator has no weights.
        dtype: Keras dtype policy.
        name: Name of the layer.
        trainable: Whether the weights are trained.
        baseline: Whether to create the vector that predicts the reward of an
            adversarial generator (paper, appendix F).
        two_towers: Whether the generator has two towers (Electric). It is then the
            attribute `cloze`, and `generator` is None.

    Example:
        import electra_tf
        import numpy as np

        config = electra_tf.load_config("tiny", ["model.vocabulary_size=1000"])
        electra = electra_tf.Electra(config.model)
        ids = np.array([[2, 9, 3]])
        electra(ids, np.zeros_like(ids), np.ones_like(ids))  # [1, 3], > 0: replaced

        electra = electra_tf.Electra.from_preset("run")
        electra.replaced_tokens(["The cat sat on the wednesday."])  # a list per text
    """

    encoder_class = Encoder
    masked_lm_class = MaskedLanguageModel

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        vocabulary: str | os.PathLike | None = None,
        name: str = "electra",
        dtype: Any = None,
        trainable: bool = True,
    ) -> "Electra":
        """Load a discriminator, and its generator if there is one.

        Args:
            path_or_name: Folder of a checkpoint or of a run (its newest checkpoint), or
                another library's pre-trained model.
            vocabulary: Path of the vocabulary; only for another library.
            name: Name of the layer.
            dtype: Keras dtype policy.
            trainable: Whether the weights are trained.

        Returns:
            A built layer, whose encoders have their tokenizer.

        Raises:
            InputError: The source has no discriminator, or its kind is unknown.
        """
        run = sources.open_pretrained(path_or_name, vocabulary).run
        model = load_networks(run)
        if not isinstance(model, ElectraPair) or model.cloze is not None:
            raise InputError(
                f"{run.path} of objective.name: {run.config.objective.name} "
                "has no discriminator of replaced tokens; load it with "
                "MaskedLanguageModel.from_preset or Encoder.from_preset, or score "
                "texts with TextScorer.from_preset"
            )
        run.check_discriminator()
        has_generator = model.generator is not None
        with weights_of_zeros():
            electra = cls(model.settings, 0, has_generator, dtype, name, trainable)
        electra.build()
        electra.discriminator.set_weights(model.discriminator.get_weights())
        electra.encoder.tokenizer = tokenizer = Tokenizer.of(run.tokenizer)
        if has_generator:
            electra.generator.set_weights(model.generator.get_weights())
            electra.generator.encoder.tokenizer = tokenizer
        return electra

    def replaced_tokens(
        self, texts: Sequence[str], batch_size: int = 32
    ) -> list[list[ReplacedToken]]:
        """Return the probability that each token of texts was replaced.

        Args:
            texts: A list, array or column of strings.
            batch_size: Texts that are computed together.

        Returns:
            The wordpieces of each text in order, without [CLS] and [SEP].

        Raises:
            InputError: A text is no string or has more tokens than the model has
                positions.
        """
        check_argument("batch_size", batch_size, BATCH_SIZES)
        tokenizer = require_tokenizer(self.encoder)
        examples, rows = encode_single(self.encoder, texts, tokenizer.wordpieces)

        def probabilities(inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
            layer_ops = LayerOps(training=False)
            return tf.sigmoid(self.discriminator(**inputs, layer_ops=layer_ops))

        probabilities = compiled(self, (), probabilities, INPUT_SPECS)
        outputs = outputs_by_row(
            examples, batch_size, lambda inputs, _: probabilities(inputs)
        )
        entries, results = tokenizer.vocabulary.tokens, []
        for text, ids, output_L in zip(rows, examples.ids, outputs, strict=True):
            values = output_L[1 : len(ids) - 1].tolist()
            spans = tokenizer.piece_offsets(text)
            pieces = zip(ids[1:-1], spans, values, strict=True)
            results.append([ReplacedToken(entries[n], *s, p) for n, s, p in pieces])
        return results


def _places(ids: np.ndarray, mask: int, text: str, index: int) -> np.ndarray:
    """Return the positions of the masks of a text."""
    if mask not in ids:
        raise InputError(
            f"The text at index {index}, {text!r:.80}, has no {MASK}, in capitals, in "
            "place of a word"
        )
    return np.flatnonzero(ids == mask)


def _fill(text: str, slot: int, token: str) -> str:
    """Return a text with an entry in place of one of its masks."""
    parts = text.split(MASK)
    before, after = MASK.join(parts[: slot + 1]), MASK.join(parts[slot + 1 :])
    return before + token.removeprefix("##") + after
