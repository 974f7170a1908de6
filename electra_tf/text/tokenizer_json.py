"""Read `tokenizer.json` of Hugging Face's `tokenizers`, if it is BERT's WordPiece."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.text.json_file import read_json
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import (
    CLS,
    CONTINUATION,
    OTHER_TOKENIZER,
    SEP,
    SPECIAL_TOKENS,
    UNKNOWN,
)

STRIP_ACCENTS = {None: "lowered", True: "always", False: "never"}
"""`strip_accents` of Hugging Face's tokenizers, as `tokenization.strip_accents`."""
WORD_LIMIT = 100
"""Characters of a word in tokenizers that do not set another limit."""

# Texts for which both libraries must give the same ids. Words of a final capital sigma
# are left out: `tokenizers` lower-cases it as any other, Python's `str.lower` does not.
_SENTENCES = (
    "The Model reads The quick BROWN fox's e-mail, and it isn't unhappily rewritten.",
    "Naïve café résumé ÀÉÎÕÜ ñ ß Straße ŒUVRE Łódź İstanbul e\u0301 \u1e69",
    "Привет, Ёлка и йод. Καλημέρα. हिन्दी में किताब. ภาษาไทยที่. اَلْعَرَبِيَّةُ שָׁלוֹם",
    "中文 房间很干净，WiFi也快。東京タワーがぎぐ 한국어 ５８元！",
    "emoji 😀 👩\u200d👩\u200d👧 ❤\ufe0f 👍🏽 end",
    "a\x00b\u200bc\ufeff\xadd\te\nf\rg\x7fh\x85i\ufffdj\u2028k\u3000l\xa0m",
    "$5+6<7=8>9^`a|b~ «c» — … ¿d? (e) [f] {g} #h @i 1,000.5 ½ ② ™ ©",
    "n" * 100 + " " + "n" * 101 + " " + "n" * 200 + " " + "n" * 201,
    "hello " + "ab" * 45 + " " + "ab" * 75 + " " + "ab" * 120 + " world",
    "中" * 250 + "é" * 90,
)


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is searched for in a text before the text is split."""

    content: str
    id: int
    normalized: bool
    """Whether it is searched for in the normalized text."""


@dataclasses.dataclass(frozen=True)
class TokenizerJson:
    """Content of a `tokenizer.json`."""

    path: str
    tokens: tuple[str, ...]
    """Entries by id: those of the WordPiece model, then the other added tokens."""
    model_size: int
    """Number of entries of the WordPiece model."""
    settings: TokenizationConfig
    """With the added tokens as entries that are kept whole."""

    def check_ids(self, tokenizer: Tokenizer) -> None:
        """Compare a tokenizer with `tokenizers` on a fixed list of texts."""
        from tokenizers import Tokenizer as FastTokenizer

        try:
            theirs = FastTokenizer.from_file(self.path)
        except Exception as error:  # the library raises nothing more specific
            raise InputError(
                f"{self.path} must be a file that the library `tokenizers` reads",
                f"{error!s:.200}",
                "Copy or download it again",
            ) from error
        theirs.no_padding()
        theirs.no_truncation()
        framed = theirs.post_processor is not None
        first, last = (tokenizer.vocabulary.ids[name] for name in (CLS, SEP))
        pad_id = tokenizer.vocabulary.pad_id
        file_ids = {0: pad_id, pad_id: 0}
        for text in (*_SENTENCES, *_texts_of(tokenizer.settings)):
            expected = theirs.encode(text, add_special_tokens=framed).ids
            ids = tokenizer.encode(text)
            ids = [first, *ids, last] if framed else ids
            ids = [file_ids.get(number, number) for number in ids]
            if ids != expected:
                raise InputError(
                    f"The ids of {self.path} must be those of the library `tokenizers`",
                    f"for {text!r:.120}: {_differing(ids, expected)}",
                    OTHER_TOKENIZER,
                )


def read_tokenizer_json(path: str | os.PathLike) -> TokenizerJson:
    """Read the entries, settings and added tokens of a `tokenizer.json`."""
    path = os.fspath(path)
    document = read_json(path)
    if "model" not in document:
        remedy = f"Name the model's tokenizer.json or vocab.txt. {OTHER_TOKENIZER}"
        if "registered_name" in document:
            remedy = "Copy assets/tokenizer/vocabulary.txt of the KerasHub preset too"
        raise InputError(
            f"{path} must be a tokenizer.json, with the key model",
            f"the keys {format_list(document, 4) or 'none'}",
            remedy,
        )
    tokens, limit = _read_model(document.get("model"), path)
    normalizer = _single(document, "normalizer", "BertNormalizer", path)
    for name in ("clean_text", "handle_chinese_chars"):
        _require(f"normalizer.{name}", normalizer.get(name, True), True, path)
    lower_case, strip = normalizer.get("lowercase", True), normalizer.get(
        "strip_accents"
    )  # fmt: skip
    if type(lower_case) is not bool or not (strip is None or type(strip) is bool):
        raise InputError(
            f"lowercase and strip_accents of {path} must be true, false or null",
            f"{lower_case!r:.40} and {strip!r:.40}",
            "Copy or download it again",
        )
    _single(document, "pre_tokenizer", "BertPreTokenizer", path)
    settings = TokenizationConfig(
        lower_case=lower_case,
        strip_accents=STRIP_ACCENTS[strip],
        max_word_characters=limit,
    )
    added = parse_added(document.get("added_tokens") or [], path)
    all_tokens, settings = add_tokens(tokens, settings, added, path)
    return TokenizerJson(path, all_tokens, len(tokens), settings)


def add_tokens(
    tokens: Sequence[str],
    settings: TokenizationConfig,
    added: Iterable[AddedToken],
    path: str,
) -> tuple[tuple[str, ...], TokenizationConfig]:
    """Return a vocabulary's entries and settings with added tokens.

    Special tokens are not kept whole, because texts do not produce them.
    """
    tokens, ids = list(tokens), {token: number for number, token in enumerate(tokens)}
    changes_text = settings.lower_case or settings.strips_accents
    whole: dict[bool, list[str]] = {False: [], True: []}
    for token in added:
        if ids.setdefault(token.content, len(tokens)) != token.id:
            raise InputError(
                f"The id of an added token of {path} must be that of its entry, or "
                "continue the vocabulary",
                f"{token.content!r} with id {token.id} instead of {ids[token.content]}",
                "Save the tokenizer again with transformers",
            )
        if token.id == len(tokens):
            tokens.append(token.content)
        if token.content not in SPECIAL_TOKENS:
            whole[token.normalized and changes_text].append(token.content)
    settings = dataclasses.replace(
        settings,
        keep_whole=tuple(whole[False]),
        keep_whole_normalized=tuple(whole[True]),
    )
    return tuple(tokens), settings


def _read_model(model: Any, path: str) -> tuple[tuple[str, ...], int]:
    """Return the entries and the limit of a word's characters."""
    model = model if isinstance(model, dict) else {}
    entries = model.get("vocab")
    # Files of early versions do not name the type.
    kind = "BPE" if "merges" in model else "WordPiece"
    kind = model.get("type", "Unigram" if isinstance(entries, list) else kind)
    _require("model.type", kind, "WordPiece", path)
    _require("model.unk_token", model.get("unk_token", UNKNOWN), UNKNOWN, path)
    prefix = model.get("continuing_subword_prefix", CONTINUATION)
    _require("model.continuing_subword_prefix", prefix, CONTINUATION, path)
    limit = model.get("max_input_chars_per_word", WORD_LIMIT)
    if type(limit) is not int or not 0 < limit <= 1000:
        raise InputError(
            f"model.max_input_chars_per_word of {path} must be from 1 to 1000",
            f"{limit!r:.40}",
            "Lower it in the file",
        )
    if not isinstance(entries, dict) or not all(
        type(number) is int for number in entries.values()
    ):
        raise InputError(
            f"{path} must have a WordPiece vocabulary, model.vocab",
            "none" if entries is None else f"{entries!r:.40}",
            "Copy or download it again",
        )
    tokens = sorted(entries, key=entries.__getitem__)
    wrong = [token for number, token in enumerate(tokens) if entries[token] != number]
    if wrong:
        raise InputError(
            f"The ids of model.vocab of {path} must be 0, 1, 2, ... without gaps",
            f"{wrong[0]!r} with id {entries[wrong[0]]} after {tokens.index(wrong[0])} "
            "entries",
            "Copy or download it again",
        )
    return tuple(tokens), limit


