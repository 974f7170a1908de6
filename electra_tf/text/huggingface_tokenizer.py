"""Open and write tokenizers of Hugging Face, and check that they are BERT's WordPiece.

Its files are `tokenizer.json`, or `vocab.txt` with `tokenizer_config.json` and
`added_tokens.json`. The ids of a `tokenizer.json` are compared with those of the
library `tokenizers` on a fixed list of texts.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.text.tokenizer import StoredTokenizer, Tokenizer
from electra_tf.text.vocab import (
    CLS,
    CONTINUATION,
    OTHER_TOKENIZER,
    SEP,
    SPECIAL_TOKENS,
    UNKNOWN,
    Vocabulary,
)
from electra_tf.untrusted_files import read_json

VOCABULARY, TOKENIZER, TOKENIZER_CONFIG, CONFIG = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "config.json",
)
ADDED, SPECIAL = "added_tokens.json", "special_tokens_map.json"
STRIP_ACCENTS = {None: "lowered", True: "always", False: "never"}
"""`strip_accents` of Hugging Face's tokenizers, as `tokenization.strip_accents`."""
WORD_LIMIT = 100
"""Characters of a word in tokenizers that do not set another limit."""

# Classes of transformers whose words and wordpieces are BERT's.
_CLASSES = ("", "Bert", "Electra", "DistilBert", "ConvBert", "MobileBert", "LayoutLM")
# Classes that take all settings from tokenizer.json.
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Values that BERT's WordPiece has: in the parts of a tokenizer.json, in a
# tokenizer_config.json without it, and in KerasHub's tokenizer.json.
_JSON = {
    "model": {
        "type": "WordPiece",
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": CONTINUATION,
    },
    "normalizer": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
_CONFIG = {
    "tokenize_chinese_chars": True,
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "do_basic_tokenize": True,
    "never_split": [],
}

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


def open_text(
    folder: str, vocabulary: Vocabulary, config: Mapping[str, Any]
) -> StoredTokenizer:
    """Return a `vocab.txt` with the settings and added tokens beside it."""
    added = _added_files(folder, config)
    if not config and not added:
        return StoredTokenizer(vocabulary, None, vocabulary.source)
    path = os.path.join(folder, TOKENIZER_CONFIG)
    given = {name: value for name, value in config.items() if value is not None}
    check_values(path, given, _CONFIG)
    settings = _settings(path, config, "do_lower_case")
    tokens, settings = _add_tokens(
        vocabulary.file_tokens, settings, added, os.path.join(folder, ADDED)
    )
    if len(tokens) > len(vocabulary):
        vocabulary = Vocabulary.pad_first(tokens, vocabulary.source)
    return StoredTokenizer(vocabulary, settings, path)


def _added_files(folder: str, config: Mapping[str, Any]) -> list[Any]:
    special = {**config, **_read_optional(folder, SPECIAL)}
    names = special.get("additional_special_tokens")
    names = names if isinstance(names, list) else []
    exact = [one.get("content") if isinstance(one, dict) else one for one in names]
    added = {
        name: {"content": name, "id": number, "normalized": name not in exact}
        for name, number in _read_optional(folder, ADDED).items()
    }
    decoder = config.get("added_tokens_decoder")
    for number, one in (decoder if isinstance(decoder, dict) else {}).items():
        if isinstance(one, dict) and number.isdecimal():
            added[str(one.get("content"))] = {**one, "id": int(number)}
    return [*added.values()]


def read_config(folder: str, has_json: bool) -> tuple[dict[str, Any], bool]:
    """Read a `tokenizer_config.json` of a tokenizer that splits words as BERT does.

    Return the content, empty without a file, and whether it lacks the settings.
    """
    config = _read_optional(folder, TOKENIZER_CONFIG)
    # Older models have the class in the model's config instead.
    model = {} if config.get("tokenizer_class") else _read_optional(folder, CONFIG)
    name = str((config | model).get("tokenizer_class") or "")
    is_generic = name in _GENERIC
    known = name.removesuffix("Fast").removesuffix("Tokenizer") in _CLASSES
    if not known and not (has_json and is_generic):
        remedy = f"Copy the model's {TOKENIZER} beside it"
        raise other_tokenizer(
            os.path.join(folder, TOKENIZER_CONFIG),
            f"tokenizer_class {name!r}",
            remedy if is_generic else OTHER_TOKENIZER,
        )
    return config, is_generic


def open_json(path: str, vocabulary: Vocabulary | None) -> StoredTokenizer:
    """Open a `tokenizer.json`, and the `vocab.txt` beside it if there is one."""
    folder = os.path.dirname(path)
    config, is_generic = read_config(folder, has_json=True)
    document = _read_bert_json(path)
    theirs = _load_library(path)
    model = document["model"]
    limit = model.get("max_input_chars_per_word", WORD_LIMIT)
    if not 0 < limit <= 1000:
        raise InputError(
            f"model.max_input_chars_per_word of {path} must be from 1 to 1000",
            f"{limit!r:.40}",
            "Lower it in the file",
        )
    entries = sorted(model["vocab"], key=model["vocab"].__getitem__)
    for number, token in enumerate(entries):
        if model["vocab"][token] != number:
            received = (
                f"{token!r} with id {model['vocab'][token]} after {number} entries"
            )
            raise other_tokenizer(path, received, "Copy or download it again")
    settings = _settings(path, document["normalizer"], "lowercase", limit=limit)
    added = document.get("added_tokens") or []
    tokens, settings = _add_tokens(entries, settings, added, path)
    _check_files(folder, tokens, len(entries), vocabulary)
    if not is_generic:
        _check_config(os.path.join(folder, TOKENIZER_CONFIG), config, settings)
    if vocabulary is None or len(vocabulary) < len(tokens):
        vocabulary = Vocabulary.pad_first(tokens, path)
    file_ids = {0: vocabulary.pad_id, vocabulary.pad_id: 0}
    _check_ids(path, Tokenizer(vocabulary, settings), theirs, file_ids)
    return StoredTokenizer(vocabulary, settings, path)


def _read_bert_json(path: str) -> dict[str, Any]:
    """Return a `tokenizer.json` whose parts are those of BERT."""
    document = read_json(path)
    if "model" not in document:
        remedy = f"Name the model's tokenizer.json or vocab.txt. {OTHER_TOKENIZER}"
        if "registered_name" in document:
            remedy = "Copy assets/tokenizer/vocabulary.txt of the KerasHub preset too"
        keys = format_list(document, 4) or "none"
        raise InputError(
            f"{path} must be a tokenizer.json, with the key model",
            f"the keys {keys}",
            remedy,
        )
    model = document["model"] if isinstance(document["model"], dict) else {}
    if "type" not in model:  # files of early versions do not name it
        is_list = isinstance(model.get("vocab"), list)
        kind = "BPE" if "merges" in model else "Unigram" if is_list else "WordPiece"
        model = {**model, "type": kind}
    parts = {
        "model": model,
        "normalizer": _single(document.get("normalizer")),
        "pre_tokenizer": _single(document.get("pre_tokenizer")),
    }
    for name, required in _JSON.items():
        check_values(path, parts[name], required, f"{name}.")
    return document | parts


def _single(part: Any) -> dict[str, Any]:
    """Return a part of a tokenizer, which may be a sequence of one."""
    part = part if isinstance(part, dict) else {"type": part}
    inner = part.get("normalizers", part.get("pretokenizers"))
    is_single = isinstance(inner, list) and len(inner) == 1
    return inner[0] if is_single and isinstance(inner[0], dict) else part


def _load_library(path: str) -> Any:
    """Return the tokenizer of the library `tokenizers`, which checks all types."""
    from tokenizers import Tokenizer as FastTokenizer

    try:
        theirs = FastTokenizer.from_file(path)
    except Exception as error:  # the library raises nothing more specific
        raise InputError(
            f"{path} must be a file that the library `tokenizers` reads",
            f"{error!s:.200}",
            "Copy or download it again",
        ) from error
    theirs.no_padding()
    theirs.no_truncation()
    return theirs


def _add_tokens(
    tokens: Sequence[str],
    settings: TokenizationConfig,
    added: Iterable[Any],
    path: str,
) -> tuple[list[str], TokenizationConfig]:
    """Return a vocabulary's entries and settings with added tokens.

    Special tokens are not kept whole, because texts do not produce them.
    """
    tokens, ids = list(tokens), {token: number for number, token in enumerate(tokens)}
    changes_text = settings.lower_case or settings.strips_accents
    whole: dict[bool, list[str]] = {False: [], True: []}
    for content, number, is_normalized in _parse_added(added, path):
        if ids.setdefault(content, len(tokens)) != number:
            raise InputError(
                f"The id of an added token of {path} must be that of its entry, or "
                "continue the vocabulary",
                f"{content!r} with id {number} instead of {ids[content]}",
                "Save the tokenizer again with transformers",
            )
        if number == len(tokens):
            tokens.append(content)
        if content not in SPECIAL_TOKENS:
            whole[is_normalized and changes_text].append(content)
    exact, normalized = map(tuple, whole.values())
    return tokens, dataclasses.replace(
        settings, keep_whole=exact, keep_whole_normalized=normalized
    )


def _parse_added(added: Iterable[Any], path: str) -> list[tuple[str, int, bool]]:
    """Return content, id and `normalized` of added tokens in order of id."""
    tokens = []
    for one in added:
        values = one if isinstance(one, dict) else {}
        content, number = values.get("content"), values.get("id")
        if (type(content), type(number)) != (str, int):
            raise InputError(
                f"Each of added_tokens of {path} must have a content and an id",
                f"{one!r:.80}",
                "Copy or download it again",
            )
        if values.get("single_word"):
            raise InputError(
                f"No added token of {path} may have single_word",
                repr(content),
                "Set single_word to false in the file; the token is then found within "
                "words too",
            )
        tokens.append((content, number, bool(values.get("normalized"))))
    return sorted(tokens, key=lambda token: token[1])


def _check_files(
    folder: str, tokens: Sequence[str], model_size: int, vocabulary: Vocabulary | None
) -> None:
    """Reject other entries than those of the `tokenizer.json` in files beside it.

    A `vocab.txt` may lack the tokens that were added to the model's entries.
    """
    own = dict(enumerate(map(str.strip, tokens)))
    ours = [token.strip() for token in vocabulary.file_tokens] if vocabulary else []
    wrong = [(number, t) for number, t in enumerate(ours) if own.get(number, t) != t]
    if not wrong and vocabulary and len(ours) not in (model_size, len(tokens)):
        wrong = [(len(ours), f"the end of {len(ours):,} entries")]
    if wrong:
        number, token = wrong[0]
        raise InputError(
            f"{VOCABULARY} and {TOKENIZER} of {folder} must have the same entries",
            f"{token!r} and {own.get(number)!r} with id {number}",
            f"Delete {TOKENIZER} to use {VOCABULARY} with the settings of "
            f"{TOKENIZER_CONFIG}, or delete {VOCABULARY} to use {TOKENIZER}, as "
            "transformers does",
        )
    for name, number in _read_optional(folder, ADDED).items():
        if not isinstance(number, int) or own.get(number) != name:
            raise InputError(
                f"{os.path.join(folder, ADDED)} must have the tokens of {TOKENIZER}",
                f"{name!r} with id {number!r:.40}",
                f"Delete {ADDED}, or save the tokenizer again with transformers",
            )


def _check_config(
    path: str, config: Mapping[str, Any], read: TokenizationConfig
) -> None:
    """Reject a `tokenizer_config.json` that contradicts `tokenizer.json`."""
    own = _settings(path, config, "do_lower_case", read.lower_case)
    for theirs, value, other in (
        ("do_lower_case", own.lower_case, read.lower_case),
        ("strip_accents", own.strips_accents, read.strips_accents),
    ):
        if theirs in config and value != other:
            raise InputError(
                f"{theirs} of {path} must agree with {TOKENIZER}",
                f"{config[theirs]!r}; {TOKENIZER} has {other!r}",
                f"Correct {theirs} or remove it",
            )


def write_json(tokenizer: Tokenizer, path: str) -> None:
    """Write a `tokenizer.json` with the ids of this package.

    It raises an InputError where the library `tokenizers` gives other ids for the fixed
    texts, as it lacks a setting.
    """
    fast = fast_tokenizer(tokenizer.settings, tokenizer.vocabulary.ids)
    _check_ids(path, tokenizer, fast, {})
    fast.save(path)


def fast_tokenizer(settings: TokenizationConfig, ids: Mapping[str, int]) -> Any:
    """Return a tokenizer of the library `tokenizers`.

    `ids`: the id of each entry; those of `Tokenizer.original_ids` are of files of other
    libraries.
    """
    from tokenizers import (
        AddedToken,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )
    from tokenizers import Tokenizer as FastTokenizer

    longest = settings.max_word_characters
    fast = FastTokenizer(
        models.WordPiece(dict(ids), unk_token=UNKNOWN, max_input_chars_per_word=longest)
    )
    strip = {ours: theirs for theirs, ours in STRIP_ACCENTS.items()}
    fast.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=strip[settings.strip_accents],
        lowercase=settings.lower_case,
    )
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, ids[name]) for name in (CLS, SEP)],
    )
    fast.decoder = decoders.WordPiece(prefix=CONTINUATION)
    fast.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL_TOKENS])
    fast.add_tokens([AddedToken(e, normalized=False) for e in settings.keep_whole])
    normalized = settings.keep_whole_normalized
    fast.add_tokens([AddedToken(entry, normalized=True) for entry in normalized])
    return fast


