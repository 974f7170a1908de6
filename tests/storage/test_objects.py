"""Objects by URL: read, write, list, delete, and errors that name them."""

import subprocess
import sys

import pytest

from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder, is_url, split_url
from tests.conftest import ROOT, full_disk


def test_urls_are_recognised():
    assert is_url("s3://bucket/run")
    assert is_url("gs://bucket")
    assert not is_url("runs/a")
    assert not is_url("/runs/s3://odd")
    assert not is_url("tfds:glue/cola")
    assert not is_url(None)


def test_a_url_has_a_folder_and_a_name():
    assert split_url("s3://bucket/a/b/") == ("s3://bucket/a", "b")
    with pytest.raises(InputError, match="s3://bucket"):
        split_url("s3://bucket")


def test_an_object_is_what_was_written_last(url):
    folder = ObjectFolder(url)
    assert folder.find() == {}
    assert folder.read("a") is None
    folder.write("a", b"1")
    folder.write("sub/b c.txt", b"22")
    before = folder.info("a")
    folder.write("a", b"333")
    assert folder.read("a") == b"333"
    assert folder.info("a").size == 3
    assert folder.info("a") != before
    assert {n: i.size for n, i in folder.find().items()} == {"a": 3, "sub/b c.txt": 2}
    assert (folder / "sub").read("b c.txt") == b"22"
    assert folder.info("sub") is None
    assert folder.info("gone") is None
    folder.delete("a")
    folder.delete("a")
    assert list(folder.find()) == ["sub/b c.txt"]


def test_a_full_disk_leaves_the_old_object_alone(tmp_path):
    folder = ObjectFolder(str(tmp_path))
    folder.write("a", b"1")
    with pytest.raises(OSError, match="too large"), full_disk(10):
        folder.write("a", bytes(1000))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"1"]


def test_an_unknown_store_is_an_error():
    with pytest.raises(InputError, match="nowhere://bucket/a"):
        ObjectFolder("nowhere://bucket/a")


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("s3://bucket/a", "s3fs", "s3"),
        ("gs://bucket/a", "gcsfs", "gcs"),
        ("https://host/a", "aiohttp", "http"),
    ],
)
def test_a_missing_package_is_named_by_its_extra(url, package, extra):
    program = (
        "import sys; sys.modules[sys.argv[2]] = None\n"
        "from electra_tf.storage.objects import ObjectFolder\n"
        "ObjectFolder(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, url, package],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "InputError" in done.stderr
    assert f"electra_tf[{extra}]" in done.stderr
