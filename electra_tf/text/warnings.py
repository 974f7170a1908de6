"""Warnings about statistics of a vocabulary, of records or of texts that suggest a
mistake."""

import dataclasses
from collections.abc import Iterable, Sequence

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import format_list
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.records import Manifest
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, CONTINUATION, SEP, UNKNOWN

UNKNOWN_LIMIT = ENTRIES_LIMIT = 0.05
PADDING_LIMIT = 0.6
DISCARDED_LIMIT = 0.2
LINES_LIMIT = 10_000
"""Lines of a document on average; a book has fewer."""


def record_warnings(manifest: Manifest, tokenizer: Tokenizer) -> list[str]:
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
    """Return a warning for text that has no blank line between documents, as a list."""
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


def entry_warnings(tokenizer: Tokenizer) -> list[str]:
    """Return a warning if the settings change many entries, as a list.

    No text has such an entry after it is lower-cased or stripped of accents.
    """
    settings, vocabulary = tokenizer.settings, tokenizer.vocabulary
    changed = _changed_entries(tokenizer, settings)
    if len(changed) <= ENTRIES_LIMIT * len(vocabulary):
        return []
    cause = "Use a vocabulary of these settings"
    for flag, stored, change in (
        ("--nolower_case", '"do_lower_case": false', {"lower_case": False}),
        ("--strip_accents=never", '"strip_accents": false', {"strip_accents": "never"}),
    ):
        other = dataclasses.replace(settings, **change)
        if len(_changed_entries(tokenizer, other)) < len(changed) / 2:
            cause = (
                f"Set {flag} in build_records, or write {{{stored}}} to "
                "tokenizer_config.json beside vocab.txt"
            )
            break
    return [
        f"{len(changed) / len(vocabulary):.1%} of the entries of {vocabulary.source} "
        f"can never occur (over {ENTRIES_LIMIT:.0%}), because texts are {settings}: "
        f"{format_list(changed, 3)}. {cause}"
    ]


def _changed_entries(tokenizer: Tokenizer, settings: TokenizationConfig) -> list[str]:
    table = CharacterTable(settings)
    whole = {*settings.keep_whole, *settings.keep_whole_normalized}
    entries = (
        (entry, entry.removeprefix(CONTINUATION))
        for entry in tokenizer.vocabulary.tokens
        if not entry.startswith("[") and entry not in whole
    )
    return [entry for entry, word in entries if "".join(table.words(word)) != word]


def unknown_warnings(
    share: float, tokenizer: Tokenizer, too_long: int = 0
) -> list[str]:
    """Return a warning if the share of [UNK] is out of range, as a list.

    Args:
        share: Share of [UNK] among the wordpieces.
        tokenizer: Tokenizer of the text.
        too_long: Number of over-long words.
    """
    if share <= UNKNOWN_LIMIT:
        return []
    cause = _unknown_cause(tokenizer, too_long)
    return [f"{share:.1%} of the tokens are [UNK] (over {UNKNOWN_LIMIT:.0%}): {cause}"]


class UnknownCounter:
    """Count the [UNK] of the texts of a trained model, whose vocabulary is fixed."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self.wordpieces = self.unknown = 0

    def add(self, texts: Iterable[Sequence[int]]) -> None:
        """Count the wordpieces of texts, [CLS] and [SEP] left out."""
        ids = self._tokenizer.vocabulary.ids
        for text in texts:
            self.wordpieces += len(text) - text.count(ids[CLS]) - text.count(ids[SEP])
            self.unknown += text.count(ids[UNKNOWN])

    def lines(self, name: str) -> list[str]:
        """Return a line about the share of [UNK], above 5% with its cause.

        Returns:
            One line; none if there is no [UNK].
        """
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


def long_word_warnings(words: int, characters: int, tokenizer: Tokenizer) -> list[str]:
    """Return a message about over-long words if there are any, as a list."""
    if not words:
        return []
    line = (
        f"{words:,} words of more than {tokenizer.settings.max_word_characters} "
        f"characters became [UNK], {characters:,} characters in total"
    )
    if tokenizer.settings.split_unspaced == "none":
        line += (
            "; for scripts without spaces (Thai, Lao, Khmer), set "
            "--split_unspaced=characters"
        )
    return [line]


def _unknown_cause(tokenizer: Tokenizer, too_long: int) -> str:
    settings, table = tokenizer.settings, CharacterTable(tokenizer.settings)
    entries = [t for t in tokenizer.vocabulary.tokens if not t.startswith("[")]
    cased = sum(entry != entry.lower() for entry in entries)
    changed = sum("".join(table.words(e)) != e.lower() for e in entries if e.isalpha())
    if settings.lower_case and cased > len(entries) / 20:
        return (
            "the vocabulary is cased and the text lower-cased. Set --nolower_case, or "
            "use a vocabulary of the text's language"
        )
    if not settings.lower_case and not cased:
        return (
            "the vocabulary is lower-cased and the text is not. Set --lower_case, or "
            "use a vocabulary of the text's language"
        )
    if settings.strips_accents and changed > len(entries) / 20:
        return (
            "the vocabulary has letters that accent stripping changes. Set "
            "--strip_accents=never"
        )
    if too_long:
        return (
            f"{too_long:,} words have more than {settings.max_word_characters} "
            "characters. Set --split_unspaced=characters for scripts without spaces, "
            "or use a vocabulary of the text's language"
        )
    return (
        "the vocabulary is probably of another language or script. Pass another "
        "--vocab, or train one on this text with electra_tf.build_vocab"
    )
