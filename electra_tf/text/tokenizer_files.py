"""Open a vocabulary with the settings beside it, and write a `tokenizer.json`.

In a folder the first of these decides: `assets/tokenizer/vocabulary.txt` of KerasHub,
`vocab.txt` with the settings of `Tokenizer.save`, `tokenizer.json` of Hugging Face, and
`vocab.txt` with `tokenizer_config.json`. A tokenizer that is not BERT's WordPiece is an
error.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list, report_damage
from electra_tf.preset_files import preset_folder
from electra_tf.storage.mirror import fetch
from electra_tf.storage.objects import ObjectFolder, is_url, split_url
from electra_tf.text.tokenizer import (
    StoredTokenizer,
    WordPieceTokenizer,
    settings_path,
)
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
TOKENIZER_CONFIG, ADDED = "tokenizer_config.json", "added_tokens.json"
KERAS_HUB_VOCABULARY = os.path.join("assets", "tokenizer", "vocabulary.txt")
VOCABULARY_FILES = (
    VOCABULARY,
    TOKENIZER,
    TOKENIZER_CONFIG,
    ADDED,
    KERAS_HUB_VOCABULARY,
)
"""Files of a tokenizer in a folder, beside those of `Tokenizer.save`."""
STRIP_ACCENTS = {None: "lowered", True: "always", False: "never"}
"""`strip_accents` of Hugging Face's tokenizers, as `tokenization.strip_accents`."""
WORD_LIMIT = 100
"""Characters of a word in tokenizers that do not set another limit."""

_OTHER_FILES = {
    "SentencePiece": (".model", ".spm"),
    "byte-pair encoding (BPE)": ("vocab.json", "merges.txt"),
}
# Classes of transformers whose words and wordpieces are BERT's.
_CLASSES = ("", "Bert", "Electra", "DistilBert", "ConvBert", "MobileBert", "LayoutLM")
# Values that BERT's WordPiece has: in the parts of a tokenizer.json, in a
# tokenizer_config.json without it, and in the tokenizer.json of KerasHub.
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
_KERAS_HUB = {"split": True, "suffix_indicator": CONTINUATION, "oov_token": UNKNOWN}


def local_vocabulary(path: str | None) -> str | None:
    """Return the local path of a vocabulary, which is fetched if it is at a URL.

    The name of a preset is its vocabulary.
    """
    if path is None or not is_url(path):
        folder = preset_folder(path) if path else None
        return os.path.join(folder, VOCABULARY) if folder else path
    parent, name = split_url(path)
    source = ObjectFolder(parent)
    names = {name, settings_path(name).name, *VOCABULARY_FILES}
    if source.info(name) is None:
        source, name = ObjectFolder(path), ""
        names = {*VOCABULARY_FILES, settings_path(VOCABULARY).name}
    infos = {n: source.info(n) for n in names}
    files = {n: info for n, info in infos.items() if info is not None}
    if not files:
        raise InputError(f"There is no vocabulary at {path}")
    return os.path.join(fetch(source, files, folder="."), name)


def open_tokenizer(path: str | os.PathLike) -> StoredTokenizer:
    """Open a vocabulary and the settings stored with it."""
    path = os.fspath(path)
    if not os.path.isdir(path):
        return _open_file(path)
    if (stored := find_tokenizer(path)) is None:
        names = format_list(sorted(os.listdir(path)), 6) or "no file"
        raise InputError(f"{path} must have {VOCABULARY} or {TOKENIZER}, not {names}")
    return stored


def _open_file(path: str) -> StoredTokenizer:
    folder, name = os.path.split(os.path.normpath(path))
    if name.endswith(".json"):
        is_keras_hub = "registered_name" in read_json(path)
        return _open_keras_hub(folder) if is_keras_hub else _open_json(path)
    if settings_path(path).exists():
        return _open_own(path)
    if os.path.abspath(path).endswith(os.path.join("", KERAS_HUB_VOCABULARY)):
        preset = os.path.abspath(os.path.join(folder, "..", ".."))
        if os.path.isfile(os.path.join(preset, TOKENIZER)):
            return _open_keras_hub(preset)
    if name == VOCABULARY and os.path.exists(path):
        return find_tokenizer(folder)
    return StoredTokenizer(Vocabulary.read(path), None, path)


def find_tokenizer(folder: str) -> StoredTokenizer | None:
    """Open the tokenizer in a folder; None: no file."""
    text, fast = (os.path.join(folder, name) for name in (VOCABULARY, TOKENIZER))
    has_text = os.path.isfile(text)
    if os.path.isfile(os.path.join(folder, KERAS_HUB_VOCABULARY)):
        return _open_keras_hub(folder)
    if has_text and settings_path(text).exists():
        return _open_own(text)
    if os.path.isfile(fast):
        return _open_json(fast)
    if has_text:
        return _open_text(folder)
    names = sorted(os.listdir(folder or os.curdir))
    for kind, endings in _OTHER_FILES.items():
        files = [name for name in names if name.endswith(endings)]
        if files:
            raise _other_tokenizer(folder, f"{format_list(files)} of {kind}")
    return None


