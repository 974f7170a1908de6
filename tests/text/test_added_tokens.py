"""Tokens that were added to a vocabulary of Hugging Face without a `tokenizer.json`.

The expected ids are those of transformers 5.24 and of the fast tokenizer of 4.57.
"""

import json

import pytest
import tensorflow as tf

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.huggingface import write_tokenizer
from electra_tf.text.tokenizer_files import find_tokenizer, open_tokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the model reads user a b ##b ##a [ ] u s e r"
WORDS += " hello covid - 19 ##19 éa"
ADDED = {"[URL]": 28, "[user]": 25, "covid-19": 26, "éclair": 27}
TEXTS = (
    "the [USER] reads covid-19",
    "[user] COVID-19 [URL] [url]",
    "a[USER]b ECLAIR éclair",
)
IDS = [[5, 25, 7, 26], [25, 26, 28, 28], [9, 25, 10, 27, 27]]
EXACT = [IDS[0], [25, 26, 28, 13, 1, 14], IDS[2]]  # [URL] in this case alone
SHAPE = EncoderConfig(
    depth=1, width=8, embedding=8, heads=1, feed_forward=8, vocabulary_size=29,
    max_positions=16, segments=2, dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text(WORDS.replace(" ", "\n") + "\n")
    write(tmp_path, "added_tokens.json", ADDED)
    return tmp_path


def write(folder, name, content):
    (folder / name).write_text(json.dumps(content))


def check(tokenizer, expected):
    assert [tokenizer.encode(text) for text in TEXTS] == expected


def test_added_tokens_are_entries_that_are_kept_whole(folder):
    tokenizer = find_tokenizer(str(folder)).tokenizer()
    assert tokenizer.vocabulary.tokens[25:] == tuple(sorted(ADDED, key=ADDED.get))
    check(tokenizer, IDS)
    texts = tf.data.Dataset.from_tensor_slices(list(TEXTS)).batch(len(TEXTS))
    assert next(iter(texts.map(tokenizer.graph()))).to_list() == IDS


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("special_tokens_map.json", {"additional_special_tokens": ["[URL]"]}),
        (
            "tokenizer_config.json",
            {"additional_special_tokens": [{"content": "[URL]"}]},
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"28": {"content": "[URL]", "normalized": False}}},
        ),
    ],
)
def test_special_tokens_are_found_as_they_are_written(file, content, folder):
    write(folder, file, content)
    check(open_tokenizer(folder / "vocab.txt").tokenizer(), EXACT)


def test_transformers_gets_added_tokens_back(folder, tmp_path):
    write(folder, "special_tokens_map.json", {"additional_special_tokens": ["[URL]"]})
    tokenizer = find_tokenizer(str(folder)).tokenizer()
    back = tmp_path / "back"
    back.mkdir()
    write_tokenizer(tokenizer, SHAPE, str(back))
    check(find_tokenizer(str(back)).tokenizer(), EXACT)
    (back / "tokenizer.json").unlink()
    check(find_tokenizer(str(back)).tokenizer(), EXACT)


def test_files_that_contradict_each_other_are_errors(folder, tmp_path):
    back = tmp_path / "back"
    back.mkdir()
    tokenizer = find_tokenizer(str(folder)).tokenizer()
    write_tokenizer(tokenizer, SHAPE, str(back))
    write(back, "added_tokens.json", {**ADDED, "more": 29})
    with pytest.raises(InputError, match="'more' with id 29"):
        find_tokenizer(str(back))
    (back / "added_tokens.json").unlink()  # the remedy
    check(find_tokenizer(str(back)).tokenizer(), IDS)


@pytest.mark.parametrize("content", [{"[user]": 26}, {"the": 4}, {"x": "25"}, {"x": 1}])
def test_ids_that_no_vocabulary_has_are_errors(content, folder):
    write(folder, "added_tokens.json", content)
    with pytest.raises(InputError, match=r"added_tokens\.json"):
        find_tokenizer(str(folder))
