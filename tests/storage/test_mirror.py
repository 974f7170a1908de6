"""Mirrors: objects fetched once and whole, outputs uploaded in a safe order."""

import contextlib
import hashlib
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from electra_tf.errors import InputError
from electra_tf.storage.mirror import (
    Expected,
    check_new,
    fetch,
    local_glob,
    local_path,
    pull,
    staged,
    synced,
)
from electra_tf.storage.objects import ObjectFolder
from tests.conftest import contents


def names(transfers):
    """Return the last parts of the URLs of transfers."""
    return [url.rpartition("/")[2] for _, url in transfers]


@pytest.fixture
def source(url):
    folder = ObjectFolder(url)
    folder.write("a", b"one")
    folder.write("sub/b", b"two")
    return folder


def write(folder, files):
    for name, text in files.items():
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        pathlib.Path(folder, name).write_text(text)


def test_processes_fetch_a_folder_once(source, transfers):
    with ThreadPoolExecutor(4) as pool:
        paths = {*pool.map(local_path, [source.url] * 4), local_path(source.url + "/")}
    (path,) = paths
    assert contents(path) == {"a": b"one", "sub/b": b"two"}
    assert pathlib.Path(path).name == "folder"
    assert names(transfers) == ["a", "b"]


def test_other_content_is_fetched_to_another_path(source):
    first = local_path(source.url)
    source.write("a", b"three")
    assert contents(local_path(source.url))["a"] == b"three"
    assert contents(first)["a"] == b"one"


def test_files_and_globs_are_fetched_and_local_paths_are_kept(source):
    source.write("a[1]", b"three")
    for pattern, names in (("a", ["a"]), ("a*", ["a", "a[1]"]), ("a[1]", ["a[1]"])):
        paths = [pathlib.Path(path) for path in local_glob(f"{source.url}/{pattern}")]
        assert [path.name for path in paths] == names
    assert pathlib.Path(local_path(f"{source.url}/a")).read_bytes() == b"one"
    assert local_path("a/b") == "a/b"
    assert local_path(None) is None
    for find in (local_path, local_glob):
        with pytest.raises(InputError, match="gone"):
            find(f"{source.url}/gone")


def test_a_wrong_checksum_is_an_error_and_the_next_fetch_keeps_good_files(
    source, transfers
):
    objects = source.find()
    sums = {name: hashlib.sha256(b"one").hexdigest() for name in objects}
    with pytest.raises(InputError, match="sub/b"):
        fetch(source, objects, sums)
    sums["sub/b"] = hashlib.sha256(b"two").hexdigest()
    assert contents(fetch(source, objects, sums))["folder/sub/b"] == b"two"
    assert names(transfers) == ["a", "b", "b"]


def test_another_size_and_a_name_outside_the_folder_are_errors(source, tmp_path):
    objects = source.find()
    source.write("a", b"longer")
    with pytest.raises(InputError, match="6 bytes"):
        fetch(source, objects)
    with pytest.raises(InputError, match=r"\.\./x"):
        pull(source, {"../x": Expected(3)}, tmp_path / "target")


def test_a_folder_is_uploaded_with_its_manifest_last(url, transfers):
    with staged(url, last=("a.json",)) as folder:
        assert pathlib.Path(folder).name == "folder"
        write(folder, {"a.json": "1", "b.txt": "2", "c.txt": "3"})
        assert not transfers
    assert names(transfers) == ["b.txt", "c.txt", "a.json"]
    assert ObjectFolder(url).read("a.json") == b"1"
    assert not pathlib.Path(folder).exists()


def test_a_file_is_uploaded_after_the_files_beside_it(url, transfers):
    with staged(f"{url}/vocab.txt") as path:
        pathlib.Path(path).write_text("a")
        pathlib.Path(f"{path}.settings.json").write_text("{}")
    assert names(transfers) == ["vocab.txt.settings.json", "vocab.txt"]


def test_an_existing_output_is_refused(source):
    check_new(f"{source.url}/new", "--to", "Pass another")
    check_new("/", "--to", "Pass another")
    for existing in (source.url, f"{source.url}/sub/b"):
        with pytest.raises(InputError, match="--to"):
            check_new(existing, "--to", "Pass another")


def test_a_synced_folder_has_the_changes_of_every_process(url, transfers):
    with synced(url, last=("results.json",)) as folder:
        write(folder, {"results.json": "1", "trial": "a", "old": "x"})
    assert names(transfers) == ["old", "trial", "results.json"]
    transfers.clear()
    with contextlib.suppress(KeyError), synced(url) as folder:
        assert pathlib.Path(folder, "trial").read_text() == "a"
        write(folder, {"trial": "bb"})
        pathlib.Path(folder, "old").unlink()
        raise KeyError
    assert names(transfers)[3:] == ["trial", "old"]
    store = ObjectFolder(url)
    assert {name: store.read(name) for name in store.find()} == {
        "results.json": b"1",
        "trial": b"bb",
    }


def test_nothing_is_uploaded_after_an_error(url):
    with contextlib.suppress(KeyError), staged(url) as folder:
        write(folder, {"a.txt": "1"})
        raise KeyError
    assert ObjectFolder(url).find() == {}
