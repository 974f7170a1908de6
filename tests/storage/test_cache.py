"""Fetched objects: once, whole, and another path for other content."""

import hashlib
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from electra_tf.errors import InputError
from electra_tf.storage.cache import Expected, download, fetch, local_files, local_path
from electra_tf.storage.objects import ObjectFolder


@pytest.fixture
def downloads(monkeypatch):
    """Return the names of the downloaded objects."""
    names, original = [], ObjectFolder.download

    def counted(self, name, path):
        names.append(name)
        original(self, name, path)

    monkeypatch.setattr(ObjectFolder, "download", counted)
    return names


@pytest.fixture
def source(url):
    folder = ObjectFolder(url)
    folder.write("a", b"one")
    folder.write("sub/b", b"two")
    return folder


def content(folder):
    files = (path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_folder_is_fetched_once(source, downloads):
    first = local_path(source.url)
    assert content(first) == {"a": b"one", "sub/b": b"two"}
    assert pathlib.Path(first).name == "folder"
    assert local_path(source.url + "/") == first
    assert downloads == ["a", "sub/b"]


def test_other_content_is_fetched_to_another_path(source):
    first = local_path(source.url)
    source.write("a", b"three")
    second = local_path(source.url)
    assert content(second)["a"] == b"three"
    assert content(first)["a"] == b"one"


def test_a_file_is_fetched_and_a_local_path_is_returned_as_it_is(source):
    path = pathlib.Path(local_path(f"{source.url}/a"))
    assert (path.name, path.read_bytes()) == ("a", b"one")
    assert local_path("a/b") == "a/b"
    assert local_path(None) is None
    with pytest.raises(InputError, match="gone"):
        local_path(f"{source.url}/gone")


def test_a_glob_is_fetched(source):
    source.write("a2", b"two")
    paths = [pathlib.Path(path) for path in local_files(f"{source.url}/a*")]
    assert [path.name for path in paths] == ["a", "a2"]
    with pytest.raises(InputError, match="x\\*"):
        local_files(f"{source.url}/x*")


def test_processes_share_one_download(source, downloads):
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(local_path, [source.url] * 4))
    assert len(set(paths)) == 1
    assert sorted(downloads) == ["a", "sub/b"]


def test_a_wrong_checksum_is_an_error_and_the_next_fetch_keeps_good_files(
    source, downloads
):
    objects = source.find()
    sums = {name: hashlib.sha256(b"one").hexdigest() for name in objects}
    with pytest.raises(InputError, match="sub/b"):
        fetch(source, objects, sums)
    sums["sub/b"] = hashlib.sha256(b"two").hexdigest()
    assert content(fetch(source, objects, sums))["folder/sub/b"] == b"two"
    assert downloads == ["a", "sub/b", "sub/b"]


def test_an_object_of_another_size_is_an_error(source):
    objects = source.find()
    source.write("a", b"longer")
    with pytest.raises(InputError, match="6 bytes"):
        fetch(source, objects)


def test_a_name_outside_the_folder_is_refused(source, tmp_path):
    with pytest.raises(InputError, match=r"\.\./x"):
        download(source, {"../x": Expected(3)}, tmp_path / "target")
