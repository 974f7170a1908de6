"""Exchange of numbers in one process; test_replicas.py starts several workers."""

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training.worker_sync import WorkerSync, reraise_worker_errors
from training.toy import one_device


def test_one_process_gets_its_own_numbers():
    assert WorkerSync(one_device()).all_gather(3, 0.5) == [[3], [0.5]]


@pytest.mark.parametrize("kind", [tf.errors.UnavailableError, tf.errors.AbortedError])
def test_a_lost_worker_is_an_input_error(kind):
    with pytest.raises(InputError, match=kind.__name__), reraise_worker_errors():
        raise kind(None, None, "Socket closed")


def test_other_errors_are_unchanged():
    with pytest.raises(ZeroDivisionError), reraise_worker_errors():
        raise ZeroDivisionError
