"""Outputs at URLs: uploaded whole after success, in an order that readers can trust."""

import contextlib
import pathlib

import pytest

from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.storage.outputs import check_new, staged
from electra_tf.storage.synced_folder import synced


@pytest.fixture
def uploads(monkeypatch):
    """Return the names of the uploaded files in order."""
    names, original = [], ObjectFolder.upload

    def counted(self, path, name):
        names.append(name)
        original(self, path, name)

    monkeypatch.setattr(ObjectFolder, "upload", counted)
    return names


def write(folder, **files):
    for name, text in files.items():
        path = pathlib.Path(folder, name.replace("_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_folder_is_uploaded_with_its_manifest_last(url, uploads):
    with staged(url, last=("a.json",), keep={"b.txt"}) as folder:
        assert pathlib.Path(folder).name == "folder"
        write(folder, a_json="1", b_txt="2", c_txt="3")
        assert not uploads
    assert uploads == ["folder/c.txt", "folder/a.json"]
    assert ObjectFolder(url).read("a.json") == b"1"
    assert not pathlib.Path(folder).exists()


def test_a_file_is_uploaded_after_the_files_beside_it(url, uploads):
    with staged(f"{url}/vocab.txt") as path:
        pathlib.Path(path).write_text("a")
        pathlib.Path(f"{path}.settings.json").write_text("{}")
    assert uploads == ["vocab.txt.settings.json", "vocab.txt"]
    assert list(ObjectFolder(url).find()) == ["vocab.txt", "vocab.txt.settings.json"]


def test_nothing_is_uploaded_after_an_error(url):
    with contextlib.suppress(KeyError), staged(url) as folder:
        write(folder, a_txt="1")
        raise KeyError
    assert ObjectFolder(url).find() == {}


def test_local_paths_are_used_as_they_are(tmp_path):
    for context in (staged(str(tmp_path)), synced(str(tmp_path), "--output")):
        with context as folder:
            assert folder == str(tmp_path)
    with staged(None) as output:
        assert output is None


def test_an_existing_output_is_refused(url):
    check_new(url, "--to", "Pass another")
    check_new("/", "--to", "Pass another")
    ObjectFolder(url).write("sub/a", b"")
    for existing in (url, f"{url}/sub/a"):
        with pytest.raises(InputError, match="--to"):
            check_new(existing, "--to", "Pass another")


def test_a_synced_folder_has_the_changes_of_every_process(url, uploads):
    with synced(url, "--output", last=("results.json",)) as folder:
        write(folder, results_json="1", trial="a", old="x")
    assert uploads == ["old", "trial", "results.json"]
    uploads.clear()
    with contextlib.suppress(KeyError), synced(url, "--output") as folder:
        assert pathlib.Path(folder, "trial").read_text() == "a"
        write(folder, trial="bb")
        pathlib.Path(folder, "old").unlink()
        raise KeyError
    assert uploads == ["trial"]
    store = ObjectFolder(url)
    assert {name: store.read(name) for name in store.find()} == {
        "results.json": b"1",
        "trial": b"bb",
    }


def test_a_deleted_folder_is_not_revived_from_this_machine(url):
    with contextlib.suppress(KeyError), synced(url, "--output") as folder:
        write(folder, trial="a")
        raise KeyError
    store = ObjectFolder(url)
    for name in store.find():
        store.delete(name)
    with synced(url, "--output") as folder:
        assert not pathlib.Path(folder, "trial").exists()
