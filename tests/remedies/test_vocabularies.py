"""Remedies of errors about vocabularies and tokenizer files."""

import json
import shutil

from text.test_tokenizer_files import write_fast

from electra_tf.text.tokenizer_files import open_tokenizer
from remedies.bench import RECORDS, VOCAB, remedy_test, write


def damaged_settings(path):
    shutil.copy(RECORDS / "vocab.txt", path)
    write(path / "vocab.txt.settings.json", {})
    open_tokenizer(path / "vocab.txt")


def without_settings(path):
    (path / "vocab.txt.settings.json").unlink()
    open_tokenizer(path / "vocab.txt")


def limit(path, characters):
    """Open a tokenizer.json with a limit of the characters of a word."""
    file, _ = write_fast(path)
    document = json.loads(file.read_text())
    document["model"]["max_input_chars_per_word"] = characters
    write(file, document)
    open_tokenizer(path)


def generic_class(path):
    shutil.copy(VOCAB, path / "vocab.txt")
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    write(path / "tokenizer_config.json", config)
    open_tokenizer(path / "vocab.txt")


def generic_class_with_json(path):
    (path / "vocab.txt").unlink()
    write_fast(path)
    open_tokenizer(path)


VOCABULARIES = {
    "damaged settings": (damaged_settings, without_settings),
    "a limit that is too high": [
        lambda path, one=one: limit(path, one) for one in (10**6, 1000)
    ],
    "a generic class without tokenizer.json": (generic_class, generic_class_with_json),
}

test_a_remedy_works = remedy_test(VOCABULARIES)
