"""Count examples with equal texts: within train, and of other splits in train."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.tasks.data.splits import Split, texts_of
from electra_tf.text.checks import first_equals, normalized

if TYPE_CHECKING:
    from electra_tf.text.tokenizer import WordPieceTokenizer


def first_equal_items(
    items: Sequence[Any], tokenizer: "WordPieceTokenizer | None"
) -> np.ndarray:
    """Return the index of the first item with the texts of each item, int64 [N].

    Texts are equal if they are so after the tokenizer's normalization; None: BERT's.
    """
    if len(items) and not isinstance(items[0], str):
        items = list(map(texts_of, items))
    return first_equals(items, _settings(tokenizer))


def text_hashes(
    items: Iterable[Any], tokenizer: "WordPieceTokenizer | None"
) -> np.ndarray:
    """Return a hash of the normalized texts of each item, uint64 [N]."""
    texts = normalized(map(texts_of, items), _settings(tokenizer))
    parts = ("\0".join(text).encode("utf-8", "surrogatepass") for text in texts)
    digests = [hashlib.blake2b(part, digest_size=8).digest() for part in parts]
    return np.frombuffer(b"".join(digests), np.uint64)


def _settings(tokenizer: "WordPieceTokenizer | None") -> TokenizationConfig:
    return tokenizer.settings if tokenizer else TokenizationConfig()


class EqualTexts:
    """Examples of a task's splits by the first one with the same texts.

    Args:
        splits: The splits, as they are in the files.
        tokenizer: Its normalization is that of the comparison; None: BERT's.
    """

    def __init__(
        self, splits: Mapping[str, Split], tokenizer: "WordPieceTokenizer | None"
    ):
        self._splits = splits = {"train": splits["train"], **splits}
        items = list(itertools.chain(*(split.items for split in splits.values())))
        first_N = first_equal_items(items, tokenizer)
        ends = np.cumsum([len(split) for split in splits.values()])
        self._parts = dict(zip(splits, np.split(first_N, ends[:-1]), strict=True))

    @property
    def train(self) -> np.ndarray:
        """Index of the first row of train with the texts of each of its rows."""
        return self._parts["train"]

    def lines(self, task: str, noun: str, held_out: Sequence[int] = ()) -> list[str]:
        """Return lines about equal texts, and equal texts with different labels.

        `held_out` are the rows of train that became dev.
        """
        return [
            f"{task}: {line}"
            for line in (
                *self._describe_train(noun, bool(len(held_out))),
                *self._describe_labels(),
                *self._describe_overlap(noun, held_out),
            )
        ]

    def _describe_train(self, noun: str, is_divided: bool) -> Iterator[str]:
        count = int((self.train != np.arange(len(self.train))).sum())
        if count:
            text = f"{count:,} of {len(self.train):,} {noun} repeat the texts of others"
            yield text + ", and are on the same side of train and dev" * is_divided

    def _describe_labels(self) -> Iterator[str]:
        train = self._splits["train"]
        targets, different = train.targets or (), {}
        is_repeated = self.train != np.arange(len(self.train))
        for index in np.flatnonzero(is_repeated[: len(targets)]).tolist():
            first = int(self.train[index])
            if targets[index] != targets[first]:
                different.setdefault(first, index)
        if different:
            pair = next(iter(different.items()))
            (one, a), (other, b) = (
                (repr(targets[index])[:60], train.place(index)) for index in pair
            )
            yield (
                f"warning: {len(different):,} texts have different labels, such as "
                f"{' | '.join(texts_of(train.items[pair[0]]))!r:.60}: {one} at {a}, "
                f"{other} at {b}"
            )

    def _describe_overlap(self, noun: str, held_out: Sequence[int]) -> Iterator[str]:
        others = {name: part for name, part in self._parts.items() if name != "train"}
        is_trained = np.zeros(sum(map(len, self._parts.values())), bool)
        is_trained[self.train] = True
        is_trained[self.train[list(held_out)]] = False
        for name, first_N in others.items():
            if count := int(is_trained[first_N].sum()):
                yield (
                    f"warning: {count:,} of {len(first_N):,} {noun} of {name} have "
                    "texts of train: scores of new texts may be lower"
                )
