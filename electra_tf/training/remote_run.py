"""Run directory at a URL: a local working copy, and uploads after each checkpoint.

The store decides what the run is. At the start the working copy gets the newest
complete checkpoint and the metrics; files that the store does not have are deleted.
"""

import contextlib
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator

from electra_tf.errors import InputError
from electra_tf.storage.cache import Expected, cache_folder, clear, download, url_key
from electra_tf.storage.lease import Lease, current_token
from electra_tf.storage.objects import ObjectFolder, split_url
from electra_tf.storage.outputs import local_files, upload
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    CONFIG,
    MANIFEST,
    open_checkpoint,
    parse_manifest,
)
from electra_tf.training.metric_logger import METRICS, TENSORBOARD
from electra_tf.training.run_directory import acquire_lock

_RUNS = "runs"
_OBJECT = re.compile(rf"{CHECKPOINTS}/(step_(\d+))/(.+)")
_DAMAGED = f"{MANIFEST}.damaged"
_LOGS = (METRICS, TENSORBOARD, "intact_records/bad_records.jsonl")


class RemoteRun:
    """Working copy of a run directory at a URL."""

    def __init__(self, url: str, folder: pathlib.Path, lease: Lease | None):
        self.folder = str(folder)
        self._source, self._lease = ObjectFolder(url), lease
        self._uploaded: dict[str, tuple[int, int]] = {}
        self.notes: list[str] = []
        """Lines to log about the state of the store at the start."""

    def fetch(self, fallback: bool = False) -> None:
        """Make the working copy equal to the store."""
        complete, incomplete = self._steps()
        for step, name in incomplete.items():
            url = self._source.url_of(f"{CHECKPOINTS}/{name}")
            if step not in complete:
                self.notes.append(f"{url} has no {MANIFEST}; it is no checkpoint")
        self._clear(set(complete.values()))
        newest, error = None, None
        for step in sorted(complete, reverse=True):
            if newest is not None:
                self._fetch_manifest(complete[step])
                continue
            try:
                self._fetch_checkpoint(complete[step])
                newest = step
            except InputError as damage:
                if not fallback:
                    raise
                error = damage
                self._set_aside(complete[step], damage)
        if error is not None and newest is None:
            raise error
        metrics = self._source.read(METRICS)
        if metrics is not None:
            pathlib.Path(self.folder, METRICS).write_bytes(metrics)

    def publish(self, path: str) -> None:
        """Upload a new checkpoint and the logs, the manifest last."""
        self._lease.check()
        name = os.path.relpath(path, self.folder)
        files = [f"{name}/{file}" for file in local_files(path) if file != MANIFEST]
        upload(self._source, self.folder, files)
        self.upload_logs()
        self._lease.check()
        upload(self._source, self.folder, [f"{name}/{MANIFEST}"])

    def delete(self, path: str) -> None:
        """Delete an old checkpoint from the store, the manifest first."""
        name = os.path.relpath(path, self.folder)
        checkpoint = self._source / name
        checkpoint.delete(MANIFEST)
        for file in checkpoint.find():
            checkpoint.delete(file)

    def upload_logs(self) -> None:
        """Upload metrics and TensorBoard files that have changed."""
        for name in local_files(self.folder):
            stat = os.stat(os.path.join(self.folder, name))
            state = stat.st_size, stat.st_mtime_ns
            is_log = name in _LOGS or name.split("/")[0] in _LOGS
            if is_log and self._uploaded.get(name) != state:
                self._source.upload(os.path.join(self.folder, name), name)
                self._uploaded[name] = state

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

    def _steps(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return the names of complete and of incomplete checkpoints by step."""
        complete, incomplete = {}, {}
        for name in (self._source / CHECKPOINTS).find():
            if match := _OBJECT.fullmatch(f"{CHECKPOINTS}/{name}"):
                is_manifest = match[3] == MANIFEST
                (complete if is_manifest else incomplete)[int(match[2])] = match[1]
        return complete, incomplete

    def _clear(self, names: set[str]) -> None:
        """Delete what the store does not have, and what is cheap to fetch again."""
        folder = pathlib.Path(self.folder)
        for name in (METRICS, TENSORBOARD):
            clear(folder / name)
        for path in folder.glob(f"{CHECKPOINTS}/*"):
            manifest = path / MANIFEST
            remote = self._manifest(path.name) if path.name in names else None
            if not manifest.is_file() or manifest.read_bytes() != remote:
                clear(path)

    def _manifest(self, name: str) -> bytes | None:
        return (self._source / CHECKPOINTS / name).read(MANIFEST)

    def _fetch_manifest(self, name: str) -> None:
        """Fetch what decides whether an old checkpoint is kept: manifest and config."""
        folder = pathlib.Path(self.folder, CHECKPOINTS, name)
        if (folder / MANIFEST).exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        for file in (CONFIG, MANIFEST):
            content = (self._source / CHECKPOINTS / name).read(file)
            if content is not None:
                (folder / file).write_bytes(content)

    def _fetch_checkpoint(self, name: str) -> None:
        path = pathlib.Path(self.folder, CHECKPOINTS, name)
        if (path / MANIFEST).exists():
            with contextlib.suppress(InputError):  # fetched in part, or damaged
                open_checkpoint(str(path))
                return
        clear(path)
        try:
            fetch_checkpoint(self._source / CHECKPOINTS / name, path)
        except InputError as error:
            clear(path)
            raise InputError(
                error.required,
                error.received,
                "Pass --fallback to pretrain to resume from an earlier checkpoint",
            ) from error

    def _set_aside(self, name: str, error: InputError) -> None:
        note = f"{error} Resuming from an earlier checkpoint"
        if self._lease is not None:
            checkpoint = self._source / CHECKPOINTS / name
            checkpoint.write(_DAMAGED, self._manifest(name) or b"")
            checkpoint.delete(MANIFEST)
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
    download(source, {n: Expected(*values) for n, values in files.items()}, path)
    (path / MANIFEST).write_bytes(content)


@contextlib.contextmanager
def open_remote_run(
    url: str, worker: int | None = None, fallback: bool = False
) -> Iterator[RemoteRun]:
    """Lease a run directory at a URL and fetch its newest checkpoint.

    Yields:
        The run. Its working copy is deleted if the block succeeds, when the store has
        all of it.
    """
    name = f"{split_url(url)[1]}-{url_key(url)}"
    name += "" if worker is None else f"-worker-{worker}"
    folder = cache_folder(_RUNS) / name
    with contextlib.ExitStack() as stack:
        lease = None
        if worker is None:
            lease = stack.enter_context(Lease(ObjectFolder(url), "--model_dir"))
        stack.enter_context(acquire_lock(str(folder)))
        run = RemoteRun(url, folder, lease)
        run.fetch(fallback)
        yield run
        if lease is not None:
            run.upload_logs()
        clear(folder)


@contextlib.contextmanager
def open_run_copy(url: str, fallback: bool = False) -> Iterator[str]:
    """Fetch a run's newest checkpoint to a temporary folder; write nothing else."""
    with tempfile.TemporaryDirectory(dir=cache_folder(_RUNS)) as folder:
        RemoteRun(url, pathlib.Path(folder), None).fetch(fallback)
        yield folder
