"""Back up the checkpoints of a run directory to an object store.

A backup has the layout of a run directory, so other commands read its URL as a run. The
manifest of a checkpoint is uploaded last and deleted first: without it a checkpoint is
ignored.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.storage.mirror import (
    Expected,
    files_in,
    pull,
    push,
    temporary_folder,
)
from electra_tf.storage.objects import ObjectFolder
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    CONFIG,
    MANIFEST,
    parse_manifest,
    saved_steps,
)
from electra_tf.training.metric_logger import METRICS

_OBJECT = re.compile(r"(step_\d+)/(.+)")


class Backup:
    """Backup of a run directory at a URL, with the same checkpoints."""

    def __init__(self, url: str, folder: str | os.PathLike):
        self._folder, self._store = pathlib.Path(folder), ObjectFolder(url)
        self._local = self._folder / CHECKPOINTS
        self._checkpoints = self._store / CHECKPOINTS

    def restore(self) -> list[str]:
        """Download the newest checkpoint and the metrics if the folder has none.

        Returns:
            Lines to log.

        Raises:
            InputError: The newest checkpoint is not in a folder with checkpoints, or
                another one differs, so the backup is that of another run, or of a run
                that has gone on.
        """
        complete, _ = self._names()
        if not complete:
            return []
        if saved_steps(str(self._local)):
            self._check_same(complete)
            return []
        name = complete[-1]
        source = self._checkpoints / name
        content = source.read(MANIFEST) or b""
        files = parse_manifest(content, source.url)["files"]
        expected = {file: Expected(*values) for file, values in files.items()}
        with durable_files.new_folder(self._local / name) as partial:
            pull(source, expected, partial)
            durable_files.write(f"{partial}/{MANIFEST}", content)
            if (metrics := self._store.read(METRICS)) is not None:
                durable_files.write(self._folder / METRICS, metrics)
        return [f"{name} restored from {self._store.url}"]

    def _check_same(self, names: Sequence[str]) -> None:
        """Raise an error unless the folder has the newest of some checkpoints, and
        equal ones of the same names."""
        for name in reversed(names):
            path = self._local / name / MANIFEST
            if not path.exists() and name != names[-1]:
                continue  # of a machine before
            content = (self._checkpoints / name).read(MANIFEST)
            if not path.exists() or path.read_bytes() != content:
                raise InputError(
                    f"--backup has {self._checkpoints.url_of(name)}, which "
                    f"{self._folder} does not have; pass another --backup, or a new "
                    "--model_dir to begin from the backup"
                )

    @contextlib.contextmanager
    def settings_folder(self) -> Iterator[str]:
        """Yield a run directory with the newest checkpoint, without its weights."""
        with temporary_folder() as folder:
            for name in self._names()[0][-1:]:
                path = pathlib.Path(folder, CHECKPOINTS, name)
                path.mkdir(parents=True)
                for file in (CONFIG, MANIFEST):
                    content = (self._checkpoints / name).read(file) or b""
                    (path / file).write_bytes(content)
            yield folder

    def update(self) -> list[str]:
        """Upload what the backup lacks, delete interrupted uploads; return a log."""
        for path in saved_steps(str(self._local)).values():
            self.upload(path)
        _, incomplete = self._names()
        for name in incomplete:
            self._delete(name)
        urls = map(self._checkpoints.url_of, incomplete)
        return [f"{url} had no {MANIFEST} and was deleted" for url in urls]

    def upload(self, path: str | os.PathLike) -> None:
        """Upload a checkpoint and the metrics, unless the backup has it."""
        path = pathlib.Path(path)
        target = self._checkpoints / path.name
        if target.read(MANIFEST) == (path / MANIFEST).read_bytes():
            return
        target.delete(MANIFEST)
        if (self._folder / METRICS).exists():
            push(self._store, self._folder, [METRICS])
        push(target, path, files_in(path), last=(MANIFEST,))

    def delete_old(
        self, keep: int, is_permanent: Callable[[int, bytes | None], bool]
    ) -> None:
        """Delete all checkpoints but the newest `keep`, and permanent ones."""
        for name in self._names()[0][:-keep]:
            config = (self._checkpoints / name).read(CONFIG)
            if not is_permanent(int(name.removeprefix("step_")), config):
                self._delete(name)

    def _delete(self, name: str) -> None:
        target = self._checkpoints / name
        target.delete(MANIFEST)
        for file in target.find():
            target.delete(file)

    def _names(self) -> tuple[list[str], list[str]]:
        """Return the names of the checkpoints with and without a manifest."""
        matches = [m for m in map(_OBJECT.fullmatch, self._checkpoints.find()) if m]
        complete = {match[1] for match in matches if match[2] == MANIFEST}
        return sorted(complete), sorted({match[1] for match in matches} - complete)
