"""What in the numbers of a vocabulary or of records hints at a wrong setting."""

from electra_tf.text.normalization import CharacterTable
from electra_tf.text.records import Manifest
from electra_tf.text.tokenizer import MAX_WORD_CHARACTERS, Tokenizer

UNKNOWN_LIMIT = 0.05
PADDING_LIMIT = 0.6
DISCARDED_LIMIT = 0.2


def record_warnings(manifest: Manifest, tokenizer: Tokenizer) -> list[str]:
    """Returns a line for each number of a folder of records that is out of range.

    Args:
        manifest: Of the records.
        tokenizer: That they were built with.
    """
    lines = unknown_warnings(manifest.unknown_share, tokenizer, manifest.too_long_words)
    length = manifest.max_length
    if manifest.padding_share > PADDING_LIMIT:
        lines.append(
            f"{manifest.padding_share:.1%} of the positions are padding (over "
            f"{PADDING_LIMIT:.0%}): documents have {_mean(manifest):.0f} tokens on "
            f"average, records {length} positions. Set a smaller --max_length, or "
            "--documents=file if blank lines do not end documents"
        )
    discarded = manifest.discarded_tokens / manifest.tokens
    if discarded > DISCARDED_LIMIT:
        lines.append(
            f"{discarded:.1%} of the tokens are discarded (over "
            f"{DISCARDED_LIMIT:.0%}): the original's packing drops what does not fit "
            f"into {length} positions. Set --order=document to keep all tokens"
        )
    return lines


def unknown_warnings(
    share: float, tokenizer: Tokenizer, too_long: int = 0
) -> list[str]:
    """Returns a line about the share of [UNK] if it is out of range, else none.

    Args:
        share: Of the pieces.
        tokenizer: That made them.
        too_long: How many words were too long to read.
    """
    if share <= UNKNOWN_LIMIT:
        return []
    cause = _cause(tokenizer, too_long)
    return [f"{share:.1%} of the tokens are [UNK] (over {UNKNOWN_LIMIT:.0%}): {cause}"]


def long_word_warnings(words: int, characters: int, tokenizer: Tokenizer) -> list[str]:
    """Returns a line about words that were too long to read, if there were any.

    Args:
        words: How many.
        characters: How many they have together.
        tokenizer: That read them.
    """
    if not words:
        return []
    line = (
        f"{words:,} words of more than {MAX_WORD_CHARACTERS} characters became [UNK], "
        f"{characters:,} characters in all"
    )
    if tokenizer.settings.split_unspaced == "none":
        line += (
            "; text of scripts without spaces (Thai, Lao, Khmer) is kept with "
            "--split_unspaced=characters"
        )
    return [line]


def _mean(manifest: Manifest) -> float:
    return manifest.tokens / max(1, manifest.documents)


def _cause(tokenizer: Tokenizer, too_long: int) -> str:
    settings, table = tokenizer.settings, CharacterTable(tokenizer.settings)
    entries = [t for t in tokenizer.vocabulary.tokens if not t.startswith("[")]
    cased = sum(entry != entry.lower() for entry in entries)
    lost = sum("".join(table.words(e)) != e.lower() for e in entries if e.isalpha())
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
    if settings.strips and lost > len(entries) / 20:
        return (
            "the vocabulary has letters that stripping accents changes. Set "
            "--strip_accents=never"
        )
    if too_long:
        return (
            f"{too_long:,} words have more than {MAX_WORD_CHARACTERS} characters. Set "
            "--split_unspaced=characters for scripts without spaces, or use a "
            "vocabulary of the text's language"
        )
    return (
        "the vocabulary is probably of another language or script. Name another "
        "--vocab, or make one of this text with electra_tf.build_vocab"
    )
