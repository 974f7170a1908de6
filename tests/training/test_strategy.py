"""Which devices train, and what is said where they are not there.

What needs several replicas or workers is in test_replicas.py.
"""

import json

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training import strategy

MIRRORED = tf.distribute.MirroredStrategy


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


def told(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_one_device_is_what_auto_finds_on_a_cpu():
    for name in ("auto", "one_device"):
        found = strategy.choose(name)
        assert isinstance(found, tf.distribute.OneDeviceStrategy)
        assert found.num_replicas_in_sync == 1
        assert strategy.is_chief(found)


def test_mirrored_on_one_cpu_is_one_replica():
    found = strategy.choose("mirrored")
    assert isinstance(found, MIRRORED)
    assert found.num_replicas_in_sync == 1
    assert strategy.is_chief(found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mirrored", "local"), r"--tpu goes with --strategy=tpu.*=mirrored"),
        (("auto", None, 2), r"--cpu_replicas=2 with --strategy=auto"),
        (("one_device", None, 2), r"pass --strategy=mirrored"),
        (("multi_worker",), r"no TF_CONFIG that names a worker"),
    ],
)
def test_flags_that_contradict_the_machine_are_told(arguments, words):
    with pytest.raises(InputError, match=words):
        strategy.choose(*arguments)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "property name"),
        ('["worker"]', "'list' object"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "task_type"),
        (
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", '
            '"index": 2}}',
            "exceeds the maximum id",
        ),
        (
            '{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}',
            "must be a list",
        ),
    ],
)
def test_a_bad_tf_config_is_told(config, words, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(InputError, match=f"{words}.*unset it"):
        strategy.choose("multi_worker")


def test_auto_takes_the_workers_that_tf_config_names(monkeypatch):
    told(monkeypatch, {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}})
    with pytest.raises(InputError, match="task_type"):
        strategy.choose("auto")
    told(monkeypatch, {"cluster": {"worker": ["a:1"]}})
    assert isinstance(strategy.choose("auto"), tf.distribute.OneDeviceStrategy)


class Workers(tf.distribute.MultiWorkerMirroredStrategy):
    """As one worker of several sees them, without the others."""

    def __init__(self, cluster, task_type, task_id):
        self._own = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type=task_type, task_id=task_id
        )

    @property
    def cluster_resolver(self):
        return self._own


@pytest.mark.parametrize(
    ("cluster", "task", "chief"),
    [
        ({"worker": ["a:1", "b:1"]}, ("worker", 0), True),
        ({"worker": ["a:1", "b:1"]}, ("worker", 1), False),
        ({"chief": ["a:1"], "worker": ["b:1"]}, ("chief", 0), True),
        ({"chief": ["a:1"], "worker": ["b:1"]}, ("worker", 0), False),
    ],
)
def test_one_of_the_workers_writes(cluster, task, chief):
    assert strategy.is_chief(Workers(cluster, *task)) is chief


class Replicas:
    """All that `check_batch` looks at."""

    num_replicas_in_sync = 3


@pytest.mark.parametrize(
    ("rows", "parts", "words"),
    [
        (3, 1, None),
        (12, 4, None),
        (8, 1, "equally by 3 replicas. Received: input.batch_size 8.*=6 or 9"),
        (2, 1, "=3 or 3"),
        (9, 2, "by 3 replicas, each in 2 parts.*=6 or 12"),
    ],
)
def test_a_batch_is_shared_equally(rows, parts, words):
    if words is None:
        strategy.check_batch(Replicas, rows, parts)
        return
    with pytest.raises(InputError, match=words):
        strategy.check_batch(Replicas, rows, parts)
