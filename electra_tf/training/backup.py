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


class Backup:
    """Backup of a run directory at a URL, with the same checkpoints."""

    def __init__(self, url: str, folder: str | os.PathLike):
        self._folder, self._store = pathlib.Path(folder), ObjectFolder(url)
        self._local = self._folder / CHECKPOINTS
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
        manifests = {n: (self._checkpoints / n).read(MANIFEST) or b"" for n in complete}
        if saved_steps(str(self._local)):
            for name, content in manifests.items():
                path = self._local / name / MANIFEST
                if not path.exists() or path.read_bytes() != content:
                    raise InputError(
                        f"--backup has {self._checkpoints.url_of(name)}, which "
                        f"{self._folder} does not have; pass another --backup, or a "
                        "new --model_dir to begin from the backup"
                    )
            return []
        if not complete:
            return []
        partial = self._folder / f"{CHECKPOINTS}{PARTIAL}"
        shutil.rmtree(partial, ignore_errors=True)  # of a killed process
        for name, content in manifests.items():
            source = self._checkpoints / name
            files = parse_manifest(content, source.url)["files"]
            expected = {file: Expected(*values) for file, values in files.items()}
            pull(source, expected, partial / name)
            durable_files.write(partial / name / MANIFEST, content)
        if (metrics := self._store.read(METRICS)) is not None:
            durable_files.write(self._folder / METRICS, metrics)
        self._local.mkdir(exist_ok=True)
        for name in complete:
            durable_files.publish(partial / name, self._local / name)
        partial.rmdir()
        return [f"{', '.join(complete)} restored from {self._store.url}"]

    def update(self) -> list[str]:
        """Upload what the backup lacks, delete interrupted uploads; return a log."""
        for path in saved_steps(str(self._local)).values():
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
