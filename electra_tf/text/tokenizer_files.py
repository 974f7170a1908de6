"""Open a vocabulary with the settings that are stored beside it.

These are this package's files (`vocab.txt` and `vocab.txt.settings.json`), those of
Hugging Face (`vocab.txt`, `tokenizer.json`, `tokenizer_config.json`), and those of
KerasHub (`tokenizer.json`, `assets/tokenizer/vocabulary.txt`).
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.text.json_file import read_json
from electra_tf.text.tokenizer import Tokenizer, settings_path
from electra_tf.text.tokenizer_json import (
    STRIP_ACCENTS,
    WORD_LIMIT,
    AddedToken,
    TokenizerJson,
    add_tokens,
    parse_added,
    read_tokenizer_json,
)
from electra_tf.text.vocab import CONTINUATION, OTHER_TOKENIZER, UNKNOWN, Vocabulary

VOCABULARY, TOKENIZER, TOKENIZER_CONFIG, CONFIG = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "config.json",
)
ADDED, SPECIAL = "added_tokens.json", "special_tokens_map.json"
KERAS_HUB_VOCABULARY = os.path.join("assets", "tokenizer", "vocabulary.txt")
SETTINGS = (TOKENIZER, TOKENIZER_CONFIG, CONFIG, ADDED, SPECIAL)
"""Files of Hugging Face that may be beside a `vocab.txt`."""
FILES = (VOCABULARY, *SETTINGS, KERAS_HUB_VOCABULARY)
"""Files of a tokenizer in a folder, beside those of `Tokenizer.save`."""
# Classes of transformers whose words and wordpieces are BERT's.
_CLASSES = ("Bert", "Electra", "DistilBert", "ConvBert", "MobileBert", "LayoutLM")
# Classes that take all settings from tokenizer.json.
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
_OTHER_FILES = {
    "SentencePiece": (".model", ".spm"),
    "byte-pair encoding (BPE)": ("vocab.json", "merges.txt"),
}


@dataclasses.dataclass(frozen=True)
class StoredTokenizer:
    """A vocabulary and the settings stored with it."""

    vocabulary: Vocabulary
    settings: TokenizationConfig | None
    """None: no file has them."""
    source: str
    """File of the settings, or else of the vocabulary."""

    @property
    def base(self) -> dict[str, Any] | None:
        """Settings by dotted name, as a base for the config; None without settings."""
        if self.settings is None:
            return None
        values = dataclasses.asdict(self.settings)
        return {f"tokenization.{name}": value for name, value in values.items()}

    def tokenizer(
        self, default: TokenizationConfig = TokenizationConfig()
    ) -> Tokenizer:
        """Return the tokenizer."""
        return Tokenizer(self.vocabulary, self.settings or default)

    def check(self, settings: TokenizationConfig) -> None:
        """Reject settings that differ from the stored ones."""
        if self.settings in (None, settings):
            return
        requested, required = map(dataclasses.asdict, (settings, self.settings))
        names = [name for name in required if required[name] != requested[name]]
        raise InputError(
            f"The settings must be those of {self.source}, "
            f"{ {name: required[name] for name in names} }",
            f"{ {name: requested[name] for name in names} }",
            f"Remove these settings, or correct {self.source} if it is wrong",
        )


def open_tokenizer(
    path: str | os.PathLike, pad_anywhere: bool = False
) -> StoredTokenizer:
    """Open a vocabulary and the settings stored with it."""
    stored = _open(os.fspath(path))
    if not pad_anywhere:
        stored.vocabulary.check_pad_id(stored.vocabulary.pad_id)
    return stored


def _open(path: str) -> StoredTokenizer:
    folder, name = os.path.split(path)
    if os.path.isdir(path):
        stored = find_tokenizer(path)
        if stored is None:
            raise InputError(
                f"A folder of a vocabulary must have {VOCABULARY} or {TOKENIZER}",
                f"{path} with {format_list(sorted(os.listdir(path)), 6) or 'no file'}",
                f"Copy the model's {VOCABULARY} into the folder, or name the file",
            )
        return stored
    if name.endswith(".json"):
        if "registered_name" in read_json(path):
            return _open(os.path.join(folder, KERAS_HUB_VOCABULARY))
        return _open_json(path, None)
    if settings_path(path).exists():
        return _open_own(path)
    preset = os.path.normpath(os.path.join(folder, "..", ".."))
    if os.path.normpath(path) == os.path.normpath(
        os.path.join(preset, KERAS_HUB_VOCABULARY)
    ) and os.path.isfile(os.path.join(preset, TOKENIZER)):
        return _open_keras_hub(preset)
    if name == VOCABULARY and os.path.exists(path):
        return find_tokenizer(folder)
    return StoredTokenizer(Vocabulary.read(path, pad_anywhere=True), None, path)


def find_tokenizer(folder: str) -> StoredTokenizer | None:
    """Open the tokenizer in a folder, with [PAD] anywhere in its vocabulary.

    Returns:
        None where the folder has no file of a tokenizer.
    """
    if os.path.isfile(os.path.join(folder, KERAS_HUB_VOCABULARY)):
        return _open_keras_hub(folder)
    text, fast = (os.path.join(folder, name) for name in (VOCABULARY, TOKENIZER))
    has_text = os.path.isfile(text)
    if has_text and settings_path(text).exists():
        return _open_own(text)
    vocabulary = Vocabulary.read(text, pad_anywhere=True) if has_text else None
    if os.path.isfile(fast):
        return _open_json(fast, vocabulary)
    config = _read_config(folder)
    _check_class(config, has_json=False)
    if vocabulary is None:
        return _reject_others(folder)
    added = _read_added_files(folder, config)
    if not config.values and not added:
        return StoredTokenizer(vocabulary, None, text)
    tokens, settings = add_tokens(
        vocabulary.file_tokens, config.settings(), added, os.path.join(folder, ADDED)
    )
    if len(tokens) > len(vocabulary):
        vocabulary = Vocabulary.pad_first(tokens, text)
    return StoredTokenizer(vocabulary, settings, config.path)


def _read_added_files(folder: str, config: "_Config") -> tuple[AddedToken, ...]:
    """Return the added tokens of a folder without a `tokenizer.json`."""
    path, file = (os.path.join(folder, name) for name in (ADDED, SPECIAL))
    ids = read_json(path) if os.path.isfile(path) else {}
    special = read_json(file) if os.path.isfile(file) else {}
    special = config.values | special
    names = special.get("additional_special_tokens")
    names = names if isinstance(names, list) else []
    exact = [one.get("content") if isinstance(one, dict) else one for one in names]
    decoder = config.values.get("added_tokens_decoder")
    decoder = decoder if isinstance(decoder, dict) else {}
    added = {
        name: {"content": name, "id": number, "normalized": name not in exact}
        for name, number in ids.items()
    }
    for number, one in decoder.items():
        if isinstance(one, dict) and number.isdecimal():
            added[str(one.get("content"))] = {**one, "id": int(number)}
    return parse_added([*added.values()], path)


def _open_own(path: str) -> StoredTokenizer:
    """Open a vocabulary and the settings that `Tokenizer.save` wrote beside it."""
    vocabulary, file = Vocabulary.read(path), settings_path(path)
    remedy = "pass --lower_case, --strip_accents, --split_unspaced and --keep_whole"
    try:
        stored = TokenizationConfig.complete(read_json(file))
        sha256 = stored["vocabulary_sha256"]
        names = [field.name for field in dataclasses.fields(TokenizationConfig)]
        settings = TokenizationConfig(**{name: stored[name] for name in names})
    except (InputError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} must contain the settings of {path}",
            f"{type(error).__name__}: {error}",
            f"Delete it and {remedy}",
        ) from error
    if sha256 != vocabulary.sha256:
        raise InputError(
            f"{path} must have the checksum {sha256} that {file} stores",
            f"{vocabulary.sha256}, of {len(vocabulary)} entries",
            f"Restore the vocabulary, or delete {file.name} and {remedy}",
        )
    return StoredTokenizer(vocabulary, settings, str(file))


def _open_json(path: str, vocabulary: Vocabulary | None) -> StoredTokenizer:
    """Open a `tokenizer.json`, and the `vocab.txt` beside it if there is one."""
    config = _read_config(os.path.dirname(path))
    _check_class(config, has_json=True)
    content = read_tokenizer_json(path)
    if vocabulary is not None:
        _check_entries(vocabulary, content)
    if vocabulary is None or len(vocabulary) < len(content.tokens):
        vocabulary = Vocabulary.pad_first(content.tokens, path)
    _check_added(os.path.dirname(path), content)
    config.check(content.settings)
    content.check_ids(Tokenizer(vocabulary, content.settings))
    return StoredTokenizer(vocabulary, content.settings, path)


def _check_added(folder: str, content: TokenizerJson) -> None:
    """Reject an `added_tokens.json` with tokens that the `tokenizer.json` lacks."""
    path = os.path.join(folder, ADDED)
    ids = read_json(path) if os.path.isfile(path) else {}
    own = dict(enumerate(content.tokens))
    differing = [name for name, number in ids.items() if own.get(number) != name]
    if differing:
        raise InputError(
            f"{path} must have the tokens of {content.path}",
            f"{differing[0]!r} with id {ids[differing[0]]!r:.40}",
            f"Delete {ADDED}, or save the tokenizer again with transformers",
        )


def _check_entries(vocabulary: Vocabulary, content: TokenizerJson) -> None:
    """Reject a `vocab.txt` with other entries than the `tokenizer.json` beside it.

    It may lack the tokens that were added to the model's entries.
    """
    ours, theirs = vocabulary.file_tokens, [token.strip() for token in content.tokens]
    pairs = enumerate(zip(ours, theirs, strict=False))
    line = next((i for i, (a, b) in pairs if a.strip() != b), None)
    if line is not None:
        received = f"{ours[line]!r} and {content.tokens[line]!r} with id {line}"
    elif len(ours) not in (content.model_size, len(theirs)):
        received = f"{len(ours):,} and {content.model_size:,} entries"
    else:
        return
    raise InputError(
        f"{vocabulary.source} and {content.path} must have the same entries",
        received,
        f"Delete {TOKENIZER} to use {VOCABULARY} with the settings of "
        f"{TOKENIZER_CONFIG}, or delete {VOCABULARY} to use {TOKENIZER}, as "
        "transformers does",
    )


@dataclasses.dataclass(frozen=True)
class _Config:
    """Content of a `tokenizer_config.json`."""

    path: str
    values: Mapping[str, Any]
    """Empty where there is no such file."""
    model_class: str = ""
    """`tokenizer_class` of `config.json`, which older models have instead."""

    @property
    def tokenizer_class(self) -> str:
        return str(self.values.get("tokenizer_class") or self.model_class)

    def settings(self, lower_case: bool = True) -> TokenizationConfig:
        """Return the settings; absent ones are those of BertTokenizer."""
        lower_case = self.values.get("do_lower_case", lower_case)
        strip = self.values.get("strip_accents")
        split = self.values.get("tokenize_chinese_chars", True)
        if type(lower_case) is not bool or not (strip is None or type(strip) is bool):
            raise InputError(
                f"do_lower_case and strip_accents of {self.path} must be true, false "
                "or, for the latter, null",
                f"{lower_case!r:.40} and {strip!r:.40}",
                "Set them to true or false, or remove them for the defaults",
            )
        if split is not True:
            raise InputError(
                f"tokenize_chinese_chars of {self.path} must be true",
                f"{split!r:.40}",
                OTHER_TOKENIZER,
            )
        return TokenizationConfig(
            lower_case=lower_case,
            strip_accents=STRIP_ACCENTS[strip],
            max_word_characters=WORD_LIMIT,
        )

    def check(self, read: TokenizationConfig) -> None:
        """Reject settings that contradict those of `tokenizer.json`."""
        if self.tokenizer_class in _GENERIC:
            return
        own = self.settings(read.lower_case)
        names = {"do_lower_case": "lower_case", "strip_accents": "strips_accents"}
        for theirs, ours in names.items():
            value, other = (getattr(settings, ours) for settings in (own, read))
            if theirs in self.values and value != other:
                raise InputError(
                    f"{theirs} of {self.path} must agree with {TOKENIZER}",
                    f"{self.values[theirs]!r}; {TOKENIZER} has {ours} {other!r}",
                    f"Correct {theirs} or remove it",
                )


def _read_config(folder: str) -> _Config:
    path, model = (os.path.join(folder, name) for name in (TOKENIZER_CONFIG, CONFIG))
    values = read_json(path) if os.path.isfile(path) else {}
    of_model = read_json(model) if os.path.isfile(model) else {}
    return _Config(path, values, str(of_model.get("tokenizer_class") or ""))


def _check_class(config: _Config, has_json: bool) -> None:
    """Reject a tokenizer that does not split words as BERT does."""
    name, values = config.tokenizer_class, config.values
    known = name.removesuffix("Fast").removesuffix("Tokenizer") in ("", *_CLASSES)
    if not known and not (has_json and name in _GENERIC):
        raise InputError(
            f"The tokenizer of {config.path} must be BERT's WordPiece",
            f"tokenizer_class {name!r}",
            f"Copy the model's {TOKENIZER} beside it" if name in _GENERIC
            else OTHER_TOKENIZER,
        )  # fmt: skip
    if has_json:
        return  # The settings below are those of classes without tokenizer.json.
    expected: dict[str, tuple] = {
        "word_tokenizer_type": (None, "basic"),
        "subword_tokenizer_type": (None, "wordpiece"),
        "do_basic_tokenize": (None, True),
        "never_split": (None, []),
    }
    for name, accepted in expected.items():
        if values.get(name) not in accepted:
            raise InputError(
                f"{name} of {config.path} must be {accepted[-1]!r}",
                f"{values[name]!r:.80}",
                OTHER_TOKENIZER,
            )


def _reject_others(folder: str) -> None:
    """Reject a folder with files of a tokenizer of another kind alone."""
    for kind, endings in _OTHER_FILES.items():
        files = [name for name in sorted(os.listdir(folder)) if name.endswith(endings)]
        if files:
            raise InputError(
                f"The tokenizer of {folder} must be BERT's WordPiece",
                f"{format_list(files)} of {kind}",
                OTHER_TOKENIZER,
            )


def _open_keras_hub(folder: str) -> StoredTokenizer:
    """Open the tokenizer of a KerasHub preset."""
    path = os.path.join(folder, TOKENIZER)
    stored = read_json(path).get("config")
    stored = stored if isinstance(stored, dict) else {}
    expected = {"split": True, "suffix_indicator": CONTINUATION, "oov_token": UNKNOWN}
    for name, required in expected.items():
        if stored.get(name, required) != required:
            raise InputError(
                f"{name} of {path} must be {required!r}",
                f"{stored[name]!r:.80}",
                OTHER_TOKENIZER,
            )
    lower_case = bool(stored.get("lowercase", False))
    strips = bool(stored.get("strip_accents", False))
    settings = TokenizationConfig(
        lower_case=lower_case,
        strip_accents="lowered" if lower_case == strips
        else "always" if strips else "never",
    )  # fmt: skip
    file = os.path.join(folder, KERAS_HUB_VOCABULARY)
    vocabulary = Vocabulary.read(file, pad_anywhere=True)
    return StoredTokenizer(vocabulary, settings, path)
