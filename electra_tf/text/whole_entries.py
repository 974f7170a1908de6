"""Find the entries of a vocabulary that are kept whole, before a text is split."""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.text.normalization import CharacterTable, is_dropped
from electra_tf.text.vocab import CONTINUATION, SPECIAL_TOKENS

_CODES = 0x30000  # letters are below
_MAX_ENTRIES = 2000


class Part(NamedTuple):
    """A part of a text."""

    start: int
    text: str
    entry: str | None
    """The entry that the part is; None: the part is split as any text."""


class WholeEntries:
    """Entries that are kept whole.

    `pattern` is valid for Python and for RE2, so that the tokenizer in TensorFlow finds
    the same ones.
    """

    def __init__(self, settings: TokenizationConfig):
        exact, normalized = settings.keep_whole, settings.keep_whole_normalized
        if len(exact) + len(normalized) > _MAX_ENTRIES:
            raise InputError(
                f"At most {_MAX_ENTRIES:,} entries may be kept whole, because each "
                "place of a text is compared with all",
                f"{len(exact) + len(normalized):,}",
                "Remove some from keep_whole, or from the tokenizer's added tokens",
            )
        self._characters = _characters(
            dataclasses.replace(settings, keep_whole=(), keep_whole_normalized=())
        )
        for entry in (*exact, *normalized):
            _check(entry, settings.max_word_characters)
        self.keys = {self._key(entry): entry for entry in normalized}
        """Entries that are found in any case, by their normalized text."""
        if len(self.keys) < len(normalized) or "" in self.keys:
            raise InputError(
                "Entries of keep_whole_normalized must differ when they are normalized",
                format_list(normalized),
                "Remove one of them",
            )
        groups = [
            sorted(map(re.escape, exact), key=len, reverse=True),
            sorted(map(self._any_case, normalized), key=len, reverse=True),
        ]
        self.groups = tuple(f"({'|'.join(group)})" if group else "" for group in groups)
        self.pattern = "|".join(filter(None, self.groups))
        self._pattern = re.compile(self.pattern)

    def __bool__(self) -> bool:
        return bool(self.pattern)

    def split(self, text: str) -> Iterator[Part]:
        """Yield the parts of a text in order."""
        start = 0
        if self.pattern:
            for match in self._pattern.finditer(text):
                if match.start() > start:
                    yield Part(start, text[start : match.start()], None)
                yield Part(match.start(), match.group(), self._entry(match))
                start = match.end()
        if start < len(text):
            yield Part(start, text[start:], None)

    def _entry(self, match: re.Match) -> str:
        if self.groups[0] and match.group(1) is not None:
            return match.group()
        return self.keys[self._key(match.group())]

    def _key(self, text: str) -> str:
        return "".join(map(self._characters.__getitem__, text))

    def _any_case(self, entry: str) -> str:
        """Return a pattern of all texts with the key of an entry."""
        keys = map(self._characters.__getitem__, entry)
        variants = [self._characters.variants[key] for key in keys if key]
        return "".join(f"[{''.join(map(re.escape, v))}]" for v in variants)


class _Characters(dict):
    """Table from character to its normalized text without spaces."""

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._table = CharacterTable(settings)

    def __missing__(self, character: str) -> str:
        self[character] = text = self._table[ord(character)].replace(" ", "")
        return text

    @functools.cached_property
    def variants(self) -> Mapping[str, list[str]]:
        """Characters by normalized text."""
        variants: dict[str, list[str]] = {}
        for character in map(chr, range(_CODES)):
            variants.setdefault(self[character], []).append(character)
        return variants


_characters = functools.cache(_Characters)  # its variants take a second


def _check(entry: str, longest: int) -> None:
    # A capital sigma is lower-cased by its neighbours, which the graph does first.
    wrong = [c for c in entry if c.isspace() or is_dropped(c) or c == "\u03a3"]
    if not entry or wrong or entry.startswith(CONTINUATION) or len(entry) > longest:
        raise InputError(
            f"An entry that is kept whole must have 1 to {longest} characters, no "
            "white space, control character or capital sigma, and not begin with "
            f"{CONTINUATION}",
            f"{entry!r:.80}",
            "Remove it from keep_whole",
        )
    if entry in SPECIAL_TOKENS:
        raise InputError(
            "Texts must not produce special tokens",
            f"keep_whole with {entry!r}",
            "Remove it from keep_whole",
        )
