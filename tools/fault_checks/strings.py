"""Compare the tokenizer with its TensorFlow operations on generated strings."""

import itertools
import os
import pathlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from electra_tf.config.data import TokenizationConfig
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, UNKNOWN, Vocabulary

_GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "vocab.txt"
_BATCH = 5000
_MAX_LISTED = 20
SETTINGS = (
    TokenizationConfig(),
    TokenizationConfig(lower_case=False, strip_accents="never"),
)
"""Settings of the tokenizers; each tokenizes the same share of the strings."""

# Characters that are hard to tokenize.
ALPHABETS = [
    "abc XYZ 019 .,'-_@#$%^&*()[]{}<>|~`\"\\/?!=+",
    "ΑΣσςΣΑ. '\u00ad\u0301\u0345\u02b0:·’\u200d ΣΣ",  # final sigma and its ignorables
    "İIıiÌJ̇Şßẞŉǰΐﬁﬀ",  # Turkish I, letters with a lower case of several characters
    "中文字㐀䶵\U00020000\U0002a6df\uf900\U0002f800、。，：「」　",  # ideographs, signs
    "\ufa6e\U0002a6de\U0002ceae\u9fff",  # unassigned among ideographs
    "\u0300\u0301\u0308\u0323\u0338\u034f\u20d0éạ̈ệÅ",  # combining marks
    "\0\x01\x08\x0b\x0c\x1c\x1d\x1e\x1f\x7f\x85\x9f",  # controls, some of them spaces
    "\u200b\u200c\u200d\u200e\u202a\u2060\ufeff\u00ad\ufffd",  # zero width
    "\t\n\r \xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000",  # spaces
    "😀👨‍👩‍👧🏽❤️🇩🇪☃",  # emoji, joiners, modifiers, flags
    "가각힣가한글 ひらカナー",  # Hangul (decomposes), kana
    "אבَّ ئہ हिन्दी ไทย",
    "\u037e\u1fef\u2260\u226e\u212b\u2126",  # change in decomposition
]

Reference = Callable[[bytes, Mapping[str, int], bool, bool], Sequence[int]]


def fuzzed(count: int, seed: int) -> Iterator[bytes]:
    """Yield strings of hard characters, of any characters, and of any bytes.

    Args:
        count: Number of strings.
        seed: The same seed gives the same strings.
    """
    rng = random.Random(seed)
    for _ in range(count):
        length = rng.randint(0, 24)
        kind = rng.random()
        if kind < 0.6:
            # Two alphabets, so that rare pairs (sigma and newline) occur.
            letters = "".join(rng.sample(ALPHABETS, 2))
            yield "".join(rng.choices(letters, k=length)).encode()
        elif kind < 0.7:
            words = [*SPECIAL_TOKENS, "##a", "the", "[", "ΟΔΟΣ", "don't", "…"]
            yield " ".join(rng.choice(words) for _ in range(length // 2)).encode()
        elif kind < 0.85:
            ceilings = (0x250, 0x3000, 0x20000, 0x110000)
            codes = (rng.randrange(rng.choice(ceilings)) for _ in range(length))
            yield "".join(map(chr, codes)).encode("utf-8", "surrogatepass")
        else:
            yield bytes(rng.randrange(256) for _ in range(length))


def compare_tokenizers(
    count: int, seed: int, reference: Reference | None = None
) -> dict[str, int | list[str]]:
    """Tokenize strings outside and inside the graph and count the differences.

    Args:
        count: Number of strings.
        seed: Seed of the strings.
        reference: A third tokenizer to compare with, called with a string, ids by
            entry, whether to lower-case and whether to strip accents.

    Returns:
        `strings`, `tokens`, `unknown` ([UNK] among the tokens), `different`, and
        `failures`, the first strings that differ with their settings.
    """
    vocabulary = _vocabulary()
    counts = dict.fromkeys(("strings", "tokens", "unknown", "different"), 0)
    failures: list[str] = []
    for number, settings in enumerate(SETTINGS):
        tokenizer = Tokenizer(vocabulary, settings)
        graph = tokenizer.graph()
        strings = fuzzed((count + number) // len(SETTINGS), seed + number)
        flags = settings.lower_case, settings.strip_accents != "never"
        while batch := list(itertools.islice(strings, _BATCH)):
            results = [graph(batch).to_list()]
            if reference is not None:
                ids = vocabulary.ids
                results.append([list(reference(t, ids, *flags)) for t in batch])
            for text, *others in zip(batch, *results, strict=True):
                ours = tokenizer.encode(text)
                counts["strings"] += 1
                counts["tokens"] += len(ours)
                counts["unknown"] += ours.count(vocabulary.ids[UNKNOWN])
                if any(ours != other for other in others):
                    counts["different"] += 1
                    failures.append(f"{text!r} with {settings}: {ours}, {others}")
    return {**counts, "failures": failures[:_MAX_LISTED]}


def _vocabulary() -> Vocabulary:
    """Return a vocabulary of many scripts, or the one of the tests."""
    data = os.environ.get("ELECTRA_TF_DATA")
    wide = pathlib.Path(data or "", "vocab", "bert_chinese.txt")
    return Vocabulary.read(wide if data and wide.exists() else _GOLDEN)
