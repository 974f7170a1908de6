"""A watchdog in one process; test_replicas.py stops and kills workers."""

import os
import signal
import threading
import time

import pytest

from electra_tf.training.watchdog import Watchdog


@pytest.fixture
def ended():
    """Return a function that stores a message, and the event that it came."""

    class Ended:
        message, status, event = "", None, threading.Event()

        def __call__(self, message, status=1):
            self.message, self.status = message, status
            self.event.set()

    return Ended()


def test_an_operation_that_does_not_return_ends_the_process(ended):
    with Watchdog(0.2, ended) as watchdog:
        for _ in range(3):
            with watchdog.expect(0.01):
                pass
        time.sleep(0.5)  # between operations there is no limit
        assert not ended.message
        with watchdog.expect(0.01):
            assert ended.event.wait(10)
    assert "within 0 s" in ended.message  # 0.2 + 10 x 0.01


def test_a_slow_operation_has_ten_times_its_usual_time(ended):
    with Watchdog(0.1, ended) as watchdog, watchdog.expect(100.0):
        assert not ended.event.wait(1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_answered_at_once_and_a_second_one_ends_the_process(
    number, ended, capfd
):
    old = signal.signal(number, lambda *_: None)
    try:
        with Watchdog(None, ended) as watchdog:
            os.kill(os.getpid(), number)  # between operations Python answers it
            time.sleep(0.2)
            with watchdog.expect(0.01):
                os.kill(os.getpid(), number)
                while not (text := capfd.readouterr().err):
                    time.sleep(0.01)
                assert "stopping after this step" in text
                assert not ended.event.wait(0.5)
                os.kill(os.getpid(), number)
                assert ended.event.wait(10)
    finally:
        signal.signal(number, old)
    assert ended.status == 128 + number
    assert signal.Signals(number).name in ended.message


def test_deferred_signals_end_the_process_only_at_the_second(ended):
    with Watchdog(None, ended) as watchdog, watchdog.deferring_signals():
        signal.raise_signal(signal.SIGTERM)
        assert watchdog.stop_signal == signal.SIGTERM
        assert not ended.event.wait(0.5)
        signal.raise_signal(signal.SIGINT)
        assert watchdog.stop_signal == signal.SIGTERM
        assert ended.event.wait(10)
    assert ended.status == 128 + signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_grace_period(number, ended):
    handled = []
    old = signal.signal(number, lambda *_: handled.append(1))
    try:
        with Watchdog(0.3, ended) as watchdog, watchdog.expect():
            os.kill(os.getpid(), number)
            assert ended.event.wait(10)
    finally:
        signal.signal(number, old)
    assert handled
    assert signal.set_wakeup_fd(-1) == -1
