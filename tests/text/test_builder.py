import hashlib
import json
import os
import pathlib
import re

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.text import builder
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
    assert manifest.tokenizer == json.loads(
        WordPieceTokenizer(vocabulary).identity_text
    )
    assert Vocabulary.read(folder / "vocab.txt") == vocabulary
    assert not (folder / "_building").exists()


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
    (output / "note.txt").write_text("mine")
    build_records(corpus_file, output, vocabulary, seed=1, shards=2, overwrite=True)
    after = content(output)
    assert after.pop("note.txt") == b"mine"
    assert len([name for name in after if "tfrecord" in name]) == 2


def test_a_folder_of_other_files_is_never_changed(tmp_path, corpus_file, vocabulary):
    (tmp_path / "thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=re.escape(str(tmp_path))):
            build_records(corpus_file, tmp_path, vocabulary, overwrite=overwrite)
    assert content(tmp_path) == {"thesis.txt": b"mine"}


def test_a_failed_build_leaves_existing_files(tmp_path, corpus_file, vocabulary):
    output = tmp_path / "o"
    build_records(corpus_file, output, vocabulary)
    before = content(output)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\n" * 1000 + b"not \xff fine\n")
    with pytest.raises(InputError, match=r"bad\.txt:1001: invalid UTF-8"):
        build_records(bad, output, vocabulary, overwrite=True)
    assert content(output) == before


def test_a_failed_build_over_a_half_written_folder_leaves_it_half_written(
    tmp_path, corpus_file, vocabulary
):
    output, bad = tmp_path / "o", tmp_path / "bad.txt"
    build_records(corpus_file, output, vocabulary, shards=3)
    # Interrupted while the files were moved.
    (output / "_building").mkdir()
    for name in ("manifest.json", "pretrain_data.tfrecord-00002-of-00003"):
        (output / name).rename(output / "_building" / name)
    bad.write_bytes(b"not \xff fine\n")
    for workers in (0, 1):
        with pytest.raises(InputError):
            build_records(bad, output, vocabulary, workers=workers, overwrite=True)
        with pytest.raises(InputError, match="half-written"):
            build_records(corpus_file, output, vocabulary)
    build_records(corpus_file, output, vocabulary, shards=2, overwrite=True)
    shards = [path.name for path in output.glob("*tfrecord*")]
    assert sorted(shards) == shard_names(2)


def test_an_interrupted_move_is_half_written(
    tmp_path, corpus_file, vocabulary, monkeypatch
):
    output = tmp_path / "o"
    build_records(corpus_file, output, vocabulary, shards=2)
    replace = os.replace
    for steps in range(6):
        remaining_moves = iter(range(steps))

        def stop(source, target, remaining_moves=remaining_moves):
            folders = (pathlib.Path(path).parent for path in (source, target))
            is_move = len(set(folders)) > 1
            if is_move and next(remaining_moves, None) is None:
                raise RuntimeError("killed")
            return replace(source, target)

        monkeypatch.setattr(os, "replace", stop)
        with pytest.raises(RuntimeError, match="killed"):
            build_records(corpus_file, output, vocabulary, shards=3, overwrite=True)
        monkeypatch.undo()
        with pytest.raises(InputError, match="half-written"):
            build_records(corpus_file, output, vocabulary)
    build_records(corpus_file, output, vocabulary, shards=3, overwrite=True)
    assert Manifest.parse((output / "manifest.json").read_text(), "m").records
