"""Leases: one owner at a time, expiry, takeover and loss."""

import json
import os
import subprocess
import sys
import threading
import time
import uuid

import pytest
from conftest import ROOT

from electra_tf.errors import InputError
from electra_tf.storage import lease as lease_lib
from electra_tf.storage.lease import Lease, current_token
from electra_tf.storage.objects import ObjectFolder


@pytest.fixture
def folder(url):
    return ObjectFolder(url)


@pytest.fixture
def memory():
    return ObjectFolder(f"memory://{uuid.uuid4().hex}/folder")


def write_lease(folder, seconds):
    content = {
        "owner": "process 7 on elsewhere",
        "expires": time.time() + seconds,
        "process_id": None,
    }
    folder.write(f"lease/{'a' * 32}.json", json.dumps(content).encode())


def test_a_second_process_is_refused_until_the_first_ends(folder):
    with Lease(folder, "--model_dir") as first:
        with (
            pytest.raises(InputError, match="--model_dir") as error,
            Lease(folder, "--model_dir"),
        ):
            pass
        assert f"process {os.getpid()} on " in str(error.value)
        assert folder.url in str(error.value)
        first.check()
        assert current_token(folder) == first.token
    assert folder.find() == {}
    assert current_token(folder) == 0
    with Lease(folder, "--model_dir"):
        pass


def test_the_owner_and_the_expiry_of_a_lease_are_named(folder):
    write_lease(folder, 30)
    until = time.strftime("%H:%M", time.gmtime(time.time() + 30))
    with (
        pytest.raises(InputError, match=f"process 7 on elsewhere until {until}"),
        Lease(folder, "--output"),
    ):
        pass


def test_an_expired_lease_is_taken_over(folder):
    write_lease(folder, -1)
    with Lease(folder, "--model_dir") as lease:
        assert len(folder.find()) == 1
        lease.check()


def test_a_killed_process_of_this_machine_is_recognised(url, tmp_path):
    if url.startswith("memory"):
        pytest.skip("the store of another process")
    program = (
        "import os, sys\n"
        "from electra_tf.storage.lease import Lease\n"
        "from electra_tf.storage.objects import ObjectFolder\n"
        "Lease(ObjectFolder(sys.argv[1]), '--model_dir').__enter__()\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, url], cwd=ROOT, check=False)
    assert len(ObjectFolder(url).find()) == 1
    with Lease(ObjectFolder(url), "--model_dir"):
        pass


def test_a_lease_that_another_process_deleted_is_lost(folder):
    with Lease(folder, "--model_dir") as lease:
        (name,) = folder.find()
        folder.delete(name)
        with pytest.raises(InputError, match="lost"):
            lease.check()
        folder.write(name, b"{}")
        with pytest.raises(InputError, match="lost"):
            lease.check(reads=False)


def test_a_lease_is_renewed_while_its_process_runs(memory):
    with Lease(memory, "--model_dir", seconds=0.6) as lease:
        time.sleep(1.5)
        lease.check()
        with pytest.raises(InputError), Lease(memory, "--model_dir", seconds=0.6):
            pass


def test_a_lease_that_cannot_be_renewed_is_lost(memory, monkeypatch):
    with Lease(memory, "--model_dir", seconds=0.6) as lease:
        lease.check(reads=False)

        def fail(*_):
            raise InputError("a", "b", "c")

        monkeypatch.setattr(ObjectFolder, "write", fail)
        time.sleep(0.8)
        with pytest.raises(InputError, match="lost"):
            lease.check(reads=False)


def test_many_threads_never_own_a_lease_together(folder, monkeypatch):
    monkeypatch.setattr(lease_lib, "_RETRY_SECONDS", 0.05)
    owners, most, taken, lock = 0, 0, 0, threading.Lock()
    deadline = time.monotonic() + 1

    def work():
        nonlocal owners, most, taken
        while time.monotonic() < deadline:
            try:
                with Lease(folder, "--model_dir"):
                    with lock:
                        owners, taken = owners + 1, taken + 1
                        most = max(most, owners)
                    time.sleep(0.002)
                    with lock:
                        owners -= 1
            except InputError:
                time.sleep(0.001)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert taken > 5
    assert folder.find() == {}
