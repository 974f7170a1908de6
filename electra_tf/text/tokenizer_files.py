"""Open a vocabulary with the settings that are stored beside it.

These are this package's files (`vocab.txt` and `vocab.txt.settings.json`), those of
Hugging Face (`vocab.txt`, `tokenizer.json`, `tokenizer_config.json`), and those of
KerasHub (`tokenizer.json`, `assets/tokenizer/vocabulary.txt`). A tokenizer that is not
BERT's WordPiece is an error.
"""

import os

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list, report_damage
from electra_tf.preset_files import preset_folder
from electra_tf.storage.mirror import fetch
from electra_tf.storage.objects import ObjectFolder, is_url, split_url
from electra_tf.text import huggingface_tokenizer as huggingface
from electra_tf.text.huggingface_tokenizer import TOKENIZER, VOCABULARY
from electra_tf.text.tokenizer import StoredTokenizer, settings_path
from electra_tf.text.vocab import CONTINUATION, UNKNOWN, Vocabulary
from electra_tf.untrusted_files import read_json

KERAS_HUB_VOCABULARY = os.path.join("assets", "tokenizer", "vocabulary.txt")
VOCABULARY_FILES = (VOCABULARY, *huggingface.TOKENIZER_FILES, KERAS_HUB_VOCABULARY)
"""Files of a tokenizer in a folder, beside those of `Tokenizer.save`."""
_OTHER_FILES = {
    "SentencePiece": (".model", ".spm"),
    "byte-pair encoding (BPE)": ("vocab.json", "merges.txt"),
}
# Values of BERT's WordPiece in KerasHub's tokenizer.json.
_KERAS_HUB = {"split": True, "suffix_indicator": CONTINUATION, "oov_token": UNKNOWN}


def local_vocabulary(path: str | None) -> str | None:
    """Return the local path of a vocabulary, which is fetched if it is at a URL.

    The name of a preset is its vocabulary.
    """
    if path is None or not is_url(path):
        folder = preset_folder(path) if path else None
        return os.path.join(folder, VOCABULARY) if folder else path
    parent, name = split_url(path)
    source, names = (
        ObjectFolder(parent),
        {name, settings_path(name).name, *huggingface.TOKENIZER_FILES},
    )
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
    stored = find_tokenizer(path) if os.path.isdir(path) else _open_file(path)
    if stored is None:
        names = format_list(sorted(os.listdir(path)), 6) or "no file"
        raise InputError(f"{path} must have {VOCABULARY} or {TOKENIZER}, not {names}")
    return stored


def _open_file(path: str) -> StoredTokenizer:
    folder, name = os.path.split(os.path.normpath(path))
    if name.endswith(".json"):
        is_keras_hub = "registered_name" in read_json(path)
        return _open_keras_hub(folder) if is_keras_hub else huggingface.open_json(path)
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
    if os.path.isfile(os.path.join(folder, KERAS_HUB_VOCABULARY)):
        return _open_keras_hub(folder)
    text, fast = (os.path.join(folder, name) for name in (VOCABULARY, TOKENIZER))
    has_text = os.path.isfile(text)
    if has_text and settings_path(text).exists():
        return _open_own(text)
    vocabulary = Vocabulary.read(text) if has_text else None
    if os.path.isfile(fast):
        return huggingface.open_json(fast, vocabulary)
    if vocabulary is not None:
        return huggingface.open_text(folder, vocabulary)
    names = sorted(os.listdir(folder or os.curdir))
    for kind, endings in _OTHER_FILES.items():
        files = [name for name in names if name.endswith(endings)]
        if files:
            raise huggingface.other_tokenizer(folder, f"{format_list(files)} of {kind}")
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
    huggingface.check_values(path, stored, _KERAS_HUB)
    lower_case = bool(stored.get("lowercase", False))
    strips = bool(stored.get("strip_accents", False))
    accents = "always" if strips else "never"
    settings = TokenizationConfig(
        lower_case=lower_case,
        strip_accents="lowered" if lower_case == strips else accents,
    )
    file = os.path.join(folder, KERAS_HUB_VOCABULARY)
    return StoredTokenizer(Vocabulary.read(file), settings, path)
