"""Check texts, vocabularies and records for mistakes of script, case and language."""

import collections
import dataclasses
import unicodedata
from collections.abc import Sequence

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.text.encoding import RaggedRows
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.records import Manifest
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CLS, CONTINUATION, SEP, UNKNOWN

ACCENT_LIMIT = 0.01
"""Maximum share of changed letters and marks without an explicit setting."""
UNKNOWN_LIMIT = ENTRIES_LIMIT = 0.05
PADDING_LIMIT = 0.6
DISCARDED_LIMIT = 0.2
LINES_LIMIT = 10_000
"""Lines of a document on average; a book has fewer."""
_ACCENTED_SCRIPTS = ("LATIN ", "GREEK ", "CYRILLIC ", "COMBINING ")
# Marks of Hiragana and Katakana; their names, too, begin with COMBINING.
_VOICING = "\u3099\u309a"


def check_accents(texts: Sequence[str], settings: TokenizationConfig) -> None:
    """Raise an InputError if accent stripping changes letters of other scripts.

    Outside Latin, Greek and Cyrillic script it removes parts of letters, such as
    Japanese voicing marks, Indic vowel signs and Thai tones. Over 1% of the letters and
    marks (Unicode L* and M*) of the texts are an error.
    """
    if not settings.strips_accents:
        return
    stripped = CharacterTable(settings)
    kept = CharacterTable(dataclasses.replace(settings, strip_accents="never"))

    def is_changed(character: str) -> bool:
        code = ord(character)
        is_other = stripped[code] != kept[code] and _is_of_other_script(character)
        return is_other and _is_letter(character)

    counts = collections.Counter("".join(texts))
    total = sum(count for c, count in counts.items() if _is_letter(c))
    changed = sum(count for c, count in counts.items() if is_changed(c))
    if changed <= ACCENT_LIMIT * total:
        return
    words = (word for text in texts for word in kept.words(text))
    word, place = next((w, i) for w in words for i, c in enumerate(w) if is_changed(c))
    word = word[max(0, place - 8) : place + 9]
    after = " ".join(stripped.words(word))
    raise InputError(
        f"Stripping accents changes {changed:,} of {total:,} letters and marks at "
        f"the beginning of the text ({changed / total:.1%}, over {ACCENT_LIMIT:.0%}) "
        f"outside Latin, Greek and Cyrillic script, such as {word!r} ({len(word)} "
        f"characters) -> {after!r} ({len(after)}); pass --strip_accents=never to keep "
        "them, or --strip_accents=lowered for the rule of the original"
    )


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM"


def _is_of_other_script(character: str) -> bool:
    first = unicodedata.normalize("NFD", character)[0]
    is_accented = unicodedata.name(first, "").startswith(_ACCENTED_SCRIPTS)
    return character in _VOICING or not is_accented


def record_warnings(manifest: Manifest, tokenizer: WordPieceTokenizer) -> list[str]:
    """Return a warning for each statistic of a record folder that is out of range."""
    lines = unknown_warnings(manifest.unknown_share, tokenizer)
    lines = lines or entry_warnings(tokenizer)
    documents = max(1, manifest.documents)
    if manifest.padding_share > PADDING_LIMIT:
        lines.append(
            f"{manifest.padding_share:.1%} of the positions are padding (over "
            f"{PADDING_LIMIT:.0%}): documents have {manifest.tokens / documents:.0f} "
            f"tokens on average, records {manifest.max_length} positions. Set a "
            "smaller --max_length, or --documents=file if blank lines do not end "
            "documents"
        )
    discarded = manifest.discarded_tokens / manifest.tokens
    if discarded > DISCARDED_LIMIT:
        lines.append(
            f"{discarded:.1%} of the tokens are discarded (over "
            f"{DISCARDED_LIMIT:.0%}) by the original's packing, as they do not fit "
            f"into {manifest.max_length} positions. Set --order=document to keep them"
        )
    average = manifest.sentences / documents
    is_single = manifest.documents == 1 and manifest.sentences > 1
    is_default = manifest.settings["corpus"]["documents"] == "blank_line"
    if is_default and (is_single or average > LINES_LIMIT):
        count = "1 document has" if is_single else "documents have"
        lines.append(
            f"{count} {average:,.0f} lines, which records join. Set --documents=line "
            "if each line is a text of its own, or end documents with a blank line"
        )
    return lines


