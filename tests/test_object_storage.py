"""Real commands against object stores: build, train, die, resume, export, convert."""

import contextlib
import os
import pathlib
import shutil
import time

import numpy as np
import pytest
from conftest import GOLDEN, failure
from object_servers import gcs_server, s3_server
from pretrain_commands import arguments, file_contents, metric_lines, start

import electra_tf
from electra_tf.storage.objects import ObjectFolder
from electra_tf.training.checkpoint import open_checkpoint

SETS = (
    "objective.name=mlm",
    "training.steps=24",
    "training.save_every=3",
    "training.keep_at=[0.5]",
    "training.log_every=4",
)


@pytest.fixture(scope="module", params=["s3", "gs"])
def bucket(request):
    """Return the URL of a bucket of a server on this machine."""
    with {"s3": s3_server, "gs": gcs_server}[request.param]() as url:
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


def succeed(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_records_are_built_and_read_at_a_url(
    bucket, here, corpus_file, folder, new_machine
):
    inputs = ObjectFolder(f"{bucket}/corpus")
    inputs.upload(corpus_file, "text.txt")
    inputs.upload(GOLDEN / "vocab.txt", "vocab.txt")
    flags = [
        f"--input={bucket}/corpus/*ext.txt",
        f"--vocab={bucket}/corpus/vocab.txt",
        f"--output={bucket}/records",
        "--max_length=32",
        "--shards=5",
        "--workers=1",
    ]
    assert f"{bucket}/records: " in succeed(here("build_records", *flags))
    names = set(ObjectFolder(f"{bucket}/records").find())
    assert names == {path.name for path in folder.iterdir()}
    assert "already" not in failure(here("build_records", *flags))
    succeed(here("build_records", *flags, "--overwrite"))
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


def test_half_written_and_truncated_records_are_errors(bucket, folder, new_machine):
    put(folder, f"{bucket}/damaged")
    store = ObjectFolder(f"{bucket}/damaged")
    shard = min(name for name in store.find() if "tfrecord" in name)
    content = store.read(shard)

    def message():
        with pytest.raises(electra_tf.InputError) as error:
            electra_tf.open_records(store.url, max_length=32, tokenizer=None)
        return str(error.value)

    store.write(shard, content[:-1])
    assert f"{store.url}/{shard}" in message()
    store.write(shard, content[:-1] + b"\0")
    assert f"{store.url}/{shard}" in message()
    store.write("_building", b"")
    store.delete("manifest.json")
    assert "half-written" in message()


@pytest.fixture(scope="module")
def uninterrupted(folder, tmp_path_factory):
    """Return a local run."""
    output = tmp_path_factory.mktemp("uninterrupted") / "run"
    process = start(*arguments(folder, output, *SETS))
    _, err = process.communicate()
    assert process.returncode == 0, err
    return output


def kill_when(process, condition):
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"ended too early: {process.communicate()}")
        time.sleep(0.002)
    process.kill()
    process.communicate()


def test_a_killed_run_resumes_on_another_machine_to_the_same_bits(
    bucket, folder, uninterrupted, new_machine, tmp_path
):
    put(folder, f"{bucket}/r")
    store = ObjectFolder(f"{bucket}/run")
    given = arguments(f"{bucket}/r", store.url, *SETS)
    first = start(*given)
    deadline = time.time() + 120
    while not manifests(store):
        assert first.poll() is None, first.communicate()
        assert time.time() < deadline
        time.sleep(0.01)
    second = start(*given)
    _, err = second.communicate()
    if first.poll() is None:
        assert second.returncode == 1, err
        assert f"leased by process {first.pid} on " in err
    first.kill()
    first.communicate()
    new_machine()
    third = start(*given)
    out, err = third.communicate()
    assert third.returncode == 0, err
    assert out.endswith(f"checkpoint: {store.url}/checkpoints/step_00000024\n")
    assert "resuming after step" in err
    found = get(store.url, tmp_path / "found")
    assert file_contents(found) == file_contents(uninterrupted)
    assert metric_lines(found) == metric_lines(uninterrupted)
    assert (
        not (tmp_path / "cache" / "electra_tf" / "runs").glob("run-*/*").__next__
        is None
    )
