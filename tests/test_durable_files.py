"""Publishing of files: the order of flushes and renames, and what a failure leaves."""

import contextlib
import os
import pathlib

import pytest

from electra_tf import durable_files


@pytest.fixture
def calls(monkeypatch):
    """Record flushed paths and renames, in order."""
    recorded, fsync, replace = [], os.fsync, os.replace

    def record_fsync(descriptor):
        recorded.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def record_replace(source, target):
        recorded.append((str(source), str(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    return recorded


def test_a_folder_is_on_disk_before_its_name(tmp_path, calls):
    source, target = tmp_path / "new", tmp_path / "target"
    (source / "inner").mkdir(parents=True)
    for name in ("a", "inner/b"):
        (source / name).write_text(name)
    durable_files.publish(source, target)
    renamed = calls.index((str(source), str(target)))
    flushed = {str(source / name) for name in ("", "a", "inner", "inner/b")}
    assert {path.rstrip("/") for path in calls[:renamed]} == {
        path.rstrip("/") for path in flushed
    }
    # A folder is flushed after its files.
    assert calls[:renamed].index(str(source / "inner")) > calls[:renamed].index(
        str(source / "inner" / "b")
    )
    assert calls[renamed + 1 :] == [str(tmp_path)]
    assert (target / "inner" / "b").read_text() == "inner/b"


def test_a_file_appears_whole_or_not_at_all(tmp_path, calls):
    path = tmp_path / "file.txt"
    durable_files.write(path, "old\n")
    assert calls == [f"{path}.partial", (f"{path}.partial", str(path)), str(tmp_path)]
    with contextlib.suppress(KeyboardInterrupt), durable_files.replacing(path) as file:
        file.write("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old\n"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_the_target_of_a_link_is_replaced(tmp_path):
    target, link = tmp_path / "inner" / "target", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old\n")
    link.symlink_to(target)
    durable_files.write(link, "new\n")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    assert os.listdir(target.parent) == ["target"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    durable_files.write(pipe, "text\n")
    assert os.read(reader, 10) == b"text\n"
    os.close(reader)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_an_open_file_is_written_to():
    read, write = os.pipe()
    durable_files.write(f"/dev/fd/{write}", "text\n")
    assert os.read(read, 10) == b"text\n"
    os.close(read)
    os.close(write)


def test_an_appended_line_is_on_disk(tmp_path, calls):
    path = tmp_path / "lines"
    for number in range(2):
        durable_files.append(path, f"{number}\n")
    assert calls == [str(path), str(tmp_path), str(path)]
    assert path.read_text() == "0\n1\n"


def test_a_new_folder_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "a" / "b"
    with pytest.raises(ValueError, match="x"), durable_files.new_folder(path):
        raise ValueError("x")
    assert not any(tmp_path.iterdir())
    for text in ("first", "second"):
        with durable_files.new_folder(path, overwrite=True) as partial:
            (pathlib.Path(partial) / text).touch()
            assert (path / "first").exists() == (text == "second")
        assert [file.name for file in path.iterdir()] == [text]
    with pytest.raises(OSError, match="not empty"), durable_files.new_folder(path):
        pytest.fail("work that cannot be kept")
    assert [file.name for file in path.iterdir()] == ["second"]
    assert [folder.name for folder in path.parent.iterdir()] == ["b"]


def test_a_replacement_that_ends_between_its_renames_leaves_the_old_folder(
    tmp_path, monkeypatch
):
    path = tmp_path / "folder"
    (path / "old").mkdir(parents=True)

    def fail(*_):
        raise OSError("full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="full"):  # noqa: SIM117
            with durable_files.new_folder(path, overwrite=True):
                pass
    assert [file.name for file in path.iterdir()] == ["old"]
    os.rename(path, f"{path}.replaced.partial")  # as a kill leaves it
    with pytest.raises(ValueError, match="x"):  # noqa: SIM117
        with durable_files.new_folder(path, overwrite=True):
            raise ValueError("x")
    assert [file.name for file in path.iterdir()] == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]
