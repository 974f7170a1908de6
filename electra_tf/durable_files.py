"""Publish files and folders so that a power cut leaves the old or the new content.

A rename is atomic, but not durable: after a power cut the new name may lead to empty or
old blocks. So the content is flushed to disk first, then renamed, then the folder's
entries are flushed.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import IO, Any

Path = str | os.PathLike
PARTIAL = ".partial"  # suffix of files and folders that are not complete


def publish(source: Path, target: Path) -> None:
    """Rename a finished file or folder to its final name, durably."""
    sync(source)
    os.replace(source, target)
    sync_folder(os.path.dirname(os.path.abspath(target)))


def sync(path: Path) -> None:
    """Flush a file, or a folder with all its files, to disk."""
    if os.path.isdir(path):
        for folder, _, files in os.walk(path, topdown=False):
            for name in files:
                sync_folder(os.path.join(folder, name))
            sync_folder(folder)
    else:
        sync_folder(path)


@contextlib.contextmanager
def unfinished(path: Path, suffix: str = "") -> Iterator[str]:
    """Yield another path of a file, which gets its name if the block succeeds."""
    path = os.path.realpath(path)
    partial = f"{path}{PARTIAL}{suffix}"
    try:
        yield partial
        publish(partial, path)
    finally:
        pathlib.Path(partial).unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path, overwrite: bool = False) -> Iterator[str]:
    """Yield another path of a new folder, which gets its name if the block succeeds.

    If the block fails, its files and the folders that were created are deleted. An
    existing folder, which must be empty unless `overwrite` is set, stays as it was.
    """
    path = os.path.realpath(path)
    partial, old = f"{path}{PARTIAL}", f"{path}.replaced{PARTIAL}"
    created = [p for p in pathlib.Path(path).parents if not p.exists()]
    _restore(old, path)
    if not overwrite and os.path.isdir(path) and os.listdir(path):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
    for folder in filter(os.path.isdir, (partial, old)):  # of a killed process
        shutil.rmtree(folder)
    os.makedirs(partial)
    try:
        yield partial
        if is_replaced := overwrite and os.path.isdir(path):
            sync(partial)  # an error leaves the old folder
            os.rename(path, old)
        publish(partial, path)
        if is_replaced:
            shutil.rmtree(old)
    except BaseException:
        _restore(old, path)
        shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(OSError):  # one has other files by now
            for folder in created:
                os.rmdir(folder)
        raise


def _restore(old: str, path: str) -> None:
    """Undo a replacement that ended between its two renames."""
    if os.path.isdir(old) and not os.path.exists(path):
        os.rename(old, path)


@contextlib.contextmanager
def replacing(path: Path, mode: str = "w", **options: Any) -> Iterator[IO]:
    """Open a new version of a file, which appears if the block succeeds.

    The target of a link is replaced, not the link. A device or a pipe is written to.
    """
    if "b" not in mode:
        options = {"encoding": "utf-8", **options}
    if is_stream(path):
        with open(path, mode, **options) as file:
            yield file
        return
    with unfinished(path) as partial, open(partial, mode, **options) as file:
        yield file


def is_stream(path: Path) -> bool:
    """Return whether a path is a device, a pipe or an open file of this process."""
    if os.path.isdir(path) or not os.path.exists(path):
        return False
    is_open_file = os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return is_open_file or not os.path.isfile(path)


def write(path: Path, content: str | bytes) -> None:
    """Replace the content of a file."""
    if isinstance(content, str):
        content = content.encode()
    with replacing(path, "wb") as file:
        file.write(content)


def append(path: Path, text: str) -> None:
    """Append text to a file; it is on disk when the function returns."""
    is_new = not os.path.exists(path)
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(os.path.dirname(os.path.abspath(path)))


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder, or the content of a file, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def locked(path: Path, shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Lock a file, which is created, or a folder, for processes of this machine.

    Raises:
        BlockingIOError: `wait` is False and another process has the lock.
    """
    flags = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags, 0o666)
    try:
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, mode if wait else mode | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
