"""Methods of pre-trained networks that take texts.

`electra_tf/__init__.py` attaches them to the classes of `electra_tf.model`, which is a
layer below the tokenizer.
"""

import itertools
import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.model.electra import Electra, MaskedLanguageModel
from electra_tf.model.encoder import Encoder
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.inference import IDS, INPUTS, compiled, outputs_by_row
from electra_tf.tasks.text_inputs import check_input, to_single_texts
from electra_tf.text.encoding import encode_rows, to_rows
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import MASK

Pooling = Literal["mean", "cls"]
_SMOOTHING = 0.01
_PRETRAINED_ONLY = (
    "the encoder was only pre-trained, so the cosines of its vectors say little about "
    "meaning. Use a sentence encoder such as all-MiniLM-L6-v2, or pass whiten; see the "
    "page Use the encoder, Embeddings"
)
_BATCH_SIZES = range(1, 2**31)


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


def embed(
    encoder: Encoder,
    texts: Sequence[Any],
    pooling: Pooling = "mean",
    layer: int = -1,
    batch_size: int = 32,
    max_length: int | None = None,
    whiten: np.ndarray | None = None,
) -> np.ndarray:
    """Return a vector for each text, for search and clustering.

    Texts of similar lengths are computed together. A text's vector does not depend on
    the others, except for rounding.

    Args:
        encoder: An encoder of `from_preset`.
        texts: Strings, or pairs of strings: a list, an array or a column.
        pooling: `mean` of the states of all tokens, [CLS] and [SEP] included; or `cls`,
            the state of [CLS].
        layer: Index of the states: 0 below the first layer, 1 after it, -1 after the
            last one.
        batch_size: Texts that are computed together.
        max_length: Positions of a text, at most; None: those of the encoder. Longer
            texts are truncated, with a warning.
        whiten: Vectors [M, D] of other texts of the kind, with the same `pooling` and
            `layer`: their mean is removed, and all directions in which they vary get
            about the same length. It improves the cosines of an encoder that was only
            pre-trained. More texts than D are needed.

    Returns:
        float32 [N, D], in the order of the texts.

    Raises:
        InputError: An argument is not valid, or the encoder has no tokenizer.

    A warning is given for an encoder that was only pre-trained, without `whiten`.
    """
    if whiten is not None:
        _check_sample(whiten, encoder.shape.width)
    elif encoder.has_pretraining_head:
        warnings.warn(_PRETRAINED_ONLY, stacklevel=2)
    states = encoder.shape.depth + 1
    limit = encoder.shape.max_positions if max_length is None else max_length
    _check("pooling", pooling, get_args(Pooling))
    _check("layer", layer, range(-states, states))
    _check("max_length", limit, range(5, encoder.shape.max_positions + 1))
    _check("batch_size", batch_size, _BATCH_SIZES)
    tokenizer = _tokenizer(encoder)
    rows = to_rows(check_input(texts))
    encoded = encode_rows(tokenizer.encode, tokenizer.vocabulary, rows, limit)
    if encoded.truncated:
        warnings.warn(
            f"{encoded.truncated:,} of {len(rows):,} texts were truncated to {limit} "
            "positions",
            stacklevel=2,
        )
    examples = EncodedExamples(encoded.ids, encoded.segments, limit)
    layer %= states

    def pool(inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        all_states = encoder.states(**inputs, training=False)
        x_BLD = next(itertools.islice(all_states, layer, None))
        x_BLD = tf.cast(x_BLD, tf.float32)
        if pooling == "cls":
            return x_BLD[:, 0]
        real_BL1 = tf.cast(inputs["padding_mask"], tf.float32)[..., None]
        return tf.reduce_sum(x_BLD * real_BL1, 1) / tf.reduce_sum(real_BL1, 1)

    pool = compiled(encoder, (pooling, layer), pool, INPUTS)
    vectors = outputs_by_row(examples, batch_size, lambda inputs, _: pool(inputs))
    vectors = np.array(vectors, np.float32).reshape(-1, encoder.shape.width)
    return vectors if whiten is None else _whitened(vectors, whiten)


def _whitened(vectors_ND: np.ndarray, sample_MD: np.ndarray) -> np.ndarray:
    """Divide the principal components of a sample by their standard deviations.

    A share of the largest variance is added to all, so that directions in which the
    sample hardly varies do not become the longest.
    """
    mean_D = np.mean(sample_MD, axis=0, dtype=np.float64)
    variances_D, axes_DD = np.linalg.eigh(np.cov(sample_MD, rowvar=False))
    scales_D = np.sqrt(variances_D + _SMOOTHING * variances_D[-1])
    return ((vectors_ND - mean_D) @ axes_DD / scales_D).astype(np.float32)


def _check_sample(whiten: Any, width: int) -> None:
    shape = np.shape(whiten)
    if len(shape) != 2 or shape[1] != width or shape[0] <= width:
        raise InputError(
            f"whiten must be vectors of the encoder's width {width}, of more than "
            f"{width} texts",
            f"an array of shape {list(shape)}",
            "Pass the result of embed for a larger sample, or leave it out",
        )


def replaced_tokens(
    electra: Electra, texts: Sequence[str], batch_size: int = 32
) -> list[list[ReplacedToken]]:
    """Return the probability that each token of texts was replaced.

    Args:
        electra: A model of `from_preset`.
        texts: A list, array or column of strings.
        batch_size: Texts that are computed together.

    Returns:
        The wordpieces of each text in order, without [CLS] and [SEP].

    Raises:
        InputError: A text is no string or has more tokens than the model has positions.
    """
    _check("batch_size", batch_size, _BATCH_SIZES)
    tokenizer = _tokenizer(electra.encoder)
    examples, rows = _encode(electra.encoder, texts, tokenizer.encode)

    def probabilities(inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return tf.sigmoid(electra.discriminator(**inputs, training=False))

    probabilities = compiled(electra, (), probabilities, INPUTS)
    outputs = outputs_by_row(
        examples, batch_size, lambda inputs, _: probabilities(inputs)
    )
    entries, results = tokenizer.vocabulary.tokens, []
    for text, ids, output_L in zip(rows, examples.ids, outputs, strict=True):
        spans = tokenizer.piece_offsets(text)
        values = output_L[1 : len(ids) - 1].tolist()
        results.append(
            [
                ReplacedToken(entries[number], *span, value)
                for number, span, value in zip(ids[1:-1], spans, values, strict=True)
            ]
        )
    return results


def fill_mask(
    masked_lm: MaskedLanguageModel,
    texts: str | Sequence[str],
    top_k: int = 5,
    batch_size: int = 32,
) -> list[Any]:
    """Return the most likely tokens for each [MASK] of texts.

    Args:
        masked_lm: A model of `from_preset`.
        texts: A text with one or more `[MASK]`, or a list, array or column of these.
        top_k: Tokens for each [MASK].
        batch_size: Texts that are computed together.

    Returns:
        For a text with one [MASK] its `Proposal`s, best first; for a text with several
        a list for each [MASK], which are predicted independently; for texts a list of
        these.

    Raises:
        InputError: A text has no [MASK], or more tokens than the model has positions.
    """
    tokenizer = _tokenizer(masked_lm.encoder)
    entries, mask = tokenizer.vocabulary.tokens, tokenizer.vocabulary.ids[MASK]
    _check("top_k", top_k, range(1, len(entries) + 1))
    _check("batch_size", batch_size, _BATCH_SIZES)
    single = isinstance(texts, str)
    examples, rows = _encode(
        masked_lm.encoder,
        [texts] if single else texts,
        lambda text: encode_masked(text, tokenizer),
    )
    places = [np.flatnonzero(np.equal(ids, mask)) for ids in examples.ids]
    for index, text in enumerate(rows):
        if not len(places[index]):
            raise InputError(
                f"Each text must have a {MASK}, in capitals",
                f"{text!r:.80} at index {index}",
                f"Write {MASK} in place of the word",
            )

    def propose(inputs: Mapping[str, tf.Tensor], positions_BM: tf.Tensor) -> Any:
        logits_BMV = masked_lm(**inputs, positions=positions_BM, training=False)
        return tf.math.top_k(tf.nn.softmax(logits_BMV), top_k)

    propose = compiled(masked_lm, (top_k,), propose, INPUTS, IDS)

    def propose_rows(inputs: Mapping[str, np.ndarray], numbers: Sequence[int]) -> Any:
        slots = max(len(places[number]) for number in numbers)
        positions = [np.resize(places[number], slots) for number in numbers]
        return propose(inputs, np.array(positions, np.int32))

    results = []
    outputs = outputs_by_row(examples, batch_size, propose_rows)
    for text, positions, best in zip(rows, places, outputs, strict=True):
        proposals = [
            [
                Proposal(
                    entries[number], float(value), _fill(text, slot, entries[number])
                )
                for value, number in zip(best[0][slot], best[1][slot], strict=True)
            ]
            for slot in range(len(positions))
        ]
        results.append(proposals if len(proposals) > 1 else proposals[0])
    return results[0] if single else results


def encode_masked(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text, in which `[MASK]` is that special token."""
    ids = []
    for part in text.split(MASK):
        ids += [*tokenizer.encode(part), tokenizer.vocabulary.ids[MASK]]
    return ids[:-1]


def _fill(text: str, slot: int, token: str) -> str:
    """Return a text with an entry in place of one of its masks."""
    parts = text.split(MASK)
    before, after = MASK.join(parts[: slot + 1]), MASK.join(parts[slot + 1 :])
    return before + token.removeprefix("##") + after


def _tokenizer(encoder: Encoder) -> Tokenizer:
    if encoder.tokenizer is None:
        raise InputError(
            "An encoder must have a tokenizer to take texts",
            f"{encoder.name!r} without one",
            "Create it with from_preset, or set encoder.tokenizer = "
            "Tokenizer.read(PATH)",
        )
    return encoder.tokenizer


def _check(name: str, value: Any, allowed: Sequence[Any]) -> None:
    is_range = isinstance(allowed, range)
    if value not in allowed or (is_range and not isinstance(value, numbers.Integral)):
        choices = f"{allowed[0]} to {allowed[-1]}" if is_range else " or ".join(allowed)
        raise InputError(f"{name} must be {choices}", f"{value!r}", "Pass one of these")


def _encode(
    encoder: Encoder, texts: Any, encode: Callable[[str], list[int]]
) -> tuple[EncodedExamples, list[str]]:
    """Encode single texts, none of which may be too long."""
    rows, limit = to_single_texts(texts), encoder.shape.max_positions
    encoded = encode_rows(encode, encoder.tokenizer.vocabulary, rows, None)
    for index, ids in enumerate(encoded.ids):
        if len(ids) > limit:
            raise InputError(
                f"A text must have at most {limit - 2} tokens",
                f"{len(ids) - 2}, at index {index}: {rows[index]!r:.60}",
                "Split it; nothing is cut",
            )
    return EncodedExamples(encoded.ids, encoded.segments, limit), rows
