"""Back up the checkpoints of a run directory to an object store.

A backup has the layout of a run directory, so other commands read its URL as a run. The
manifest of a checkpoint is uploaded last and deleted first: without it a checkpoint is
ignored.
"""

import os
import pathlib
import re
import shutil

from electra_tf import durable_files
from electra_tf.durable_files import PARTIAL
from electra_tf.errors import InputError
from electra_tf.storage.mirror import Expected, files_in, pull, push
from electra_tf.storage.objects import ObjectFolder
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    MANIFEST,
    parse_manifest,
    saved_steps,
)
from electra_tf.training.metric_logger import METRICS

_OBJECT = re.compile(r"(step_\d+)/(.+)")
_DAMAGED = "Upload it again, or delete the checkpoint there to begin from the others"


class Backup:
    """Backup of a run directory at a URL, with the same checkpoints."""

    def __init__(self, url: str, folder: str | os.PathLike):
        self._folder, self._store = pathlib.Path(folder), ObjectFolder(url)
        self._checkpoints = self._store / CHECKPOINTS

    def restore(self) -> list[str]:
        """Download all checkpoints and the metrics if the folder has no checkpoint.

        Returns:
            Lines to log.

        Raises:
            InputError: The backup has a checkpoint that a folder with checkpoints
                lacks, so it is that of another run, or of a run that has gone on.
        """
        complete, _ = self._names()
        if saved_steps(os.fspath(self._folder / CHECKPOINTS)):
            for name in complete:
                self._check(name)
            return []
        if not complete:
            return []
        partial = self._folder / f"{CHECKPOINTS}{PARTIAL}"
        shutil.rmtree(partial, ignore_errors=True)  # of a killed process
        for name in complete:
            self._download(name, partial / name)
        if (metrics := self._store.read(METRICS)) is not None:
            durable_files.write(self._folder / METRICS, metrics)
        (self._folder / CHECKPOINTS).mkdir(exist_ok=True)
        for name in complete:
            durable_files.publish(partial / name, self._folder / CHECKPOINTS / name)
        partial.rmdir()
        return [f"{', '.join(complete)} restored from {self._store.url}"]

    def update(self) -> list[str]:
        """Upload what the backup lacks, and delete interrupted uploads.

        Returns:
            Lines to log.
        """
        for path in saved_steps(os.fspath(self._folder / CHECKPOINTS)).values():
            self.upload(path)
        _, incomplete = self._names()
        for name in incomplete:
            self.delete(name)
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

    def delete(self, path: str | os.PathLike) -> None:
        """Delete a checkpoint of the folder from the backup."""
        target = self._checkpoints / os.path.basename(path)
        target.delete(MANIFEST)
        for file in target.find():
            target.delete(file)

    def _names(self) -> tuple[list[str], list[str]]:
        """Return the names of the checkpoints with and without a manifest."""
        matches = [m for m in map(_OBJECT.fullmatch, self._checkpoints.find()) if m]
        complete = {match[1] for match in matches if match[2] == MANIFEST}
        return sorted(complete), sorted({match[1] for match in matches} - complete)

    def _check(self, name: str) -> None:
        path = self._folder / CHECKPOINTS / name / MANIFEST
        content = (self._checkpoints / name).read(MANIFEST)
        if not path.exists() or path.read_bytes() != content:
            raise InputError(
                "--backup must have no checkpoints but those of --model_dir",
                f"{self._checkpoints.url_of(name)}, which {self._folder} does not have",
                "Pass another --backup, or a new --model_dir to begin from the backup",
            )

    def _download(self, name: str, path: pathlib.Path) -> None:
        source = self._checkpoints / name
        content = source.read(MANIFEST) or b""
        files = parse_manifest(content, source.url)["files"]
        expected = {file: Expected(*values) for file, values in files.items()}
        pull(source, expected, path, _DAMAGED)
        durable_files.write(path / MANIFEST, content)
