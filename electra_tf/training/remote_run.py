"""Run directory at a URL: a local working copy, and uploads after each checkpoint.

The store decides what the run is. At the start the working copy gets the newest
complete checkpoint, manifest and config of older ones, and the metrics.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

from electra_tf.errors import InputError
from electra_tf.storage import mirror
from electra_tf.storage.lease import Lease, current_token
from electra_tf.storage.mirror import Expected
from electra_tf.storage.objects import ObjectFolder
from electra_tf.training.checkpoint import CHECKPOINTS, CONFIG, MANIFEST, parse_manifest
from electra_tf.training.metric_logger import METRICS, TENSORBOARD

_OBJECT = re.compile(r"(step_(\d+))/(.+)")
_DAMAGED = f"{MANIFEST}.damaged"
_LOGS = (METRICS, TENSORBOARD, "intact_records/bad_records.jsonl")


class RemoteRun:
    """Working copy of a run directory at a URL."""

    def __init__(self, url: str, folder: str | os.PathLike, lease: Lease | None):
        self.folder = os.fspath(folder)
        self._source, self._lease = ObjectFolder(url), lease
        self._checkpoints = self._source / CHECKPOINTS
        self._uploaded: dict[str, tuple[int, int]] = {}
        self.notes: list[str] = []
        """Lines to log about the state of the store at the start."""

    def fetch(self, fallback: bool = False) -> None:
        """Make the working copy equal to the store."""
        mirror.clear(pathlib.Path(self.folder))
        folder = pathlib.Path(self.folder, CHECKPOINTS)
        folder.mkdir(parents=True)
        newest, error = None, None
        for name in self._complete():
            if newest is not None:  # decides whether an old checkpoint is kept
                self._copy(f"{CHECKPOINTS}/{name}/{CONFIG}")
                self._copy(f"{CHECKPOINTS}/{name}/{MANIFEST}")
                continue
            try:
                fetch_checkpoint(self._checkpoints / name, folder / name)
                newest = name
            except InputError as damage:
                mirror.clear(folder / name)
                error = damage
                if not fallback:
                    break
                self._set_aside(name, damage)
        if error is not None and newest is None:
            remedy = "Pass --fallback to pretrain to resume from an earlier checkpoint"
            raise InputError(error.required, error.received, remedy) from error
        self._copy(METRICS)

    def publish(self, path: str) -> None:
        """Upload a new checkpoint and the logs, the manifest last."""
        self._lease.check()
        name = os.path.relpath(path, self.folder)
        files = [f"{name}/{file}" for file in mirror.files_in(path) if file != MANIFEST]
        mirror.push(self._source, self.folder, files)
        self.upload_logs()
        self._lease.check()
        mirror.push(self._source, self.folder, [f"{name}/{MANIFEST}"])

    def delete(self, path: str) -> None:
        """Delete an old checkpoint from the store, the manifest first."""
        checkpoint = self._source / os.path.relpath(path, self.folder)
        checkpoint.delete(MANIFEST)
        for file in checkpoint.find():
            checkpoint.delete(file)

    def upload_logs(self) -> None:
        """Upload metrics and TensorBoard files that have changed."""
        states = {
            name: state
            for name, state in mirror.file_states(self.folder).items()
            if name in _LOGS or name.split("/")[0] in _LOGS
        }
        changed = [n for n, state in states.items() if self._uploaded.get(n) != state]
        mirror.push(self._source, self.folder, changed)
        self._uploaded = states

    def check(self) -> None:
        """Raise an InputError if the lease has expired, without reading the store."""
        if self._lease is not None:
            self._lease.check(reads=False)

    def lock_token(self) -> int:
        """Return the token of the lease, which is equal in all workers of a run."""
        if self._lease is not None:
            return self._lease.token
        return current_token(self._source)

    def url_of(self, path: str) -> str:
        """Return the URL of a file or folder of the working copy."""
        return self._source.url_of(os.path.relpath(path, self.folder))

    def _complete(self) -> list[str]:
        """Return the names of the checkpoints with a manifest, the newest first."""
        complete, incomplete = {}, {}
        for match in map(_OBJECT.fullmatch, self._checkpoints.find()):
            if match:
                steps = complete if match[3] == MANIFEST else incomplete
                steps[int(match[2])] = match[1]
        for step in incomplete.keys() - complete.keys():
            url = self._checkpoints.url_of(incomplete[step])
            self.notes.append(f"{url} has no {MANIFEST}; it is no checkpoint")
        return [complete[step] for step in sorted(complete, reverse=True)]

    def _copy(self, name: str) -> None:
        """Copy a small object, if it exists."""
        content = self._source.read(name)
        if content is not None:
            path = pathlib.Path(self.folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _set_aside(self, name: str, error: InputError) -> None:
        note = f"{error} Resuming from an earlier checkpoint"
        if self._lease is not None:
            checkpoint = self._checkpoints / name
            checkpoint.move({MANIFEST: _DAMAGED})
            note += f"; {checkpoint.url_of(MANIFEST)} is now {_DAMAGED}"
        self.notes.append(note)


def fetch_checkpoint(source: ObjectFolder, path: pathlib.Path) -> None:
    """Fetch a checkpoint; its files are compared with the sums of its manifest."""
    content = source.read(MANIFEST)
    if content is None:
        raise InputError(
            f"A checkpoint must have a {MANIFEST}", source.url, "Check the URL"
        )
    files = parse_manifest(content, source.url)["files"]
    mirror.pull(source, {n: Expected(*values) for n, values in files.items()}, path)
    (path / MANIFEST).write_bytes(content)


@contextlib.contextmanager
def open_remote_run(
    url: str, worker: int | None = None, fallback: bool = False
) -> Iterator[RemoteRun]:
    """Lease a run directory at a URL and fetch its newest checkpoint.

    The working copy is deleted if the block succeeds, when the store has all of it.
    """
    is_chief = worker is None
    folder = mirror.working_copy(url, "" if is_chief else f"-worker-{worker}")
    lease = Lease(ObjectFolder(url), "--model_dir") if is_chief else None
    with lease or contextlib.nullcontext():
        run = RemoteRun(url, folder, lease)
        run.fetch(fallback)
        yield run
        if is_chief:
            run.upload_logs()
        mirror.clear(folder)


@contextlib.contextmanager
def open_run_copy(url: str, fallback: bool = False) -> Iterator[str]:
    """Fetch a run's newest checkpoint to a temporary folder; write nothing else."""
    with mirror.temporary_folder() as folder:
        RemoteRun(url, folder, None).fetch(fallback)
        yield folder
