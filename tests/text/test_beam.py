"""The Beam pipelines give what the local commands give, also after failures."""

import collections
import gzip
import json
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from electra_tf.config.data import CorpusConfig, RecordsConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.text import builder
from electra_tf.text.records import Manifest
from tests.conftest import GOLDEN, ROOT

pytest.importorskip("apache_beam", reason="needs the extra `beam`")

from electra_tf.text import beam

# This runner repeats a failed bundle, up to three times.
RETRYING = "--runner=BundleBasedDirectRunner"


@pytest.fixture
def corpus(tmp_path, corpus_file, monkeypatch):
    """Return a folder of plain, compressed and JSONL files, with repeated documents."""
    monkeypatch.setattr(builder, "CHUNK_CHARACTERS", 3000)
    folder = tmp_path / "corpus"
    folder.mkdir()
    text = corpus_file.read_text()
    documents = text.split("\n\n")
    (folder / "a.txt").write_text(text[:40_000])
    (folder / "b.txt.gz").write_bytes(gzip.compress(text[35_000:60_000].encode()))
    rows = [json.dumps({"text": document}) for document in documents[:60]]
    (folder / "c.jsonl").write_text("\n".join(rows))
    for n in range(5):
        (folder / f"small-{n}.txt").write_text(documents[-n - 1])
    return folder


def config_of(corpus=None, **records):
    return PretrainingConfig(
        records=RecordsConfig(max_length=32, order="original", **records),
        corpus=CorpusConfig(**(corpus or {})),
    )


def build_local(corpus, output, vocabulary, config):
    return builder.build([f"{corpus}/*"], vocabulary, config, str(output))


def build_beam(corpus, output, vocabulary, config, options="", **flags):
    inputs = [f"{corpus}/*"]
    return beam.build(inputs, vocabulary, config, str(output), options=options, **flags)


def payloads(folder, manifest):
    """Return the number of occurrences of each record; checksums are compared."""
    paths = [str(folder / shard.file) for shard in manifest.shards]
    return collections.Counter(tf.data.TFRecordDataset(paths).as_numpy_iterator())


def statistics(manifest):
    """Return the manifest without the files, whose order of records differs."""
    return {**vars(manifest), "shards": [shard.file for shard in manifest.shards]}


def check_equal(local, beam_folder):
    """Compare two folders of records, but for the order of the records."""
    manifests = [
        Manifest.parse((folder / "manifest.json").read_text(), "m")
        for folder in (local, beam_folder)
    ]
    assert statistics(manifests[0]) == statistics(manifests[1])
    assert payloads(local, manifests[0]) == payloads(beam_folder, manifests[1])
    names = [
        {path.name for path in folder.iterdir() if path.is_file()}
        for folder in (local, beam_folder)
    ]
    assert names[0] == names[1]
    for name in names[0]:
        if not name.startswith(("pretrain_data", "manifest")):
            assert (local / name).read_bytes() == (beam_folder / name).read_bytes()
    for shard in manifests[1].shards:
        size = (beam_folder / shard.file).stat().st_size
        count = sum(1 for _ in tf.data.TFRecordDataset(str(beam_folder / shard.file)))
        assert (shard.bytes, shard.records) == (size, count)


@pytest.mark.parametrize(
    ("deduplicate", "shards"),
    [("none", 7), pytest.param("exact", 500, marks=pytest.mark.tools)],
)
def test_both_builders_give_the_same_records(
    corpus, tmp_path, vocabulary, deduplicate, shards
):
    config = config_of(deduplicate=deduplicate, shards=shards, seed=3)
    local = build_local(corpus, tmp_path / "local", vocabulary, config)
    build_beam(corpus, tmp_path / "beam", vocabulary, config)
    check_equal(tmp_path / "local", tmp_path / "beam")
    assert bool(local.duplicates) == (deduplicate == "exact")


def test_repeated_bundles_lose_and_double_nothing(
    corpus, tmp_path, vocabulary, monkeypatch
):
    """Each step dies twice, after a part of the outputs of a bundle."""
    config = config_of({"on_error": "report"}, deduplicate="exact", shards=4)
    (corpus / "bad.txt").write_bytes(b"fine\nnot \xff fine\n\nand \0 here\n")
    build_local(corpus, tmp_path / "local", vocabulary, config)
    calls = {}

    def dying(dofn):
        process, names = dofn.process, calls.setdefault(dofn.__name__, [])

        def wrapped(self, element, *rest):
            names.append(str(element))
            is_dying = len(names) in (2, 6)
            for output in process(self, element, *rest):
                yield output
                if is_dying:
                    raise RuntimeError("died")

        return wrapped

    steps = beam.ReadSource, beam.BuildRecords, beam.WriteFile
    for dofn in steps:
        monkeypatch.setattr(dofn, "process", dying(dofn))
    build_beam(corpus, tmp_path / "beam", vocabulary, config, RETRYING)
    check_equal(tmp_path / "local", tmp_path / "beam")
    for names in calls.values():
        assert len(names) > len(set(names))  # some elements were repeated
    assert len(calls) == len(steps)


