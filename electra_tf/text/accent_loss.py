"""Measure how much accent stripping changes outside Latin, Greek and Cyrillic script.

In other scripts it removes parts of letters: Japanese voicing marks, Indic vowel signs,
Thai tones, Arabic hamza. It also decomposes Korean syllables. The measured share is the
number of changed letters and marks (Unicode L* and M*) outside the three scripts,
divided by the number of all letters and marks.
"""

import collections
import dataclasses
import functools
import re
import unicodedata

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.normalization import CharacterTable, is_ideograph

LIMIT = 0.01
"""Maximum share of changed letters and marks without an explicit setting."""
# The first characters of a text are sampled, then one in 50.
_FIRST_CHARACTERS, _INTERVAL = 30_000, 50
_MIN_SAMPLE = 1000  # characters sampled from a text at once
_CHECK_EVERY = 2_000_000  # characters between two checks
_ACCENTED_SCRIPTS = ("LATIN ", "GREEK ", "CYRILLIC ", "COMBINING ")
# Marks of Hiragana and Katakana; their names, too, begin with COMBINING.
_VOICING = "\u3099\u309a"


@dataclasses.dataclass(frozen=True)
class AccentLoss:
    """Counts of letters and marks, and of those that accent stripping changes."""

    letters: int = 0
    changed: int = 0
    example: str = ""
    """A changed word, before and after."""

    @property
    def share(self) -> float:
        """Share of `letters` that are changed."""
        return self.changed / max(1, self.letters)

    def __add__(self, other: "AccentLoss") -> "AccentLoss":
        return AccentLoss(
            self.letters + other.letters,
            self.changed + other.changed,
            self.example or other.example,
        )

    def __str__(self) -> str:
        return (
            f"stripping accents changes {self.share:.2%} of the letters and marks, "
            f"outside Latin, Greek and Cyrillic script: {self.example}"
        )

    def check(self) -> None:
        """Raise an InputError if the share is above `LIMIT`."""
        if self.share > LIMIT:
            raise InputError(
                "Without --strip_accents, accent stripping must change at most "
                f"{LIMIT:.0%} of the letters and marks of a text, those outside Latin, "
                "Greek and Cyrillic script",
                f"{self.changed:,} changed of {self.letters:,} in a sample of the text "
                f"({self.share:.1%}), such as {self.example}",
                "Pass --strip_accents=never to keep them, or --strip_accents=lowered "
                "for the rule of the original and of published uncased vocabularies",
            )


class AccentLossCounter:
    """Count a sample of a stream of text: its beginning, then one character in 50."""

    def __init__(self, settings: TokenizationConfig):
        self._kinds = _character_kinds(settings)
        self._strips = settings.strips_accents
        self._pending_texts: list[str] = []
        self._pending_size = self._total = self._sampled = 0  # characters
        self._result, self._next_check = AccentLoss(), _CHECK_EVERY

    def add(self, text: str) -> None:
        """Count the part of a text that belongs to the sample."""
        if not self._strips:
            return
        room = _FIRST_CHARACTERS + self._total // _INTERVAL - self._sampled
        self._total += len(text)
        if room > 0:
            self._pending_texts.append(text[: max(room, _MIN_SAMPLE)])
            self._sampled += len(self._pending_texts[-1])
            self._pending_size += len(self._pending_texts[-1])
            if self._pending_size >= _FIRST_CHARACTERS:
                self._count()

    @property
    def is_due(self) -> bool:
        """Whether enough text was added since the last `result` for a new check."""
        return self._total >= self._next_check

    def result(self) -> AccentLoss:
        """Return the counts of the text so far."""
        if self._pending_texts:
            self._count()
        self._next_check = self._total + _CHECK_EVERY
        return self._result

    def _count(self) -> None:
        text = "\n".join(self._pending_texts)
        self._pending_texts, self._pending_size = [], 0
        num_letters, word_letters, changed = 0, [], []
        counts = collections.Counter(text)
        for character, count in counts.items():
            kind = self._kinds[character]
            num_letters += count * bool(kind)
            if kind and not is_ideograph(character):
                word_letters.append(character)
            if kind == "changed":
                changed.append(character)
        example = ""
        if changed and not self._result.example:
            example = self._kinds.example(text, word_letters, changed)
        total = sum(counts[character] for character in changed)
        self._result += AccentLoss(num_letters, total, example)


class _CharacterKinds(dict):
    """Table from character to "changed", "unchanged" or, for other signs, ""."""

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._stripped = CharacterTable(settings)
        self._unstripped = CharacterTable(
            dataclasses.replace(settings, strip_accents="never")
        )

    def __missing__(self, character: str) -> str:
        code = ord(character)
        changes = self._stripped[code] != self._unstripped[code]
        if unicodedata.category(character)[0] not in "LM":
            kind = ""
        else:
            kind = "changed" if changes and is_other_script(character) else "unchanged"
        self[character] = kind
        return kind

    def example(self, text: str, letters: list[str], changed: list[str]) -> str:
        """Return a word of a text, or a part of it, before and after."""
        within = f"[{''.join(map(re.escape, letters))}]{{0,8}}"
        changing = f"[{''.join(map(re.escape, changed))}]"
        word = re.search(within + changing + within, text).group()
        after = " ".join(self._stripped.words(word))
        return f"{word!r} ({len(word)} characters) -> {after!r} ({len(after)})"


@functools.cache
def _character_kinds(settings: TokenizationConfig) -> _CharacterKinds:
    # Cached, because each chunk of a corpus creates a counter.
    return _CharacterKinds(settings)


def is_other_script(character: str) -> bool:
    """Return whether a letter or mark is outside Latin, Greek and Cyrillic script."""
    first = unicodedata.normalize("NFD", character)[0]
    name = unicodedata.name(first, "")
    return character in _VOICING or not name.startswith(_ACCENTED_SCRIPTS)