def _check_ids(
    path: str, tokenizer: Tokenizer, theirs: Any, file_ids: Mapping[int, int]
) -> None:
    """Compare a tokenizer with that of the library on a fixed list of texts.

    `file_ids`: ids of the file that differ from those of the tokenizer.
    """
    framed = theirs.post_processor is not None
    first, last = (tokenizer.vocabulary.ids[name] for name in (CLS, SEP))
    settings = tokenizer.settings
    whole = (
        f"the {entry} {entry.lower()} {entry.upper()} a{entry}{entry}b"
        for entry in (*settings.keep_whole, *settings.keep_whole_normalized)
    )
    for text in (*_SENTENCES, *whole):
        expected = theirs.encode(text, add_special_tokens=framed).ids
        ids = tokenizer.encode(text)
        ids = [first, *ids, last] if framed else ids
        ids = [file_ids.get(number, number) for number in ids]
        if ids != expected:
            pairs = enumerate(zip(ids, expected, strict=False))
            start = next((i for i, (a, b) in pairs if a != b), 0)
            here, there = (f"{part[start:][:12]}" for part in (ids, expected))
            raise other_tokenizer(
                path,
                f"other ids than in the library `tokenizers` for {text!r:.120}: "
                f"{here} here, {there} there, from id {start} on",
            )


