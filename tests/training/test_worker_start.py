"""Waiting for workers and exchange in one process; test_workers.py has commands."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training.workers import (
    WorkerSync,
    reraise_worker_errors,
    wait_for_workers,
)
from tests.training.toy import one_device
from tests.training.worker_commands import free_addresses


def listen(address):
    host, port = address.split(":")
    return socket.create_server((host, int(port)))


def test_a_worker_waits_until_all_others_listen():
    addresses = free_addresses(3)
    with listen(addresses[0]), contextlib.ExitStack() as stack:
        start = threading.Timer(0.6, lambda: stack.enter_context(listen(addresses[2])))
        start.start()
        begin = time.monotonic()
        wait_for_workers(addresses, 1, 30)
        assert 0.5 < time.monotonic() - begin < 20


def test_a_missing_worker_is_named():
    addresses = free_addresses(2)
    with pytest.raises(InputError, match=f"no connection to {addresses[1]}"):
        wait_for_workers(addresses, 0, 0.2)


def test_a_port_in_use_is_named():
    addresses = free_addresses(2)
    with listen(addresses[0]), pytest.raises(InputError, match=addresses[0]):
        wait_for_workers(addresses, 0, 0.2)


def test_a_signal_ends_the_wait():
    def interrupt(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGTERM, interrupt)
    try:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(KeyboardInterrupt):
            wait_for_workers(free_addresses(2), 0, 30)
    finally:
        signal.signal(signal.SIGTERM, old)


def test_one_process_gets_its_own_numbers():
    assert WorkerSync(one_device()).all_gather(3, 0.5) == [[3], [0.5]]


@pytest.mark.parametrize("kind", [tf.errors.UnavailableError, tf.errors.AbortedError])
def test_a_lost_worker_is_an_input_error(kind):
    with pytest.raises(InputError, match=kind.__name__), reraise_worker_errors():
        raise kind(None, None, "Socket closed")
