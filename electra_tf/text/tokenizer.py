"""The one tokenizer: text to ids by the original's rules, fast and remembered.

In Python here, for building records and for features; `graph()` gives the same
function as TensorFlow operations, for tf.data and for exported models. Both read the
rules from `characters.py`, and tests hold their ids equal.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.normalization import UNIT, CharacterTable
from electra_tf.text.vocab import CONTINUATION, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from electra_tf.text.graph_tokenizer import GraphTokenizer

# A longer word becomes [UNK] unread (the original's limit; Hugging Face's is 100).
MAX_WORD_CHARACTERS = 200

# Remembered text per tokenizer: about 200 MB when full. Longer units are rare and new.
_REMEMBERED_CHARACTERS = 6_000_000
_REMEMBERED_UNIT = 64
_COMMON_SIGNS = ",.()\"-';"


Wordpieces = str
"""Ids as a string with one character for each, `chr(id)`: strings join, slice and count
several times faster than lists of numbers do."""


class Tokenizer:
    """Maps text to WordPiece ids.

    No special token is ever made from text: "[MASK]" becomes `[`, `mask`, `]`.

    Args:
        vocabulary: The pieces.
        settings: How text becomes words.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        settings: TokenizationConfig = TokenizationConfig(),
    ):
        self.vocabulary = vocabulary
        self.settings = settings
        self._characters = CharacterTable(settings)
        self._words = _Words(vocabulary)
        self._units = _Units(self._characters, self._words)

    def encode(self, text: str | bytes) -> list[int]:
        """Returns the ids of a text, without [CLS] and [SEP].

        Args:
            text: A string, or UTF-8 bytes (invalid ones are dropped, as the original
                does).

        Returns:
            One id per piece.

        Raises:
            InputError: It is something else.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8", "ignore")
        if not isinstance(text, str):
            raise InputError(
                "encode takes one text, str or bytes",
                f"{type(text).__name__} {text!r:.50}",
                "Call it for each text of a list",
            )
        return list(map(ord, self.pieces(text)))

    @property
    def too_long(self) -> tuple[int, int]:
        """How many words over the limit became [UNK], and their characters."""
        return self._words.too_long, self._words.too_long_characters

    def pieces(self, text: str) -> Wordpieces:
        """Returns the same ids as a string, the form in which many are handled fast."""
        units = split_units(text, self.settings)
        pieces = "".join(map(self._units.__getitem__, units))
        self._units.forget_if_full()
        return pieces

    def graph(self) -> "GraphTokenizer":
        """Returns the same function as a `tf.Module` (see `graph_tokenizer.py`)."""
        # Imported here: record-building processes never pay TensorFlow's start.
        from electra_tf.text.graph_tokenizer import GraphTokenizer

        return GraphTokenizer(self.vocabulary, self.settings)

    def identity(self) -> dict[str, Any]:
        """What an artefact made with this tokenizer stores; see `check_identity`."""
        return {
            "vocabulary_sha256": self.vocabulary.sha256,
            "vocabulary_size": len(self.vocabulary),
            **dataclasses.asdict(self.settings),
        }

    @property
    def identity_text(self) -> str:
        """The content of the file that stands beside a vocabulary."""
        return json.dumps(self.identity(), indent=2) + "\n"

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary and, beside it, the settings it is used with.

        Both are written whole before either takes its name.
        """
        parts = {
            pathlib.Path(path): self.vocabulary.text,
            settings_path(path): self.identity_text,
        }
        partial = {
            target: target.with_name(f".{target.name}.partial") for target in parts
        }
        try:
            for target, text in parts.items():
                partial[target].write_text(text, encoding="utf-8", newline="\n")
            for target, source in partial.items():
                source.replace(target)
        finally:
            for source in partial.values():
                source.unlink(missing_ok=True)

    def check_identity(self, stored: Mapping[str, Any], source: str) -> None:
        """Refuses an artefact that was made with another vocabulary or setting.

        Args:
            stored: What `identity` returned when the artefact was made.
            source: The artefact, for the message.

        Raises:
            InputError: Anything differs; all differences are listed.
        """
        stored = TokenizationConfig.complete(stored)
        differences = [
            f"{name} {stored.get(name)!r} (here {value!r})"
            for name, value in self.identity().items()
            if stored.get(name) != value
        ]
        if differences:
            raise InputError(
                f"{source} is used with the vocabulary and settings it was made with",
                ", ".join(differences),
                f"Use its own vocabulary and settings (here: "
                f"{self.vocabulary.source}), or make it again",
            )


