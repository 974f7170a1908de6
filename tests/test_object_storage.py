"""Real commands against object stores: build, train, die, resume, export, convert."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import electra_tf
from electra_tf import sources
from electra_tf.storage.objects import ObjectFolder
from tests.conftest import GOLDEN, RUN, failure, flags
from tests.object_servers import gcs_server, s3_server
from tests.pretrain_commands import arguments, file_contents, kill, metric_lines, start

SETS = (
    "objective.name=mlm",
    "training.steps=24",
    "training.save_every=3",
    "training.keep_at=[0.5]",
    "training.log_every=3",
)


@pytest.fixture(scope="module", params=["s3", "gs"])
def bucket(request):
    """Return the URL of a bucket of a server on this machine."""
    if request.param == "s3":
        yield request.getfixturevalue("s3")
    else:
        with gcs_server() as url:
            yield url


@pytest.fixture(scope="module")
def s3():
    with s3_server() as url:
        yield url


@pytest.fixture
def new_machine(tmp_path, monkeypatch):
    """Return a function that empties the cache, as on a machine that starts."""

    def empty():
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return empty


def put(folder, url):
    """Upload a folder."""
    target = ObjectFolder(url)
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file() and path.name != ".lock":
            target.upload(path, path.relative_to(folder).as_posix())


def get(url, folder):
    """Download a folder."""
    source = ObjectFolder(url)
    for name in source.find():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        source.download(name, folder / name)
    return folder


def manifests(store):
    names = (store / "checkpoints").find()
    return {name for name in names if name.endswith("/checkpoint.json")}


def half_uploaded(store):
    names = [name.split("/") for name in (store / "checkpoints").find()]
    complete = {step for step, file in names if file == "checkpoint.json"}
    return {step for step, _ in names} - complete


def succeed(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_records_are_built_and_read_at_a_url(
    bucket, here, corpus_file, folder, new_machine
):
    inputs = ObjectFolder(f"{bucket}/corpus")
    inputs.upload(corpus_file, "text.txt")
    inputs.upload(GOLDEN / "vocab.txt", "vocab.txt")
    corpus = {
        "input": f"{bucket}/corpus/*ext.txt",
        "vocab": f"{bucket}/corpus/vocab.txt",
    }
    records = {"output": f"{bucket}/records", "max_length": 32, "shards": 5}
    given = flags(**corpus | records, order="original", workers=1)
    assert f"{bucket}/records: " in succeed(here("build_records", *given))
    names = set(ObjectFolder(f"{bucket}/records").find())
    assert names == {path.name for path in folder.iterdir()}
    assert "--overwrite" in failure(here("build_records", *given))
    succeed(here("build_records", *given, "--overwrite"))
    new_machine()
    records = electra_tf.open_records(
        f"{bucket}/records", max_length=32, tokenizer=None, verify=True
    )
    local = electra_tf.open_records(str(folder), max_length=32, tokenizer=None)
    assert records.counts == local.counts
    for ours, theirs in zip(records.paths, local.paths, strict=True):
        assert pathlib.Path(ours).read_bytes() == pathlib.Path(theirs).read_bytes()
    globs = electra_tf.open_records(
        f"{bucket}/records/*tfrecord*",
        max_length=32,
        tokenizer=None,
        vocabulary_size=1000,
    )
    assert globs.counts == local.counts


@pytest.fixture
def whole(folder, here, tmp_path):
    """Return a local run that was not interrupted."""
    succeed(here("pretrain", *arguments(folder, tmp_path / "whole", *SETS)))
    return tmp_path / "whole"


def check_whole(result, run, store, whole, path):
    """Compare a resumed run and its backup with a run that was not interrupted.

    A new machine has the checkpoints from the one it resumed from.
    """
    assert succeed(result).endswith(f": {run}/checkpoints/step_00000024\n")
    assert file_contents(run).items() <= file_contents(whole).items()
    assert metric_lines(run) == metric_lines(whole)
    backup = get(store.url, path / "backup")
    assert file_contents(backup) == file_contents(whole)
    assert metric_lines(backup) == metric_lines(whole)


@pytest.mark.runs
def test_a_run_whose_upload_failed_resumes_from_its_backup_to_the_same_bits(
    s3, folder, here, new_machine, whole, tmp_path, monkeypatch
):
    put(folder, f"{s3}/failing_records")
    store, run = ObjectFolder(f"{s3}/failing"), tmp_path / "run"
    given = arguments(f"{s3}/failing_records", run, *SETS, backup=store.url)
    broken = f"{store.url}/checkpoints/step_00000015/optimizer.safetensors"
    original = ObjectFolder.upload

    def fail(self, path, name):
        if self.url_of(name) == broken:
            self.write(name, b"the first part")
            raise electra_tf.InputError(f"{broken} must be X")
        original(self, path, name)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFolder, "upload", fail)
        assert broken in failure(here("pretrain", *given))
    assert "checkpoints/step_00000012/checkpoint.json" in store.find()
    assert half_uploaded(store) == {"step_00000015"}
    shutil.rmtree(run)
    new_machine()
    result = here("pretrain", *given)
    assert "resuming after step 12 of 24" in result.stderr
    check_whole(result, run, store, whole, tmp_path)
    other = arguments(folder, tmp_path / "other", *SETS[1:], backup=store.url)
    message = failure(here("pretrain", *other))
    assert "`objective.name` is" in message
    assert "another --backup" in message


@pytest.mark.runs
def test_a_dry_run_describes_the_run_of_the_backup_and_downloads_none(
    s3, folder, here, new_machine, whole, tmp_path, monkeypatch
):
    downloads = []
    monkeypatch.setattr(ObjectFolder, "download", lambda *args: downloads.append(args))
    put(whole, f"{s3}/planned")
    given = arguments(folder, tmp_path / "run", *SETS, backup=f"{s3}/planned")
    given += ["--set=training.steps=30", "--dry_run"]
    printed = succeed(here("pretrain", *given))
    assert "training.steps is 30, was 24" in printed
    assert not (tmp_path / "run").exists()
    assert not downloads


@pytest.mark.slow
def test_kills_during_uploads_leave_no_checkpoint_that_is_not_whole(
    bucket, folder, here, new_machine, whole, tmp_path
):
    store, run = ObjectFolder(f"{bucket}/killed"), tmp_path / "run"
    given = arguments(folder, run, *SETS, backup=store.url)
    for _ in range(3):
        process = start(*given)
        old = half_uploaded(store)
        kill(process, lambda old=old: half_uploaded(store) - old, period=0.001)
        shutil.rmtree(run)
        new_machine()
        if manifests(store):
            assert np.isfinite(sources.open_source(store.url).own_checkpoint.step)
    check_whole(here("pretrain", *given), run, store, whole, tmp_path)


def test_models_are_read_and_written_at_urls(s3, here, new_machine):
    put(RUN, f"{s3}/pretrained")
    run = f"{s3}/pretrained"
    encoder = electra_tf.Encoder.from_preset(run)
    expected = electra_tf.Encoder.from_preset(RUN)
    for ours, theirs in zip(encoder.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    given = f"--from={run}", "--format=huggingface", f"--to={s3}/hf"
    assert f"{s3}/hf" in succeed(here("convert", *given))
    assert f"{s3}/hf" in failure(here("convert", *given))
    for url in (f"{s3}/hf", f"{s3}/hf/model.safetensors"):
        hugging_face = electra_tf.Encoder.from_preset(url)
    for ours, theirs in zip(hugging_face.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_a_version_is_exported_to_a_url(s3, here, pretrained, new_machine):
    put(pretrained, f"{s3}/pretrained")
    output = f"{s3}/served"
    given = flags(model=f"{s3}/pretrained", output=output, signatures="tokens")
    assert f"exported to {output}/1" in succeed(here("export", *given))
    assert "--version" in failure(here("export", *given))
    store = ObjectFolder(f"{s3}/served")
    versions = [n for n, info in store.find().items() if n.startswith("1/")]
    assert "1/saved_model.pb" in versions


@pytest.mark.runs
def test_a_model_is_fine_tuned_and_used_at_urls(
    s3, here, pretrained, new_machine, tmp_path
):
    put(pretrained, f"{s3}/pretrained")
    table = ObjectFolder(f"{s3}/table")
    rows = "".join(f"good {i}\tyes\nbad {i}\tno\n" for i in range(8))
    for name in ("train.tsv", "dev.tsv"):
        table.write(name, f"text\tlabel\n{rows}".encode())
    columns = {"text_columns": "text", "label_column": "label"}
    paths = {"data": f"{s3}/table", "checkpoint": f"{s3}/pretrained"}
    outputs = {"output": f"{s3}/tuned", "report": f"{s3}/table/report.html"}
    sets = ("training.epochs=1", "training.batch_size=4", "data.max_length=16")
    given = flags(task="csv", **columns | paths | outputs)
    given += [f"--set={item}" for item in sets]
    printed = succeed(here("finetune", *given))
    assert f"model: {s3}/tuned/model.keras" in printed
    assert b"<figure>" in table.read("report.html")
    assert {"model.keras", "results.json"} <= set(ObjectFolder(f"{s3}/tuned").find())
    new_machine()
    succeed(here("finetune", *given))  # nothing is left to train
    table.write("input.txt", b"good\nbad\n")
    path = f"{s3}/table/input.txt"
    given = flags(model=f"{s3}/tuned", input=path, output=f"{s3}/table/p.txt")
    succeed(here("predict", *given))
    assert len(table.read("p.txt").splitlines()) == 2
    assert "--overwrite" in failure(here("predict", *given))
    given = flags(model=f"{s3}/tuned", data=f"{s3}/table", output=f"{s3}/table/e.json")
    given += flags(save_predictions=f"{s3}/table/e.csv", report=f"{s3}/table/e.html")
    result = here("evaluate", *given)
    succeed(result)
    # dev has the texts of train.
    assert "trained on the texts of 16 of the 16 examples of dev" in result.stderr
    assert json.loads(table.read("e.json"))
    assert len(table.read("e.csv").splitlines()) == 17
    assert table.read("e.html").startswith(b"<!DOCTYPE html>")