def _require(name: str, value: Any, required: Any, path: str) -> None:
    if value != required or type(value) is not type(required):
        raise InputError(
            f"{name} of {path} must be {required!r}", f"{value!r:.80}", OTHER_TOKENIZER
        )


def _single(
    document: Mapping[str, Any], name: str, required: str, path: str
) -> Mapping[str, Any]:
    """Return a part of the tokenizer, which may be a sequence of one."""
    part = document.get(name)
    parts = [part]
    if isinstance(part, dict) and part.get("type") == "Sequence":
        inner = part.get(f"{name}s", part.get("pretokenizers"))
        parts = inner if isinstance(inner, list) else []
    kinds = [one.get("type") if isinstance(one, dict) else one for one in parts]
    if kinds != [required]:
        raise InputError(
            f"{name} of {path} must be {required}",
            format_list(kinds) or "none",
            OTHER_TOKENIZER,
        )
    return parts[0]


def parse_added(added: Iterable[Any], path: str) -> tuple[AddedToken, ...]:
    """Return added tokens in order of id."""
    try:
        tokens = [
            AddedToken(one["content"], one["id"], one.get("normalized", False))
            for one in added
        ]
        types = {(type(t.content), type(t.id), type(t.normalized)) for t in tokens}
        if not types <= {(str, int, bool)}:
            raise TypeError(f"{types}")
        words = [one["content"] for one in added if one.get("single_word")]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"Each of added_tokens of {path} must have a content and an id",
            f"{type(error).__name__}: {error}",
            "Copy or download it again",
        ) from error
    if words:
        raise InputError(
            f"No added token of {path} may have single_word",
            format_list(words),
            "Set single_word to false in the file; the token is then found within "
            "words too",
        )
    return tuple(sorted(tokens, key=lambda token: token.id))


def _texts_of(settings: TokenizationConfig) -> Iterator[str]:
    """Yield texts with each of the entries that are kept whole."""
    for entry in (*settings.keep_whole, *settings.keep_whole_normalized):
        yield f"the {entry} {entry.lower()} {entry.upper()} a{entry}{entry}b"


def _differing(ids: list[int], expected: list[int]) -> str:
    """Return both lists of ids from the first difference on."""
    pairs = enumerate(zip(ids, expected, strict=False))
    start = next((i for i, (a, b) in pairs if a != b), min(len(ids), len(expected)))
    start = max(0, start - 2)
    here, there = (f"{part[start : start + 12]}" for part in (ids, expected))
    return f"{here} here, {there} there, from id {start} on"
