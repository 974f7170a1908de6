"""Vocabularies at URLs, with the files of settings beside them."""

import pytest

from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.text.tokenizer_files import local_vocabulary, open_tokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS


def test_a_vocabulary_is_fetched_with_its_settings(url):
    folder = ObjectFolder(url)
    folder.write("vocab.txt", "\n".join((*SPECIAL_TOKENS, "The")).encode())
    folder.write("tokenizer_config.json", b'{"do_lower_case": false}')
    for path in (f"{url}/vocab.txt", url):
        stored = open_tokenizer(local_vocabulary(path))
        assert stored.vocabulary.tokens[-1] == "The"
        assert not stored.settings.lower_case
    folder.write("other.txt", "\n".join((*SPECIAL_TOKENS, "the")).encode())
    assert open_tokenizer(local_vocabulary(f"{url}/other.txt")).settings is None
    with pytest.raises(InputError, match="absent"):
        local_vocabulary(f"{url}/absent")