def _open_own(path: str) -> StoredTokenizer:
    """Open a vocabulary and the settings that `Tokenizer.save` wrote beside it."""
    vocabulary, file = Vocabulary.read(path), settings_path(path)
    with report_damage(str(file)):
        stored = TokenizationConfig.complete(read_json(file))
        sha256 = stored["vocabulary_sha256"]
        names = TokenizationConfig.__dataclass_fields__
        settings = TokenizationConfig(**{name: stored[name] for name in names})
    if sha256 != vocabulary.sha256:
        raise InputError(
            f"{path} must have the checksum {sha256} that {file.name} stores, not "
            f"{vocabulary.sha256} of its {len(vocabulary)} entries; restore it, or "
            f"delete {file.name} and pass the settings as flags"
        )
    return StoredTokenizer(vocabulary, settings, str(file))


def _open_keras_hub(folder: str) -> StoredTokenizer:
    """Open the tokenizer of a KerasHub preset."""
    path = os.path.join(folder, TOKENIZER)
    stored = read_json(path).get("config")
    stored = stored if isinstance(stored, dict) else {}
    _check_values(path, stored, _KERAS_HUB)
    lower_case = bool(stored.get("lowercase", False))
    strips = bool(stored.get("strip_accents", False))
    accents = "always" if strips else "never"
    settings = TokenizationConfig(
        lower_case=lower_case,
        strip_accents="lowered" if lower_case == strips else accents,
    )
    vocabulary = Vocabulary.read(os.path.join(folder, KERAS_HUB_VOCABULARY))
    return StoredTokenizer(vocabulary, settings, path)


def _open_text(folder: str) -> StoredTokenizer:
    """Open a `vocab.txt` with the settings of a `tokenizer_config.json`, if any."""
    vocabulary = Vocabulary.read(os.path.join(folder, VOCABULARY))
    path, added = (os.path.join(folder, name) for name in (TOKENIZER_CONFIG, ADDED))
    config = read_json(path) if os.path.isfile(path) else {}
    name = str(config.get("tokenizer_class") or "")
    remedy = f"copy the model's {TOKENIZER} beside it, or write it with transformers"
    if name.removesuffix("Fast").removesuffix("Tokenizer") not in _CLASSES:
        raise _other_tokenizer(path, f"tokenizer_class {name!r}; {remedy}")
    _check_values(path, config, _CONFIG)
    with report_damage(f"{added} or {path}"):
        tokens = config.get("added_tokens_decoder") or {}
        names = [one["content"] for one in tokens.values()]
        names += read_json(added) if os.path.isfile(added) else ()
    if others := [name for name in names if name not in SPECIAL_TOKENS]:
        raise InputError(
            f"The tokenizer of {folder} without {TOKENIZER} must have no added tokens, "
            f"but has {format_list(others)}; {remedy}"
        )
    settings = _settings(path, config, "do_lower_case") if config else None
    return StoredTokenizer(vocabulary, settings, path if config else vocabulary.source)


def _open_json(path: str) -> StoredTokenizer:
    """Open a `tokenizer.json`, which decides over the files beside it."""
    library = _load_library(path)
    document = json.loads(library.to_str())  # complete, with the types of the library
    for name, required in _JSON.items():
        document[name] = _single(document[name])
        _check_values(path, document[name], required, f"{name}.")
    limit = document["model"]["max_input_chars_per_word"]
    if not 0 < limit <= 1000:
        raise InputError(
            f"model.max_input_chars_per_word of {path} must be from 1 to 1000, not "
            f"{limit}"
        )
    ids = library.get_vocab()
    entries = sorted(ids, key=ids.__getitem__)
    for number, token in enumerate(entries):
        if ids[token] != number:
            found = f"{token!r} with id {ids[token]} after {number} entries"
            raise _other_tokenizer(path, found)
    settings = _settings(path, document["normalizer"], "lowercase", limit)
    changes_text = settings.lower_case or settings.strips_accents
    whole = []  # no text produces the special tokens
    for one in document["added_tokens"]:
        name = one["content"]
        if one["single_word"] or (one["normalized"] and changes_text):
            raise InputError(
                f"The added token {name!r} of {path} must have single_word and "
                "normalized false; set them, and the token is found in this case, "
                "within words too"
            )
        if name not in SPECIAL_TOKENS:
            whole.append(name)
    settings = dataclasses.replace(settings, keep_whole=tuple(whole))
    return StoredTokenizer(Vocabulary(tuple(entries), path), settings, path)


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


def _settings(
    path: str, values: Mapping[str, Any], lower_name: str, limit: int = WORD_LIMIT
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


def _check_values(
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
            raise _other_tokenizer(path, received)


def _other_tokenizer(path: str, received: str) -> InputError:
    return InputError(f"The tokenizer of {path} must be BERT's WordPiece: {received}")


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
    fast_tokenizer(tokenizer).save(path)


def fast_tokenizer(tokenizer: WordPieceTokenizer) -> Any:
    """Return the same tokenizer of the library `tokenizers`."""
    import tokenizers
    from tokenizers import AddedToken, decoders, models, normalizers, processors

    settings, ids = tokenizer.settings, tokenizer.vocabulary.ids
    longest = settings.max_word_characters
    fast = tokenizers.Tokenizer(
        models.WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=longest)
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
    return fast
