"""Open and write tokenizers of Hugging Face, which must be BERT's WordPiece.

Its files are `tokenizer.json`, or without it `vocab.txt` with `tokenizer_config.json`
and `added_tokens.json`.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list, report_damage
from electra_tf.text.tokenizer import StoredTokenizer, WordPieceTokenizer
from electra_tf.text.vocab import (
    CLS,
    CONTINUATION,
    SEP,
    SPECIAL_TOKENS,
    UNKNOWN,
    Vocabulary,
)
from electra_tf.untrusted_files import read_json

VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer.json"
TOKENIZER_CONFIG, CONFIG = "tokenizer_config.json", "config.json"
ADDED, SPECIAL = "added_tokens.json", "special_tokens_map.json"
TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, CONFIG, ADDED, SPECIAL)
"""Files that may be beside a `vocab.txt`."""
STRIP_ACCENTS = {None: "lowered", True: "always", False: "never"}
"""`strip_accents` of Hugging Face's tokenizers, as `tokenization.strip_accents`."""
WORD_LIMIT = 100
"""Characters of a word in tokenizers that do not set another limit."""

# Classes of transformers whose words and wordpieces are BERT's.
_CLASSES = ("", "Bert", "Electra", "DistilBert", "ConvBert", "MobileBert", "LayoutLM")
# Classes that take all settings from tokenizer.json.
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Values that BERT's WordPiece has: in the parts of a tokenizer.json, and in a
# tokenizer_config.json without it.
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


def open_text(folder: str, vocabulary: Vocabulary) -> StoredTokenizer:
    """Return a `vocab.txt` with the settings and added tokens beside it."""
    path = os.path.join(folder, TOKENIZER_CONFIG)
    config = _read_config(folder)
    check_values(path, config, _CONFIG)
    files = f"{ADDED}, {SPECIAL} or {TOKENIZER_CONFIG} of {folder}"
    with report_damage(files):
        added = _added_files(folder, config)
        if not config and not added:
            return StoredTokenizer(vocabulary, None, vocabulary.source)
        ids = dict(vocabulary.ids)
        for one in added:
            if ids.setdefault(one["content"], one["id"]) != one["id"]:
                name, own = one["content"], ids[one["content"]]
                raise InputError(
                    f"The added token {name!r} of {files} must have the id {own}, not "
                    f"{one['id']}"
                )
        tokens = _entries(files, ids)
        settings = _keep_whole(_settings(path, config), added, files)
    if len(tokens) > len(vocabulary):
        vocabulary = Vocabulary(tuple(tokens), vocabulary.source)
    return StoredTokenizer(vocabulary, settings, path)