def _settings(
    path: str,
    values: Mapping[str, Any],
    lower_name: str,
    lower_case: bool = True,
    limit: int = WORD_LIMIT,
) -> TokenizationConfig:
    """Return the settings of a file of Hugging Face, with defaults for absent ones."""
    lower_case = values.get(lower_name, lower_case)
    strip = values.get("strip_accents")
    if type(lower_case) is not bool or not (strip is None or type(strip) is bool):
        raise InputError(
            f"{lower_name} and strip_accents of {path} must be true, false or, for the "
            "latter, null",
            f"{lower_case!r:.40} and {strip!r:.40}",
            "Set them to true or false, or remove them for the defaults",
        )
    return TokenizationConfig(
        lower_case=lower_case,
        strip_accents=STRIP_ACCENTS[strip],
        max_word_characters=limit,
    )


def check_values(
    path: str,
    values: Mapping[str, Any],
    required: Mapping[str, Any],
    prefix: str = "",
) -> None:
    """Reject values that BERT's WordPiece does not have; absent ones are right."""
    for name, right in required.items():
        value = values.get(name, right)
        if value != right or type(value) is not type(right):
            received = f"{prefix}{name} {value!r:.80} instead of {right!r}"
            raise other_tokenizer(path, received)


def other_tokenizer(
    path: str, received: str, remedy: str = OTHER_TOKENIZER
) -> InputError:
    """Return the error of a tokenizer that is not BERT's WordPiece."""
    rule = f"The tokenizer of {path} must be BERT's WordPiece"
    return InputError(rule, received, remedy)


def _read_optional(folder: str, name: str) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is no such file."""
    path = os.path.join(folder, name)
    return read_json(path) if os.path.isfile(path) else {}
