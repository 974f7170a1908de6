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

    A thread renews it. A killed process leaves a lease that expires; on the same
    machine it is ignored at once.

    Args:
        folder: The folder to write to.
        flag: Flag that sets the folder, for messages.
        seconds: Time after which a lease that is not renewed expires.
    """

    def __init__(self, folder: ObjectFolder, flag: str, seconds: float = SECONDS):
        self._folder, self._flag, self._seconds = folder, flag, seconds
        self._leases = folder / _FOLDER
        self._id = uuid.uuid4().hex
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
        """Raise an error if the lease is lost."""
        # Clocks differ: others regard the lease as valid for the last third.
        expired = time.monotonic() - self._renewed > self._seconds * 2 / 3
        if self._is_lost or expired or (reads and not self._exists()):
            self._is_lost = True
            raise InputError(
                f"A run must keep its lease of {self._flag} until it ends",
                f"{self._folder.url}, whose lease {self._name} was lost (this process "
                "was paused, or could not reach the store)",
                "Stop other processes that write there, then run the same command "
                "again to resume",
            )

    @property
    def _name(self) -> str:
        return f"{self._id}.json"

    def _acquire(self) -> None:
        for _ in range(_ATTEMPTS):
            others, expired = self._others()
            if others:
                raise self._held(others[0])
            self._write()
            others, _ = self._others()
            if not others:
                for name in expired:
                    self._leases.delete(name)
                return
            self._leases.delete(self._name)
            # Both processes may have seen each other: the times differ at random.
            time.sleep(random.uniform(0, _RETRY_SECONDS))
        raise self._held(others[0])

    def _others(self) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Return the valid leases of others, and the names of expired ones."""
        valid, expired = [], []
        for name in self._leases.find():
            if name != self._name and (content := self._leases.read(name)) is not None:
                lease = _parse(content, self._leases.url_of(name))
                ended = lease["expires"] < time.time() or _is_dead(lease["process"])
                expired.append(name) if ended else valid.append(lease)
        return valid, expired

    def _held(self, lease: Mapping[str, Any]) -> InputError:
        at = datetime.datetime.fromtimestamp(lease["expires"], datetime.timezone.utc)
        return InputError(
            f"{self._flag} must not be in use by another process",
            f"{self._folder.url}, leased by {lease['owner']} until {at:%H:%M:%S} UTC, "
            "unless it renews the lease",
            f"Wait for it or stop it, or pass another {self._flag}; if it was killed, "
            "run the same command again after that time",
        )

    def _write(self) -> None:
        now = time.monotonic()
        process = _this_process()
        content = {
            "owner": f"process {os.getpid()} on {socket.gethostname()}",
            "expires": time.time() + self._seconds,
            "process": process,
        }
        self._leases.write(self._name, json.dumps(content).encode())
        self._renewed = now

    def _exists(self) -> bool:
        return self._leases.info(self._name) is not None

    def _renew_until_stop(self) -> None:
        while not self._stop.wait(self._seconds / 6) and not self._is_lost:
            # A store that cannot be reached may be back before the lease expires.
            with contextlib.suppress(InputError):
                self.check()
                self._write()


def current_token(folder: ObjectFolder) -> int:
    """Return the token of the lease that another process has."""
    leases = folder / _FOLDER
    tokens = {}
    for name in leases.find():
        content = leases.read(name)
        if content is not None:
            tokens[_parse(content, leases.url_of(name))["expires"]] = _token(name)
    return tokens[max(tokens)] if tokens else 0


def is_lease(name: str) -> bool:
    """Return whether an object of a leased folder is a lease."""
    return name.startswith(f"{_FOLDER}/")


def _token(name: str) -> int:
    return int(name.removesuffix(".json")[:12], 16)


def _parse(content: bytes, url: str) -> dict[str, Any]:
    try:
        lease = json.loads(content)
        float(lease["expires"]), str(lease["owner"]), lease["process"].get("pid")
        _token(url.rpartition("/")[2])
        return lease
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{url} must be a lease that this package wrote",
            f"{type(error).__name__}: {content[:80]!r}",
            "Delete the object if no process writes to the folder",
        ) from error


def _this_process() -> dict[str, Any]:
    """Return what identifies this process among all of all machines.

    Process ids repeat in containers and after a restart of the machine.
    """
    return {"pid": os.getpid(), "start": _start_of(os.getpid()), **_machine()}


def _is_dead(process: Mapping[str, Any]) -> bool:
    """Return whether a process ran on this machine and has ended."""
    machine, pid = _machine(), process.get("pid")
    is_here = None not in machine.values() and type(pid) is int
    is_here &= all(process.get(name) == value for name, value in machine.items())
    return is_here and _start_of(pid) != process.get("start")


def _machine() -> dict[str, Any]:
    values: dict[str, Any] = {"boot": None, "pid_namespace": None}
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            values["boot"] = file.read().strip()
        values["pid_namespace"] = os.stat("/proc/self/ns/pid").st_ino
    return values


def _start_of(pid: int) -> str | None:
    """Return the start time of a process; None: it has ended, or cannot be read."""
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    return None