def test_a_failed_pipeline_leaves_existing_records(
    corpus, tmp_path, vocabulary, monkeypatch
):
    output, config = tmp_path / "o", config_of(shards=2)
    build_beam(corpus, output, vocabulary, config)
    before = {path.name: path.read_bytes() for path in output.iterdir()}

    def fail(self, chunk, failures):
        raise MemoryError("no memory left")
        yield

    monkeypatch.setattr(beam.BuildRecords, "process", fail)
    with pytest.raises(InputError, match="no memory left"):
        build_beam(corpus, output, vocabulary, config, overwrite=True)
    assert before == {path.name: path.read_bytes() for path in output.iterdir()}
    with pytest.raises(InputError, match="no memory left"):
        build_beam(corpus, tmp_path / "new", vocabulary, config)
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match=r"complete records.*--overwrite"):
        build_beam(corpus, output, vocabulary, config)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("z.txt", b"fine\nnot \xff fine\n"),
        ("d.jsonl", b'{"txt": "a"}\n'),
    ],
)
def test_bad_input_has_the_message_of_the_local_builder(
    corpus, tmp_path, vocabulary, name, content
):
    (corpus / name).write_bytes(content)
    with pytest.raises(InputError) as local:
        build_local(corpus, tmp_path / "local", vocabulary, config_of())
    with pytest.raises(InputError) as remote:
        build_beam(corpus, tmp_path / "beam", vocabulary, config_of())
    assert str(local.value) == str(remote.value)
    assert not (tmp_path / "beam").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--runner='x", "No closing quotation"),
        ("--runner=Nowhere", "Nowhere"),
        ("--direct_num_workers=many", "direct_num_workers=many"),
    ],
)
def test_wrong_options_are_reported(corpus, tmp_path, vocabulary, options, words):
    with pytest.raises(InputError, match=words):
        build_beam(corpus, tmp_path / "o", vocabulary, config_of(), options)
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signal_number", "mode"),
    [(signal.SIGINT, "multi_processing"), (signal.SIGTERM, "in_memory")],
)
def test_an_interrupted_pipeline_leaves_nothing(
    corpus_file, tmp_path, signal_number, mode
):
    corpus, output = tmp_path / "corpus", tmp_path / "beam"
    corpus.mkdir()
    (corpus / "a.txt").write_text((corpus_file.read_text() + "\n\n") * 20)
    flags = [
        *(f"--input={corpus}/*", f"--vocab={GOLDEN / 'vocab.txt'}"),
        *(f"--output={output}", "--runner=beam", "--max_length=32", "--shards=3"),
    ]
    options = f"--direct_running_mode={mode} --direct_num_workers=2"
    program = [sys.executable, "-m", "electra_tf.build_records", *flags]
    process = subprocess.Popen(
        [*program, f"--beam_options={options}"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "beam.partial").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(1)
    process.send_signal(signal_number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr.strip().endswith("interrupted; nothing was overwritten")
    assert not output.exists()


def test_input_and_output_may_be_urls(corpus, tmp_path, vocabulary):
    config = config_of(shards=3)
    build_local(corpus, tmp_path / "local", vocabulary, config)
    source, output = f"file://{corpus}", f"file://{tmp_path}/beam"
    for overwrite in (False, True):
        build_beam(source, output, vocabulary, config, overwrite=overwrite)
        check_equal(tmp_path / "local", tmp_path / "beam")
    with pytest.raises(InputError, match="complete records"):
        build_beam(source, output, vocabulary, config)
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "bad.txt").write_bytes(b"not \xff fine\n")
    with pytest.raises(InputError, match=r"file:/.*bad\.txt:1: invalid UTF-8"):
        build_beam(f"file://{bad}", output, vocabulary, config, overwrite=True)
    check_equal(tmp_path / "local", tmp_path / "beam")
    with pytest.raises(InputError, match="matches no file"):
        build_beam(f"{source}/none", output, vocabulary, config, overwrite=True)