def entry_warnings(tokenizer: WordPieceTokenizer) -> list[str]:
    """Return a warning if the settings change many entries, which then never occur."""
    settings, vocabulary = tokenizer.settings, tokenizer.vocabulary
    table = CharacterTable(settings)
    whole = settings.keep_whole
    words = {
        entry: entry.removeprefix(CONTINUATION)
        for entry in vocabulary.tokens
        if not entry.startswith("[") and entry not in whole
    }
    changed = [e for e, word in words.items() if "".join(table.words(word)) != word]
    share = len(changed) / len(vocabulary)
    if share <= ENTRIES_LIMIT:
        return []
    return [
        f"{share:.1%} of the entries of {vocabulary.source} can never occur (over "
        f"{ENTRIES_LIMIT:.0%}), because texts are {settings}: "
        f"{format_list(changed, 3)}. Use a vocabulary of these settings, or set "
        "--nolower_case or --strip_accents=never in build_records, or write "
        '{"do_lower_case": false} or {"strip_accents": false} to tokenizer_config.json '
        "beside vocab.txt"
    ]


def unknown_warnings(share: float, tokenizer: WordPieceTokenizer) -> list[str]:
    """Return a warning with its likely cause if the share of [UNK] is out of range."""
    if share <= UNKNOWN_LIMIT:
        return []
    settings, cause = tokenizer.settings, entry_warnings(tokenizer)
    if not cause:
        cause = [
            f"the vocabulary is of another language or script, or texts are {settings} "
            "and it is not. Pass another --vocab, or train one with electra-tf "
            "build_vocab"
        ]
        if settings.split_unspaced == "none":
            cause[0] += (
                f". Words of more than {settings.max_word_characters} characters are "
                "[UNK] too: set --split_unspaced=characters for scripts without spaces"
            )
    line = f"{share:.1%} of the tokens are [UNK] (over {UNKNOWN_LIMIT:.0%})"
    return [f"{line}: {cause[0]}"]


class UnknownCounter:
    """Count the [UNK] of the texts of a trained model, whose vocabulary is fixed."""

    def __init__(
        self, tokenizer: WordPieceTokenizer, wordpieces: int = 0, unknown: int = 0
    ):
        self.tokenizer = tokenizer
        self.wordpieces, self.unknown = wordpieces, unknown

    @property
    def share(self) -> float:
        """Share of [UNK] among the wordpieces."""
        return self.unknown / max(1, self.wordpieces)

    def add(self, texts: Sequence[Sequence[int]]) -> None:
        """Count the wordpieces of texts, [CLS] and [SEP] left out."""
        ids, values = self.tokenizer.vocabulary.ids, RaggedRows.of(texts).values
        frame, unknown = [ids[CLS], ids[SEP]], ids[UNKNOWN]
        self.wordpieces += len(values) - np.isin(values, frame).sum()
        self.unknown += np.count_nonzero(values == unknown)

    def lines(self, name: str) -> list[str]:
        """Return a line about the share of [UNK], above 5% with its cause."""
        if not self.unknown:
            return []
        line = (
            f"{name}: {self.unknown:,} of {self.wordpieces:,} wordpieces are [UNK] "
            f"({self.share:.2%})"
        )
        if self.share <= UNKNOWN_LIMIT:
            return [line]
        long = self.tokenizer.settings.max_word_characters
        return [
            f"warning: {line}: the vocabulary of the model lacks words or characters "
            "of these texts, or their script or case. Write spaces in words of more "
            f"than {long} characters"
        ]
