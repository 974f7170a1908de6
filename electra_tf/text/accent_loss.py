"""How much stripping accents changes in scripts other than Latin, Greek and Cyrillic.

What are accents there are parts of letters elsewhere: Japanese voicing marks, Indic
vowel signs, Thai tones, Arabic hamza; Korean syllables come apart into their letters.
The share is that of changed letters and marks (Unicode L* and M*) outside the three
scripts among all letters and marks, those of the three scripts included.
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
"""Share of changed letters and marks above which the user has to decide."""
_FIRST, _EVERY = 30_000, 50  # these characters are counted, then one in so many
_PIECE = 1000  # characters of a text that are counted at once, not only its beginning
_CHECKED = 2_000_000  # characters between two checks
_ACCENTED_SCRIPTS = ("LATIN ", "GREEK ", "CYRILLIC ", "COMBINING ")
# Marks of Hiragana and Katakana, whose names begin as those of Latin accents do.
_VOICING = "\u3099\u309a"


@dataclasses.dataclass(frozen=True)
class AccentLoss:
    """What stripping accents does to the letters and marks of a text."""

    letters: int = 0
    changed: int = 0
    example: str = ""
    """A word before and after."""

    @property
    def share(self) -> float:
        """The share of `letters` that are changed."""
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
        """Raises an InputError if the share is above `LIMIT`."""
        if self.share > LIMIT:
            raise InputError(
                f"Stripping accents must change at most {LIMIT:.0%} of the letters and "
                "marks of a text outside Latin, Greek and Cyrillic script, unless "
                "--strip_accents is given",
                f"{self.changed:,} changed of {self.letters:,} in a sample of the text "
                f"({self.share:.1%}), such as {self.example}",
                "Pass --strip_accents=never to keep them, or --strip_accents=lowered "
                "for the original's rule (a published uncased vocabulary was made "
                "with it)",
            )


class AccentLossCounter:
    """Measures a sample of a stream of text: its beginning, then one part in fifty.

    Args:
        settings: How text becomes words.
    """

    def __init__(self, settings: TokenizationConfig):
        self._kinds = _kinds(settings)
        self._strips = settings.strips
        self._parts: list[str] = []
        self._waiting = self._seen = self._taken = 0
        self._found, self._due = AccentLoss(), _CHECKED

    def add(self, text: str) -> None:
        """Counts the part of a text that belongs to the sample."""
        if not self._strips:
            return
        room = _FIRST + self._seen // _EVERY - self._taken
        self._seen += len(text)
        if room > 0:
            self._parts.append(text[: max(room, _PIECE)])
            self._taken += len(self._parts[-1])
            self._waiting += len(self._parts[-1])
            if self._waiting >= _FIRST:
                self._count()

    @property
    def is_due(self) -> bool:
        """Whether enough was seen since `found` was last called to call it again."""
        return self._seen >= self._due

    def found(self) -> AccentLoss:
        """Returns what was found so far."""
        if self._parts:
            self._count()
        self._due = self._seen + _CHECKED
        return self._found

    def _count(self) -> None:
        text = "\n".join(self._parts)
        self._parts, self._waiting = [], 0
        letters, within, changed = 0, [], []
        counts = collections.Counter(text)
        for character, count in counts.items():
            kind = self._kinds[character]
            letters += count * bool(kind)
            if kind and not is_ideograph(character):
                within.append(character)
            if kind == "changed":
                changed.append(character)
        example = ""
        if changed and not self._found.example:
            example = self._kinds.example(text, within, changed)
        total = sum(counts[character] for character in changed)
        self._found += AccentLoss(letters, total, example)


class _Kinds(dict):
    """From character to "" (no letter, no mark), "kept" or "changed"."""

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._stripping = CharacterTable(settings)
        self._keeping = CharacterTable(
            dataclasses.replace(settings, strip_accents="never")
        )

    def __missing__(self, character: str) -> str:
        code = ord(character)
        changes = self._stripping[code] != self._keeping[code]
        if unicodedata.category(character)[0] not in "LM":
            kind = ""
        else:
            kind = "changed" if changes and is_other_script(character) else "kept"
        self[character] = kind
        return kind

    def example(self, text: str, letters: list[str], changed: list[str]) -> str:
        """A word of a text, or a part of it, before and after."""
        within = f"[{''.join(map(re.escape, letters))}]{{0,8}}"
        changing = f"[{''.join(map(re.escape, changed))}]"
        word = re.search(within + changing + within, text).group()
        after = " ".join(self._stripping.words(word))
        return f"{word!r} ({len(word)} characters) -> {after!r} ({len(after)})"


@functools.cache
def _kinds(settings: TokenizationConfig) -> _Kinds:
    return _Kinds(settings)  # each chunk of a corpus has a counter of its own


def is_other_script(character: str) -> bool:
    """Whether a letter or mark is of no script with accents in the usual sense.

    Args:
        character: Its name, or that of the letter it is composed with, begins with its
            script's.
    """
    first = unicodedata.normalize("NFD", character)[0]
    name = unicodedata.name(first, "")
    return character in _VOICING or not name.startswith(_ACCENTED_SCRIPTS)
