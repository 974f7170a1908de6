"""Check texts, vocabularies and records for mistakes of script, case and language."""

import collections
import dataclasses
import functools
import unicodedata
from collections.abc import Iterable, Sequence

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.records import Manifest
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CLS, CONTINUATION, SEP, UNKNOWN, Vocabulary

ACCENT_LIMIT = 0.01
"""Maximum share of changed letters and marks without an explicit setting."""
UNKNOWN_LIMIT = ENTRIES_LIMIT = 0.05
PADDING_LIMIT = 0.6
DISCARDED_LIMIT = 0.2
LINES_LIMIT = 10_000
"""Lines of a document on average; a book has fewer."""
_CHANGES = {
    "--strip_accents=never": {"strip_accents": "never"},
    "--nolower_case": {"lower_case": False},
}
# The first characters of a text are sampled, then one in 50.
_FIRST_CHARACTERS, _INTERVAL = 30_000, 50
_MIN_SAMPLE = 1000  # characters sampled from a text at once
_MIN_LETTERS = 50_000  # of a sample that is checked before the end of the text
_ACCENTED_SCRIPTS = ("LATIN ", "GREEK ", "CYRILLIC ", "COMBINING ")
# Marks of Hiragana and Katakana; their names, too, begin with COMBINING.
_VOICING = "\u3099\u309a"


@dataclasses.dataclass(frozen=True)
class AccentLoss:
    """Letters and marks, and those that accent stripping changes in other scripts.

    Outside Latin, Greek and Cyrillic script it removes parts of letters: Japanese
    voicing marks, Indic vowel signs, Thai tones, Arabic hamza. It also decomposes
    Korean syllables.
    """

    letters: int = 0
    """Letters and marks (Unicode L* and M*) of all scripts."""
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

    def check(self) -> None:
        """Raise an InputError if the share is above `ACCENT_LIMIT`."""
        if self.share > ACCENT_LIMIT:
            raise InputError(
                "Without --strip_accents, accent stripping must change at most "
                f"{ACCENT_LIMIT:.0%} of the letters and marks of a text, those outside "
                "Latin, Greek and Cyrillic script",
                f"{self.changed:,} changed of {self.letters:,} in a sample of the text "
                f"({self.share:.1%}), such as {self.example}",
                "Pass --strip_accents=never to keep them, or --strip_accents=lowered "
                "for the rule of the original and of published uncased vocabularies",
            )


class AccentLossCounter:
    """Count a sample of a stream of text: its beginning, then one character in 50."""

    def __init__(self, settings: TokenizationConfig):
        self._changed = _changed_characters(settings)
        self._strips = settings.strips_accents
        self._total = self._sampled = 0  # characters
        self.loss = AccentLoss()
        """Counts of the text so far."""

    def add(self, text: str) -> None:
        """Count the part of a text that belongs to the sample."""
        room = _FIRST_CHARACTERS + self._total // _INTERVAL - self._sampled
        self._total += len(text)
        if self._strips and room > 0:
            text = text[: max(room, _MIN_SAMPLE)]
            self._sampled += len(text)
            self._count(text)

    def _count(self, text: str) -> None:
        counts = collections.Counter(text)
        letters = sum(
            n for c, n in counts.items() if unicodedata.category(c)[0] in "LM"
        )
        changed = sum(n for c, n in counts.items() if self._changed[c])
        has_example = bool(self.loss.example) or not changed
        example = "" if has_example else self._changed.example(text)
        self.loss += AccentLoss(letters, changed, example)

    def check_early(self) -> None:
        """Check a sample that is large enough, before the end of a long text."""
        if self.loss.letters >= _MIN_LETTERS:
            self.loss.check()


class _ChangedCharacters(dict):
    """Table from character to whether stripping changes it, in another script."""

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._stripped = CharacterTable(settings)
        self._unstripped = CharacterTable(
            dataclasses.replace(settings, strip_accents="never")
        )

    def __missing__(self, character: str) -> bool:
        code = ord(character)
        self[character] = is_changed = (
            unicodedata.category(character)[0] in "LM"
            and self._stripped[code] != self._unstripped[code]
            and is_other_script(character)
        )
        return is_changed

    def example(self, text: str) -> str:
        """Return a changed word of a text, or a part of it, before and after."""
        for word in self._unstripped.words(text):
            for i, character in enumerate(word):
                if self[character]:
                    word = word[max(0, i - 8) : i + 9]
                    after = " ".join(self._stripped.words(word))
                    return (
                        f"{word!r} ({len(word)} characters) -> {after!r} ({len(after)})"
                    )
        return ""


