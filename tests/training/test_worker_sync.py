"""What workers tell each other; several real ones are in test_replicas.py."""

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training.worker_sync import WorkerSync, reraise_worker_errors
from training.toy import one_device


def test_one_process_hears_itself():
    assert WorkerSync(one_device()).all_gather(3, 0.5) == [[3], [0.5]]


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        ([[20, 0], [7, 7]], "Received: worker 0 at 20, worker 1 at 0"),
        ([[5, 5, 5], [7, 8, 7]], "Received: another folder at worker 1"),
    ],
)
def test_workers_that_do_not_share_a_folder_are_told(monkeypatch, heard, words):
    workers = WorkerSync(one_device())
    workers.check(20, 7)
    monkeypatch.setattr(workers, "all_gather", lambda *_: heard)
    with pytest.raises(InputError, match=words):
        workers.check(20, 7)


@pytest.mark.parametrize("kind", [tf.errors.UnavailableError, tf.errors.AbortedError])
def test_a_worker_that_is_gone_is_told(kind):
    words = f"a worker that is gone .{kind.__name__}"
    with pytest.raises(InputError, match=words), reraise_worker_errors():
        raise kind(None, None, "Socket closed")


def test_other_errors_keep_their_names():
    with pytest.raises(ZeroDivisionError), reraise_worker_errors():
        raise ZeroDivisionError
