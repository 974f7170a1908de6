"""Sentences of JSON: keys, integer tags, bad records, formats that are not read."""

import gzip
import json

import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.conll import read_sentences
from electra_tf.text.data_errors import DataErrorLog

GOOD = {"tokens": ["Anna", "in", "Bern"], "ner_tags": ["B-PER", "O", "B-LOC"]}


@pytest.fixture
def read(tmp_path):
    def of(records, name="a.jsonl", on_error="stop", **settings):
        text = "\n".join(map(json.dumps, records))
        data = gzip.compress(text.encode()) if "gz" in name else text.encode()
        (tmp_path / name).write_bytes(data)
        log, notes = DataErrorLog(on_error, tmp_path / "problems.txt"), []
        config = DataConfig(**settings)
        sentences = read_sentences(str(tmp_path / name), config, log, notes.append)
        log.close()
        return sentences, notes, dict(log.counts)

    return of


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.ndjson", "a.jsonl.gz"])
@pytest.mark.parametrize("keys", [("tokens", "ner_tags"), ("words", "tags")])
def test_lists_of_words_and_tags_are_sentences(read, name, keys):
    values = list(GOOD.values())
    record = {"id": "0", **dict(zip(keys, values, strict=True))}
    first, second = read([record, record], name)[0]
    assert [list(first.words), list(first.tags)] == values
    assert (second.line, second.line_of(2)) == (2, 2)


def test_keys_are_named_where_there_are_several(read):
    record = {**GOOD, "pos_tags": ["NN", "IN", "NN"]}
    with pytest.raises(InputError, match=r"a\.jsonl .*'pos_tags'.*--label_column"):
        read([record])
    (sentence,), *_ = read([record], label_column="pos_tags")
    assert sentence.tags == ("NN", "IN", "NN")
    for settings in ({"text_columns": ("form",)}, {"label_column": "x"}):
        with pytest.raises(InputError, match="'tokens', 'ner_tags'"):
            read([GOOD], **settings)


def test_integer_tags_need_names(read):
    record = {**GOOD, "ner_tags": [1, 0, 2]}
    with pytest.raises(InputError, match=r"a\.jsonl:2: 'ner_tags' has 1.*--tag_names"):
        read([GOOD, record])
    (sentence,), *_ = read([record], tag_names=("O", "B-PER", "B-LOC"))
    assert sentence.tags == ("B-PER", "O", "B-LOC")
    with pytest.raises(InputError, match=r"a\.jsonl:1: .*has 2, of 2 --tag_names"):
        read([record], tag_names=("O", "B-PER"))


BAD = {
    "lengths": ({**GOOD, "ner_tags": ["O"]}, "3 'tokens' and 1 'ner_tags'"),
    "no list": ({**GOOD, "tokens": "Anna in Bern"}, "'tokens' is 'Anna in Bern'"),
    "no tags": ({"tokens": ["Anna"]}, "'ner_tags' is missing"),
    "null": ({**GOOD, "tokens": None}, "'tokens' is None"),
    "empty": ({"tokens": [], "ner_tags": []}, r"'tokens' is \[\]"),
    "space": ({**GOOD, "tokens": ["New York", "in", "x"]}, "'New York'"),
    "true": ({**GOOD, "ner_tags": [True, "O", "O"]}, "True"),
    "a list": (["a"], "list"),
}


@pytest.mark.parametrize(("record", "words"), BAD.values(), ids=BAD)
def test_bad_records_stop_or_are_counted(read, record, words):
    with pytest.raises(InputError, match=rf"a\.jsonl:2: no sentence: .*{words}"):
        read([GOOD, record])
    sentences, _, counts = read([GOOD, record, GOOD], on_error="report")
    assert [s.line for s in sentences] == [1, 3]
    assert counts == {"no sentence": 1}


def test_other_formats_and_splits_are_reported(read):
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        with pytest.raises(InputError, match=rf"{name}', a "):
            read([GOOD], name)
    for name in ("a.txt", "a.conll", "a.tsv", "a.txt.gz"):
        with pytest.raises(InputError, match=rf"{name}', whose first line is JSON"):
            read([GOOD], name)
    _, notes, _ = read([{**GOOD, "split": "train"}, {**GOOD, "split": "test"}])
    assert "'split'" in notes[0]
    assert read([{**GOOD, "split": "train"}] * 2)[1] == []