# Each chunk of a corpus creates a counter.
_changed_characters = functools.cache(_ChangedCharacters)


def is_other_script(character: str) -> bool:
    """Return whether a letter or mark is outside Latin, Greek and Cyrillic script."""
    first = unicodedata.normalize("NFD", character)[0]
    name = unicodedata.name(first, "")
    return character in _VOICING or not name.startswith(_ACCENTED_SCRIPTS)


def text_lines(
    share: float,
    example: str,
    words: int,
    characters: int,
    tokenizer: WordPieceTokenizer,
) -> list[str]:
    """Return lines about stripped letters, from 0.01% on, and about over-long words."""
    lines, settings = [], tokenizer.settings
    if share >= 0.0001:
        lines.append(
            f"stripping accents changes {share:.2%} of the letters and marks, outside "
            f"Latin, Greek and Cyrillic script: {example}; set --strip_accents=never "
            "to keep them"
        )
    if words:
        remedy = (
            "; for scripts without spaces (Thai, Lao, Khmer), set "
            "--split_unspaced=characters"
        )
        lines.append(
            f"{words:,} words of more than {settings.max_word_characters} characters "
            f"became [UNK], {characters:,} characters in total"
            + (remedy if settings.split_unspaced == "none" else "")
        )
    return lines


def record_warnings(manifest: Manifest, tokenizer: WordPieceTokenizer) -> list[str]:
    """Return a warning for each statistic of a record folder that is out of range."""
    lines = entry_warnings(tokenizer)
    lines += unknown_warnings(
        manifest.unknown_share, tokenizer, manifest.too_long_words
    )
    lines += _document_warnings(manifest)
    length = manifest.max_length
    if manifest.padding_share > PADDING_LIMIT:
        tokens = manifest.tokens / max(1, manifest.documents)
        lines.append(
            f"{manifest.padding_share:.1%} of the positions are padding (over "
            f"{PADDING_LIMIT:.0%}): documents have {tokens:.0f} tokens on "
            f"average, records {length} positions. Set a smaller --max_length, or "
            "--documents=file if blank lines do not end documents"
        )
    discarded = manifest.discarded_tokens / manifest.tokens
    if discarded > DISCARDED_LIMIT:
        lines.append(
            f"{discarded:.1%} of the tokens are discarded (over "
            f"{DISCARDED_LIMIT:.0%}): the original's packing drops text that does not "
            f"fit into {length} positions. Set --order=document to keep all tokens"
        )
    return lines


def _document_warnings(manifest: Manifest) -> list[str]:
    """Return a warning for text that has no blank line between documents."""
    average = manifest.sentences / max(1, manifest.documents)
    is_single = manifest.documents == 1 and manifest.sentences > 1
    is_default = manifest.settings["corpus"]["documents"] == "blank_line"
    if not is_default or not (is_single or average > LINES_LIMIT):
        return []
    count = "1 document has" if is_single else "documents have"
    return [
        f"{count} {average:,.0f} lines, so records join them. If each line is a text "
        "of its own, set --documents=line; otherwise end documents with a blank line, "
        "or set --documents=file"
    ]


def entry_warnings(tokenizer: WordPieceTokenizer) -> list[str]:
    """Return a warning if the settings change many entries, which then never occur."""
    settings, vocabulary = tokenizer.settings, tokenizer.vocabulary
    changed = _changed_entries(vocabulary, settings)
    if len(changed) <= ENTRIES_LIMIT * len(vocabulary):
        return []
    cause = "Use a vocabulary of these settings"
    if flag := _better_flag(tokenizer):
        key = {"--nolower_case": "do_lower_case"}.get(flag, "strip_accents")
        cause = (
            f'Set {flag} in build_records, or write {{"{key}": false}} to '
            "tokenizer_config.json beside vocab.txt"
        )
    return [
        f"{len(changed) / len(vocabulary):.1%} of the entries of {vocabulary.source} "
        f"can never occur (over {ENTRIES_LIMIT:.0%}), because texts are {settings}: "
        f"{format_list(changed, 3)}. {cause}"
    ]


