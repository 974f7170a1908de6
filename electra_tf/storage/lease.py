"""Let one process at a time write to a folder of an object store.

A lease is an object `lease/ID.json` with its owner and the time at which it expires. A
process writes its own, then lists all: if there is another one that has not expired, it
deletes its own. Each of two processes writes before it lists, so at least one of them
sees the other. This needs a store whose listings show every finished write (S3, Google
Cloud Storage and Azure do), and no conditional write, which fsspec does not offer for
every store.
"""

import contextlib
import datetime
import json
import os
import pathlib
import random
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder

SECONDS = 60.0
_FOLDER = "lease"
_ATTEMPTS = 5
_RETRY_SECONDS = 1.0


class Lease:
    """Lease of a folder of an object store, to be used in a `with` statement.

    A thread renews it; it expires after `seconds` without renewal. A killed process
    leaves a lease that expires; on the same machine it is ignored at once. Errors name
    the `flag` that sets the folder.
    """

    def __init__(self, folder: ObjectFolder, flag: str, seconds: float = SECONDS):
        self._folder, self._flag, self._seconds = folder, flag, seconds
        self._leases, self._name = folder / _FOLDER, f"{uuid.uuid4().hex}.json"
        self._renewed = 0.0  # monotonic time before the last write
        self._stop, self._is_lost = threading.Event(), False

    def __enter__(self) -> "Lease":
        self._acquire()
        self._thread = threading.Thread(target=self._renew_until_stop, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(self._seconds)
        # An error of the block is more important than one of the store.
        with contextlib.suppress(InputError):
            self._leases.delete(self._name)

    @property
    def token(self) -> int:
        """A number that identifies the lease, exact in float64."""
        return _token(self._name)

    def check(self, reads: bool = True) -> None:
        """Raise an error if the lease is lost; `reads`: ask the store, too."""
        # Clocks differ: others regard the lease as valid for the last third.
        expired = time.monotonic() - self._renewed > self._seconds * 2 / 3
        is_deleted = reads and self._leases.info(self._name) is None
        if self._is_lost or expired or is_deleted:
            self._is_lost = True
            raise InputError(
                f"A run must keep its lease of {self._flag} until it ends",
                f"{self._folder.url}, whose lease {self._name} was lost (this process "
                "was paused, or could not reach the store)",
                "Stop other processes that write there, then run the same command "
                "again to resume",
            )

    def _acquire(self) -> None:
        for _ in range(_ATTEMPTS):
            if others := self._others():
                break
            self._write()
            if not (others := self._others()):
                return
            self._leases.delete(self._name)
            # Both processes may have seen each other: the times differ at random.
            time.sleep(random.uniform(0, _RETRY_SECONDS))
        owner, end = others[0]["owner"], others[0]["expires"]
        at = datetime.datetime.fromtimestamp(end, datetime.timezone.utc)
        raise InputError(
            f"{self._flag} must not be in use by another process",
            f"{self._folder.url}, leased by {owner} until {at:%H:%M:%S} UTC, unless it "
            "renews the lease",
            f"Wait for it or stop it, or pass another {self._flag}; if it was killed, "
            "run the same command again after that time",
        )

    def _others(self) -> list[dict[str, Any]]:
        """Return the valid leases of others, and delete expired ones."""
        leases = _read(self._leases)
        leases.pop(self._name, None)
        over = [name for name, lease in leases.items() if _is_over(lease)]
        for name in over:
            self._leases.delete(name)
            del leases[name]
        return list(leases.values())

    def _write(self) -> None:
        now = time.monotonic()
        content = {
            "owner": f"process {os.getpid()} on {socket.gethostname()}",
            "expires": time.time() + self._seconds,
            "process_id": _process_id(os.getpid()),
        }
        self._leases.write(self._name, json.dumps(content).encode())
        self._renewed = now

    def _renew_until_stop(self) -> None:
        while not self._stop.wait(self._seconds / 6) and not self._is_lost:
            # A store that cannot be reached may be back before the lease expires.
            with contextlib.suppress(InputError):
                self.check()
                self._write()


def current_token(folder: ObjectFolder) -> int:
    """Return the token of the lease that another process has."""
    leases = _read(folder / _FOLDER)
    newest = max(leases, key=lambda name: leases[name]["expires"], default="0")
    return _token(newest)


def is_lease(name: str) -> bool:
    """Return whether an object of a leased folder is a lease."""
    return name.startswith(f"{_FOLDER}/")


def _token(name: str) -> int:
    return int(name[:12], 16)


def _read(leases: ObjectFolder) -> dict[str, dict[str, Any]]:
    """Return the content of all leases by name."""
    contents = {name: leases.read(name) for name in leases.find()}
    return {n: json.loads(c) for n, c in contents.items() if c is not None}


def _is_over(lease: Mapping[str, Any]) -> bool:
    """Return whether a lease has expired, or is of a killed process of this machine."""
    if lease["expires"] < time.time():
        return True
    owner, own = lease.get("process_id"), _process_id(os.getpid())
    if not owner or not own or owner[:2] != own[:2]:
        return False
    return _process_id(owner[2]) != owner


def _process_id(pid: int) -> list[Any] | None:
    """Return what identifies a process among all of all machines; None: it has ended.

    Process ids repeat in containers and after a restart of the machine.
    """
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
        state, *fields = status.rpartition(")")[2].split()
        if state != "Z":
            boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            return [boot, os.stat("/proc/self/ns/pid").st_ino, pid, fields[18]]
    return None