def _added_files(folder: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the added tokens of the files beside a `vocab.txt`."""
    special = {**config, **_read_optional(folder, SPECIAL)}
    names = special.get("additional_special_tokens") or []
    exact = [one["content"] if isinstance(one, dict) else one for one in names]
    added = {
        name: {"content": name, "id": number, "normalized": name not in exact}
        for name, number in _read_optional(folder, ADDED).items()
    }
    for number, one in (config.get("added_tokens_decoder") or {}).items():
        added[one["content"]] = {**one, "id": int(number)}
    return [*added.values()]


def _read_config(folder: str) -> dict[str, Any]:
    """Read a `tokenizer_config.json` of a tokenizer that splits words as BERT does."""
    config = _read_optional(folder, TOKENIZER_CONFIG)
    # Older models have the class in the model's config instead.
    model = {} if config.get("tokenizer_class") else _read_optional(folder, CONFIG)
    name = str((config | model).get("tokenizer_class") or "")
    if name.removesuffix("Fast").removesuffix("Tokenizer") not in _CLASSES:
        is_generic = name in _GENERIC
        hint = f"; copy the model's {TOKENIZER} beside it" if is_generic else ""
        raise other_tokenizer(
            os.path.join(folder, TOKENIZER_CONFIG), f"tokenizer_class {name!r}{hint}"
        )
    return config


def open_json(path: str, text: Vocabulary | None = None) -> StoredTokenizer:
    """Open a `tokenizer.json`, which decides over the files beside it.

    `text` is the `vocab.txt` beside it. If it has the same entries, its content stays.
    """
    library = _load_library(path)
    document = json.loads(library.to_str())  # complete, with the types of the library
    for name, required in _JSON.items():
        document[name] = _single(document[name])
        check_values(path, document[name], required, f"{name}.")
    limit = document["model"]["max_input_chars_per_word"]
    if not 0 < limit <= 1000:
        raise InputError(
            f"model.max_input_chars_per_word of {path} must be from 1 to 1000, not "
            f"{limit}"
        )
    tokens = _entries(path, library.get_vocab())
    settings = _settings(path, document["normalizer"], "lowercase", limit)
    settings = _keep_whole(settings, document["added_tokens"], path)
    if text is None or _stripped(text.tokens) != _stripped(tokens):
        text = Vocabulary(tuple(tokens), path)
    return StoredTokenizer(text, settings, path)


def _stripped(tokens: Iterable[str]) -> list[str]:
    return [token.strip() for token in tokens]


def _load_library(path: str) -> Any:
    """Return the tokenizer of the library `tokenizers`, which checks all types."""
    import tokenizers

    keys = read_json(path)
    if "model" not in keys:
        hint = ""
        if "registered_name" in keys:
            hint = "; a KerasHub preset needs assets/tokenizer/vocabulary.txt too"
        raise InputError(
            f"{path} must be a tokenizer.json with the key model, not the keys "
            f"{format_list(keys, 4) or 'none'}; name the model's vocab.txt{hint}"
        )
    try:
        library = tokenizers.Tokenizer.from_file(path)
    except Exception as error:  # the library raises nothing more specific
        raise InputError(
            f"{path} must be a file that the library `tokenizers` reads: {error!s:.200}"
        ) from error
    return library


def _single(part: dict[str, Any] | None) -> dict[str, Any]:
    """Return a part of a tokenizer, which may be a sequence of one."""
    part = part or {}
    inner = part.get("normalizers", part.get("pretokenizers", ()))
    return inner[0] if len(inner) == 1 else part


def _entries(path: str, ids: Mapping[str, int]) -> list[str]:
    """Return entries in the order of their ids, which must have no gaps."""
    entries = sorted(ids, key=ids.__getitem__)
    for number, token in enumerate(entries):
        if ids[token] != number:
            found = f"{token!r} with id {ids[token]} after {number} entries"
            raise other_tokenizer(path, found)
    return entries


def _keep_whole(
    settings: TokenizationConfig, added: Iterable[Mapping[str, Any]], path: str
) -> TokenizationConfig:
    """Return settings with added tokens; no text produces the special ones."""
    changes_text = settings.lower_case or settings.strips_accents
    whole: dict[bool, list[str]] = {False: [], True: []}
    for one in sorted(added, key=lambda one: one["id"]):
        content = one["content"]
        if one.get("single_word"):
            raise InputError(
                f"The added token {content!r} of {path} must not have single_word; set "
                "it to false, and the token is found within words too"
            )
        if content not in SPECIAL_TOKENS:
            whole[bool(one.get("normalized")) and changes_text].append(content)
    exact, normalized = map(tuple, whole.values())
    return dataclasses.replace(
        settings, keep_whole=exact, keep_whole_normalized=normalized
    )


def write_json(tokenizer: WordPieceTokenizer, path: str) -> None:
    """Write a `tokenizer.json` with the ids of this package.

    Raises:
        InputError: The library `tokenizers` lacks a setting.
    """
    settings = tokenizer.settings
    if settings.split_unspaced != "none":
        raise InputError(
            "tokenization.split_unspaced must be none for the library `tokenizers`, "
            f"not {settings.split_unspaced!r}"
        )
    fast_tokenizer(settings, tokenizer.vocabulary.ids).save(path)


def fast_tokenizer(settings: TokenizationConfig, ids: Mapping[str, int]) -> Any:
    """Return a tokenizer of the library `tokenizers`, given the id of each entry."""
    import tokenizers
    from tokenizers import AddedToken, decoders, models, normalizers, processors

    longest = settings.max_word_characters
    fast = tokenizers.Tokenizer(
        models.WordPiece(dict(ids), unk_token=UNKNOWN, max_input_chars_per_word=longest)
    )
    strip = {ours: theirs for theirs, ours in STRIP_ACCENTS.items()}
    fast.normalizer = normalizers.BertNormalizer(
        strip_accents=strip[settings.strip_accents], lowercase=settings.lower_case
    )
    fast.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, ids[name]) for name in (CLS, SEP)],
    )
    fast.decoder = decoders.WordPiece(prefix=CONTINUATION)
    fast.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL_TOKENS])
    fast.add_tokens([AddedToken(e, normalized=False) for e in settings.keep_whole])
    fast.add_tokens(list(settings.keep_whole_normalized))
    return fast


def _settings(
    path: str,
    values: Mapping[str, Any],
    lower_name: str = "do_lower_case",
    limit: int = WORD_LIMIT,
) -> TokenizationConfig:
    """Return the settings of a file of Hugging Face, with defaults for absent ones."""
    lower_case = values.get(lower_name, True)
    strip = values.get("strip_accents")
    if type(lower_case) is not bool or not (strip is None or type(strip) is bool):
        raise InputError(
            f"{lower_name} and strip_accents of {path} must be true or false, not "
            f"{lower_case!r:.40} and {strip!r:.40}"
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
        value = values.get(name)
        value = right if value is None and name != "type" else value
        if value != right or type(value) is not type(right):
            received = f"{prefix}{name} {value!r:.80} instead of {right!r}"
            raise other_tokenizer(path, received)


def other_tokenizer(path: str, received: str) -> InputError:
    """Return the error of a tokenizer that is not BERT's WordPiece."""
    return InputError(f"The tokenizer of {path} must be BERT's WordPiece: {received}")


def _read_optional(folder: str, name: str) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is no such file."""
    path = os.path.join(folder, name)
    return read_json(path) if os.path.isfile(path) else {}
