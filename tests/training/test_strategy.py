"""Choice of the distribution strategy, and its errors.

test_replicas.py has the tests that need several replicas or workers.
"""

import json

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training import strategy
from electra_tf.training.workers import WorkerSync, is_chief


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


def test_auto_selects_one_device_on_a_cpu():
    for name in ("auto", "one_device"):
        selected = strategy.choose(name)
        assert isinstance(selected, tf.distribute.OneDeviceStrategy)
        assert selected.num_replicas_in_sync == 1
        assert is_chief(selected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mirrored", "local"), "--tpu=local must be used .*not mirrored"),
        (("auto", None, 2), "--cpu_replicas=2 .*--strategy=auto"),
        (("one_device", None, 2), "--cpu_replicas=2 .*--strategy=one_device"),
        (("multi_worker",), "no TF_CONFIG"),
    ],
)
def test_contradictory_flags_are_errors(arguments, message):
    with pytest.raises(InputError, match=message):
        strategy.choose(*arguments)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "property name"),
        ('["worker"]', "without workers"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "None"),
        (
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", '
            '"index": 2}}',
            "index 2",
        ),
        (
            '{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}',
            "must be a list",
        ),
    ],
)
def test_an_invalid_tf_config_is_an_error(config, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(InputError, match=f"TF_CONFIG.*{message}"):
        strategy.choose("multi_worker")


def test_auto_selects_multi_worker_for_several_workers(monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster}))
    with pytest.raises(InputError, match=r"TF_CONFIG.* None"):
        strategy.choose("auto")
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1"]}}))
    assert isinstance(strategy.choose("auto"), tf.distribute.OneDeviceStrategy)


class Workers(tf.distribute.MultiWorkerMirroredStrategy):
    """Strategy of one worker, without connections to the others."""

    def __init__(self, cluster, task_type, task_id):
        self._resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type=task_type, task_id=task_id
        )

    @property
    def cluster_resolver(self):
        return self._resolver


@pytest.mark.parametrize(
    ("cluster", "task", "chief"),
    [
        ({"worker": ["a:1", "b:1"]}, ("worker", 0), True),
        ({"worker": ["a:1", "b:1"]}, ("worker", 1), False),
        ({"chief": ["a:1"], "worker": ["b:1"]}, ("chief", 0), True),
        ({"chief": ["a:1"], "worker": ["b:1"]}, ("worker", 0), False),
    ],
)
def test_one_worker_is_the_chief(cluster, task, chief):
    assert is_chief(Workers(cluster, *task)) is chief


@pytest.mark.parametrize("replicas", [1, 2])  # of a worker
def test_errors_name_workers_of_several_replicas(replicas, monkeypatch):
    sync = WorkerSync(Workers({"worker": ["a:1", "b:1"]}, "worker", 0))
    rows = [[20.0] * replicas + [0.0] * replicas, [1.0] * 2 * replicas]
    monkeypatch.setattr(sync, "all_gather", lambda *_: rows)
    with pytest.raises(InputError, match=r": worker 0 at 20, worker 1 at 0\.$"):
        sync.check(20, 1)
    monkeypatch.setattr(sync, "all_gather", lambda *_: rows[::-1])
    with pytest.raises(InputError, match="worker 1 has another folder"):
        sync.check(1, 20)


class Replicas:
    """Stand-in for a strategy with three replicas."""

    num_replicas_in_sync = 3


@pytest.mark.parametrize(
    ("batch_size", "accumulation", "message"),
    [
        (3, 1, None),
        (12, 4, None),
        (8, 1, "input.batch_size 8 .*3 replicas.*=6 or 9"),
        (2, 1, "=3 or 3"),
        (9, 2, " 9 .*3 replicas times training.accumulation=2.*=6 or 12"),
    ],
)
def test_a_batch_is_divided_evenly(batch_size, accumulation, message):
    if message is None:
        strategy.check_batch(Replicas, batch_size, accumulation)
        return
    with pytest.raises(InputError, match=message):
        strategy.check_batch(Replicas, batch_size, accumulation)