def split_units(text: str, settings: TokenizationConfig) -> list[str]:
    """Splits a text where no rule looks across a border.

    The rule is `characters.UNIT`. Most text has no control characters and no spaces but
    plain ones; it is lower-cased and its commonest signs are set apart at once, so that
    fewer different units are left to remember.

    Args:
        text: Any text.
        settings: Whether to lower-case.

    Returns:
        Units whose `Characters.words`, one after another, are those of the text.
    """
    if text.isprintable() and "\ufffd" not in text:
        if settings.lower_case:
            text = text.lower()
        for sign in _COMMON_SIGNS:
            text = text.replace(sign, f" {sign} ")
        units = text.split()
        if text.isascii() or len(text) < 16 * len(units):
            return units
    return UNIT.findall(text)


def stored_settings(
    path: str | pathlib.Path, vocabulary: Vocabulary
) -> dict[str, Any] | None:
    """Reads the settings that `Tokenizer.save` wrote beside a vocabulary.

    Args:
        path: The vocabulary's file.
        vocabulary: What was read from it.

    Returns:
        Values by dotted name, as a base for `config.load`; None if there are none.

    Raises:
        InputError: The vocabulary was changed since.
    """
    beside = settings_path(path)
    if not beside.exists():
        return None
    try:
        text = beside.read_text(encoding="utf-8")
        stored = TokenizationConfig.complete(json.loads(text))
        sha256 = stored["vocabulary_sha256"]
        names = [field.name for field in dataclasses.fields(TokenizationConfig)]
        settings = {f"tokenization.{name}": stored[name] for name in names}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{beside} holds the settings of {path}",
            f"{type(error).__name__}: {error}",
            "Delete it and give --lower_case, --strip_accents and --split_unspaced "
            "yourself",
        ) from error
    if sha256 != vocabulary.sha256:
        raise InputError(
            f"{path} is the vocabulary that {beside} was written for",
            f"another one, of {len(vocabulary)} entries",
            f"Restore it, or delete {beside.name} and give --lower_case, "
            "--strip_accents and --split_unspaced yourself",
        )
    return settings


def check_settings(
    settings: TokenizationConfig,
    stored: Mapping[str, Any] | None,
    path: str | pathlib.Path,
) -> None:
    """Refuses settings other than those stored beside the vocabulary.

    Args:
        settings: What the flags and the config say.
        stored: What `stored_settings` returned.
        path: The vocabulary's file, for the message.

    Raises:
        InputError: They differ.
    """
    given = dataclasses.asdict(settings)
    if stored is None:
        return
    wanted = {name: stored[f"tokenization.{name}"] for name in given}
    if given != wanted:
        raise InputError(
            f"{path} is used with the settings it was made with, {wanted}",
            str(given),
            "Leave these settings out, or make another vocabulary",
        )


def settings_path(path: str | pathlib.Path) -> pathlib.Path:
    """Returns where the settings of a vocabulary's file stand."""
    path = pathlib.Path(path)
    return path.with_name(f"{path.name}.settings.json")


class _Words(dict):
    """From word to pieces by greedy longest match, remembered."""

    def __init__(self, vocabulary: Vocabulary):
        super().__init__()
        self._first: dict[str, Wordpieces] = {}
        self._later: dict[str, Wordpieces] = {}
        for token, index in vocabulary.ids.items():
            self._first[token] = chr(index)
            if token.startswith(CONTINUATION):
                self._later[token.removeprefix(CONTINUATION)] = chr(index)
        self._longest = max(map(len, vocabulary.tokens))
        self._unknown = chr(vocabulary.ids[UNKNOWN])
        # Such words are not remembered: each occurrence is counted.
        self.too_long = self.too_long_characters = 0

    def __missing__(self, word: str) -> Wordpieces:
        pieces = self._match(word)
        if len(word) <= _REMEMBERED_UNIT:
            self[word] = pieces
        return pieces

    def _match(self, word: str) -> Wordpieces:
        if len(word) > MAX_WORD_CHARACTERS:
            self.too_long += 1
            self.too_long_characters += len(word)
            return self._unknown
        pieces, start, known = "", 0, self._first
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                if word[start:end] in known:
                    break
            else:
                return self._unknown
            pieces += known[word[start:end]]
            start, known = end, self._later
        return pieces


class _Units(dict):
    """From unit (see `characters.UNIT`) to pieces, remembered up to a limit."""

    def __init__(self, characters: CharacterTable, words: _Words):
        super().__init__()
        self._split = characters.words
        self._words = words
        self._size = 0

    def __missing__(self, unit: str) -> Wordpieces:
        pieces = "".join(map(self._words.__getitem__, self._split(unit)))
        self._size += len(unit)
        if len(unit) <= _REMEMBERED_UNIT:
            self[unit] = pieces
        return pieces

    def forget_if_full(self) -> None:
        """Starts again with an empty memory once it holds too much."""
        if self._size > _REMEMBERED_CHARACTERS:
            self.clear()
            self._words.clear()
            self._size = 0
