import hashlib
import json
import random
import unicodedata
import uuid

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.text import builder
from electra_tf.text.record_set import open_records
from electra_tf.text.records import Manifest, shard_names
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import UNKNOWN, Vocabulary
from tests.conftest import GOLDEN
from tests.tiny import build_records


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def payloads(folder, manifest):
    """Return the records in the order in which they were written to the shards."""
    shards = [
        list(tf.data.TFRecordDataset(str(folder / shard.file)).as_numpy_iterator())
        for shard in manifest.shards
    ]
    return [shards[i % len(shards)][i // len(shards)] for i in range(manifest.records)]


def ids_of(payload):
    example = tf.train.Example.FromString(payload)
    return list(example.features.feature["input_ids"].int64_list.value)


def test_records_equal_those_of_the_original(tmp_path, vocabulary):
    golden = json.loads((GOLDEN / "dataset_builder.json").read_text())
    (tmp_path / "text.txt").write_text("\n".join(golden["lines"]))
    for case in golden["cases"][:2]:
        output = tmp_path / str(case["seed"])
        manifest = build_records(
            tmp_path / "text.txt",
            output,
            vocabulary,
            max_length=case["max_seq_length"],
            seed=case["seed"],
            shards=3,
        )
        rows = [ids_of(payload) for payload in payloads(output, manifest)]
        size = case["max_seq_length"]
        expected = [e["ids"] + [0] * (size - len(e["ids"])) for e in case["examples"]]
        assert rows == expected


def test_the_manifest_matches_the_records(folder, corpus_file, vocabulary):
    manifest = Manifest.parse((folder / "manifest.json").read_text(), "m")
    lines = [line for line in corpus_file.read_text().split("\n") if line.strip()]
    ids = [WordPieceTokenizer(vocabulary).encode(line) for line in lines]
    tokens = sum(map(len, ids))
    assert manifest.sentences == len(lines)
    assert manifest.tokens == tokens
    unknown = sum(line.count(vocabulary.ids[UNKNOWN]) for line in ids)
    assert manifest.unknown_share == unknown / tokens
    rows = [ids_of(payload) for payload in payloads(folder, manifest)]
    assert manifest.records == len(rows)
    padding = sum(row.count(0) for row in rows)
    assert manifest.padding_share == pytest.approx(padding / (32 * len(rows)))
    special = sum(row.count(2) + row.count(3) for row in rows)
    assert manifest.discarded_tokens == tokens - (32 * len(rows) - padding - special)
    for shard in manifest.shards:
        data = (folder / shard.file).read_bytes()
        assert (shard.bytes, shard.sha256) == (
            len(data),
            hashlib.sha256(data).hexdigest(),
        )
    identity = WordPieceTokenizer(vocabulary).identity()
    assert manifest.tokenizer == json.loads(json.dumps(identity))
    assert Vocabulary.read(folder / "vocab.txt") == vocabulary


def test_output_does_not_depend_on_the_number_of_workers(
    tmp_path, corpus_file, vocabulary, monkeypatch
):
    monkeypatch.setattr(builder, "CHUNK_CHARACTERS", 5000)
    for workers in (1, 2):
        build_records(
            corpus_file, tmp_path / str(workers), vocabulary, workers=workers, seed=5
        )
    one = content(tmp_path / "1")
    assert one == content(tmp_path / "2")
    # A single chunk has other random numbers, so there was more than one.
    monkeypatch.undo()
    build_records(corpus_file, tmp_path / "whole", vocabulary, seed=5)
    assert one != content(tmp_path / "whole")


def test_a_file_has_the_same_records_whatever_follows_it(
    tmp_path, corpus_file, vocabulary
):
    """Chunks end with their file, and random numbers depend on file and chunk."""
    text = corpus_file.read_text().encode()
    for name, data in (("a", text[:9000]), ("b", text[9000:]), ("c", text[:9000])):
        (tmp_path / f"{name}.txt").write_bytes(data)
    rows = {}
    for names in ("a", "ab", "ac"):
        for name in names:
            (tmp_path / names).mkdir(exist_ok=True)
            (tmp_path / names / f"{name}.txt").hardlink_to(tmp_path / f"{name}.txt")
        output = tmp_path / f"{names}-records"
        manifest = build_records(tmp_path / names / "*.txt", output, vocabulary)
        rows[names] = payloads(output, manifest)
    first = len(rows["a"])
    assert rows["ab"][:first] == rows["ac"][:first] == rows["a"]
    # The same text as another file has other random numbers.
    assert len(rows["ac"]) > first
    assert rows["ac"][first:] != rows["a"]


@pytest.mark.parametrize(
    ("megabytes", "shards"), [(0.001, 1), (32, 1), (33, 2), (12_000, 375), (1e6, 512)]
)
def test_the_number_of_shards_depends_on_the_size(megabytes, shards):
    assert builder.shard_count(int(megabytes * 1e6)) == shards


def test_an_output_is_replaced_only_with_overwrite(tmp_path, corpus_file, vocabulary):
    output = tmp_path / "o"
    build_records(corpus_file, output, vocabulary, shards=3)
    before = content(output)
    with pytest.raises(InputError, match=r"complete records.*--overwrite"):
        build_records(corpus_file, output, vocabulary, seed=1)
    assert content(output) == before
    build_records(corpus_file, output, vocabulary, seed=1, shards=2, overwrite=True)
    assert len([name for name in content(output) if "tfrecord" in name]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["o"]
    for folder in (output, tmp_path):  # with records, and without
        (folder / "note.txt").write_text("mine")
        before = sorted(folder.rglob("*"))
        for overwrite in (False, True):
            with pytest.raises(InputError, match=rf"{folder} contains 'note\.txt'"):
                build_records(corpus_file, folder, vocabulary, overwrite=overwrite)
        assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("before", [None, "empty", "records"])
def test_a_failed_build_leaves_what_was_there(
    tmp_path, corpus_file, vocabulary, before
):
    output, bad = tmp_path / "new" / "o", tmp_path / "bad.txt"
    bad.write_bytes(b"fine\n" * 1000 + b"not \xff fine\n")
    if before == "empty":
        output.mkdir(parents=True)
    elif before == "records":
        build_records(corpus_file, output, vocabulary)
    files = content(output) if before else None
    for workers in (0, 1):
        words = "--workers" if workers == 0 else r"bad\.txt:1001: invalid UTF-8"
        with pytest.raises(InputError, match=words):
            build_records(bad, output, vocabulary, workers=workers, overwrite=True)
    if before:
        assert content(output) == files
        assert [path.name for path in output.parent.iterdir()] == ["o"]
    else:
        assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


def test_an_interrupted_upload_is_half_written(corpus_file, vocabulary, monkeypatch):
    store = ObjectFolder(f"memory://{uuid.uuid4().hex}/records")
    build_records(corpus_file, store.url, vocabulary, shards=2)
    upload, remaining = ObjectFolder.upload, iter(range(3))

    def stop(self, path, name):
        if next(remaining, None) is None:
            raise RuntimeError("killed")
        upload(self, path, name)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFolder, "upload", stop)
        with pytest.raises(RuntimeError, match="killed"):
            build_records(corpus_file, store.url, vocabulary, shards=3, overwrite=True)
    with pytest.raises(InputError, match=r"half-written.*--overwrite"):
        build_records(corpus_file, store.url, vocabulary)
    with pytest.raises(InputError, match=r"half-written.*--overwrite"):
        open_records(store.url, max_length=128, tokenizer=None)
    build_records(corpus_file, store.url, vocabulary, shards=3, overwrite=True)
    shards = [name for name in store.find() if "tfrecord" in name]
    assert shards == shard_names(3)
    assert open_records(store.url, max_length=128, tokenizer=None).total


WORDS = [f"word{n}" for n in range(2000)]


def document(seed, words=200):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def test_exact_duplicates_have_the_same_words(tmp_path, vocabulary):
    accented = "caf\u00e9 au lait"
    texts = [
        "One  two\nthree.",
        accented,
        "one two three.",  # another case
        "One two three.",
        unicodedata.normalize("NFD", accented),
        "One two, three.",
        "One two\t\nthree.",
    ]
    rows = (json.dumps({"text": text}) for text in texts)
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    output = tmp_path / "records"
    build_records(tmp_path / "a.jsonl", output, vocabulary, deduplicate="exact")
    lines = map(json.loads, (output / "duplicates.jsonl").read_text().splitlines())
    assert {x["line"]: x["kept_line"] for x in lines} == {4: 1, 5: 2, 7: 1}


def test_the_report_lists_what_was_dropped_for_any_number_of_workers(
    tmp_path, vocabulary, monkeypatch
):
    monkeypatch.setattr(builder, "CHUNK_CHARACTERS", 4000)
    first = [document(seed) for seed in range(30)]
    second = [first[3].replace(" ", "\n"), document(100), first[4]]
    (tmp_path / "a.txt").write_text("\n\n".join(first))
    (tmp_path / "b.txt").write_text("\n\n".join(second))
    folders = []
    for workers in (1, 2):
        output = tmp_path / str(workers)
        manifest = build_records(
            tmp_path / "?.txt", output, vocabulary, workers=workers, deduplicate="exact"
        )
        folders.append(content(output))
    assert folders[0] == folders[1]
    assert manifest.duplicates == {"exact": 2}
    assert manifest.documents == 31
    lines = [json.loads(line) for line in folders[0]["duplicates.jsonl"].splitlines()]
    a, b = (str(tmp_path / f"{name}.txt") for name in "ab")
    places = [(x["source"], x["line"], x["kept_source"], x["kept_line"]) for x in lines]
    assert places == [(b, 1, a, 7), (b, 204, a, 9)]
    # Without the option nothing is dropped, and the report of the old records goes.
    build_records(tmp_path / "?.txt", output, vocabulary, overwrite=True)
    assert not (output / "duplicates.jsonl").exists()