def _better_flag(tokenizer: WordPieceTokenizer) -> str | None:
    """Return a flag that changes far fewer entries, if the settings change many."""
    vocabulary, settings = tokenizer.vocabulary, tokenizer.settings
    count = len(_changed_entries(vocabulary, settings))
    for flag, change in _CHANGES.items():
        other = _changed_entries(vocabulary, dataclasses.replace(settings, **change))
        if count > ENTRIES_LIMIT * len(vocabulary) and len(other) < count / 2:
            return flag
    return None


def _changed_entries(vocabulary: Vocabulary, settings: TokenizationConfig) -> list[str]:
    table = CharacterTable(settings)
    whole = {*settings.keep_whole, *settings.keep_whole_normalized}
    entries = (
        (entry, entry.removeprefix(CONTINUATION))
        for entry in vocabulary.tokens
        if not entry.startswith("[") and entry not in whole
    )
    return [entry for entry, word in entries if "".join(table.words(word)) != word]


def unknown_warnings(
    share: float, tokenizer: WordPieceTokenizer, too_long: int = 0
) -> list[str]:
    """Return a warning if the share of [UNK] is out of range."""
    if share <= UNKNOWN_LIMIT:
        return []
    cause = _unknown_cause(tokenizer, too_long)
    return [f"{share:.1%} of the tokens are [UNK] (over {UNKNOWN_LIMIT:.0%}): {cause}"]


def _unknown_cause(tokenizer: WordPieceTokenizer, too_long: int) -> str:
    settings, entries = tokenizer.settings, tokenizer.vocabulary.tokens
    is_lowered = all(t == t.lower() for t in entries if not t.startswith("["))
    other = "or use a vocabulary of the text's language"
    if flag := _better_flag(tokenizer):
        return f"texts are {settings}, the vocabulary is not. Set {flag}, {other}"
    if is_lowered and not settings.lower_case:
        return (
            f"the vocabulary is lower-cased, texts are not. Set --lower_case, {other}"
        )
    if too_long:
        return (
            f"{too_long:,} words have more than {settings.max_word_characters} "
            "characters. Set --split_unspaced=characters for scripts without spaces, "
            f"{other}"
        )
    return (
        "the vocabulary is probably of another language or script. Pass another "
        "--vocab, or train one on this text with electra-tf build_vocab"
    )


class UnknownCounter:
    """Count the [UNK] of the texts of a trained model, whose vocabulary is fixed."""

    def __init__(self, tokenizer: WordPieceTokenizer):
        self._tokenizer = tokenizer
        self.wordpieces = self.unknown = 0

    def add(self, texts: Iterable[Sequence[int]]) -> None:
        """Count the wordpieces of texts, [CLS] and [SEP] left out."""
        ids = self._tokenizer.vocabulary.ids
        for text in texts:
            self.wordpieces += len(text) - text.count(ids[CLS]) - text.count(ids[SEP])
            self.unknown += text.count(ids[UNKNOWN])

    def lines(self, name: str) -> list[str]:
        """Return a line about the share of [UNK], above 5% with its cause."""
        if not self.unknown:
            return []
        share = self.unknown / self.wordpieces
        line = (
            f"{name}: {self.unknown:,} of {self.wordpieces:,} wordpieces are [UNK] "
            f"({share:.2%})"
        )
        if share <= UNKNOWN_LIMIT:
            return [line]
        cause = (
            "the vocabulary of the model lacks the words or characters of these texts. "
            "Use a model of their language, script and case"
        )
        if 2 * self._tokenizer.too_long[0] > self.unknown:
            cause = (
                "there are words of more than "
                f"{self._tokenizer.settings.max_word_characters} characters. Write "
                "spaces between their parts, or use a model of their language"
            )
        return [f"warning: {line}: {cause}"]
