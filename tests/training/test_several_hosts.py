"""The commands of the page on several hosts, with four processes in place of hosts."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest
import yaml

from electra_tf.config import loader
from electra_tf.storage.objects import ObjectFolder
from electra_tf.training.checkpoint import saved_steps
from tests.conftest import ROOT
from tests.tiny import SETS
from tests.training.worker_commands import free_addresses

PAGE = ROOT / "docs" / "how_to" / "several_gpus_hosts_tpus.md"
HOSTS = "host0:2222,host1:2222,host2:2222,host3:2222"
STEPS, SECONDS = 60, 400


def blocks(language):
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def block(language, part):
    (found,) = (text for text in blocks(language) if part in text)
    return found


def program(folder, name, text):
    """Write a program to a folder of the PATH."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def run(script, folder, **variables):
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
    )


def tf_configs(results):
    """Return the addresses and the index of each printed TF_CONFIG."""
    configs = [json.loads(line) for line in results.splitlines()]
    return [(c["cluster"]["worker"], c["task"]["index"]) for c in configs]


@pytest.fixture
def shared(tmp_path):
    """Return a folder with the page's `start.sh` and an `electra-tf` that prints."""
    (tmp_path / "start.sh").write_text(block("bash", "exec electra-tf"))
    program(tmp_path, "electra-tf", 'echo "$TF_CONFIG"')
    return tmp_path


def test_slurm_starts_each_worker_with_its_index(shared):
    program(shared, "scontrol", 'test "$3" = "n[1-4]" && printf "n%s\\n" 1 2 3 4')
    loop = 'for n in 0 1 2 3; do SLURM_PROCID=$n "${@:2}"; done'
    program(shared, "srun", loop)
    script = block("bash", "#SBATCH").replace("/shared", str(shared))
    result = run(script, shared, SLURM_JOB_NODELIST="n[1-4]")
    addresses = [f"n{n}:2222" for n in range(1, 5)]
    assert tf_configs(result.stdout) == [(addresses, n) for n in range(4)], result


def test_kubernetes_starts_each_worker_with_its_index(shared):
    service, job = yaml.safe_load_all(block("yaml", "kind: Job"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    name = service["metadata"]["name"]
    addresses = [f"{name}-{n}.{name}:2222" for n in range(job["spec"]["completions"])]
    for index in range(4):
        text = script.replace("/shared", str(shared))
        result = run(text, shared, JOB_COMPLETION_INDEX=str(index))
        assert tf_configs(result.stdout) == [(addresses, index)], result


class Hosts:
    """Four loops of the page, in processes with a cache of its own for each."""

    def __init__(self, folder):
        self.folder, self.addresses = folder, ",".join(free_addresses(4))
        self.shared, self.processes = folder / "shared", []
        self.logs = [folder / f"{index}.log" for index in range(4)]
        small = folder / "small.yaml"
        sets = [*SETS, "optimizer.warmup_steps=5", "training.save_every=5"]
        sets += ["training.log_every=10", "training.keep_at=[0.5]"]
        small.write_text(loader.dump_config(loader.load_config(overrides=sets)))
        self.changes = {
            "s3://bucket": f"file://{folder}/bucket",
            "/shared/": f"{self.shared}/",
            "/local/": f"{folder}/local$INDEX/",
            "--config=base": f"--config={small}",
            "input.batch_size=1024": "input.batch_size=8",
            "input.batch_size=256": "input.batch_size=4",
            "--size=30522": "--size=300",
            "training.steps=191500": f"training.steps={STEPS}",
            HOSTS: self.addresses,
            "do sleep 10": "do echo status $?; sleep 1",
        }

    def adapted(self, part):
        text = block("bash", part)
        for old, new in self.changes.items():
            text = text.replace(old, new)
        return text

    def start(self):
        loop, self.processes = self.adapted("until bash"), []
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        for index, log in enumerate(self.logs):
            variables = {"INDEX": str(index), "TF_NUM_INTRAOP_THREADS": "1"}
            text = loop.replace(f"{self.addresses} 0;", f"{self.addresses} {index};")
            with log.open("a") as file:
                process = subprocess.Popen(
                    ["bash", "-c", text],
                    env={**os.environ, "PATH": path, **variables},
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
                self.processes.append(process)

    def wait_until(self, is_true):
        end = time.monotonic() + SECONDS
        while not is_true():
            texts = [log.read_text()[-3000:] for log in self.logs]
            assert time.monotonic() < end, texts
            time.sleep(0.05)

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()

    def statuses(self):
        return {process.poll() for process in self.processes}


@pytest.fixture
def hosts(tmp_path, corpus_file):
    texts = tmp_path / "bucket" / "text"
    texts.mkdir(parents=True)
    shutil.copy(corpus_file, texts / "a.txt")
    python = f"PYTHONPATH={ROOT} exec {sys.executable} -m electra_tf"
    program(tmp_path, "electra-tf", f'{python} "$@"')
    hosts = Hosts(tmp_path)
    hosts.shared.mkdir()
    (hosts.shared / "start.sh").write_text(hosts.adapted("exec electra-tf"))
    yield hosts
    hosts.kill()


@pytest.mark.runs
def test_four_processes_build_train_stop_and_lose_the_shared_folder(hosts):
    for part in ("build_vocab", "--dry_run"):
        result = run(f"set -e\n{hosts.adapted(part)}", hosts.folder, INDEX="0")
        assert result.returncode == 0, result.stderr
    assert "time to train" in result.stdout
    checkpoints = str(hosts.shared / "run" / "checkpoints")
    hosts.start()
    hosts.wait_until(lambda: saved_steps(checkpoints))
    os.kill(worker_of(hosts.processes[2]), 15)
    hosts.wait_until(lambda: all("status 143" in log.read_text() for log in hosts.logs))
    hosts.kill()
    newest = max(saved_steps(checkpoints))
    assert newest < STEPS
    shutil.rmtree(hosts.shared / "run")
    hosts.start()
    hosts.wait_until(lambda: None not in hosts.statuses())
    assert hosts.statuses() == {0}, hosts.logs[0].read_text()
    text = hosts.logs[0].read_text()
    store = f"file://{hosts.folder}/bucket/run"
    assert f"step_{newest:08d} restored from {store}" in text
    assert f"resuming after step {newest} of {STEPS}" in text
    names = {*ObjectFolder(store).find()}
    assert {"metrics.jsonl", f"checkpoints/step_{STEPS:08d}/checkpoint.json"} <= names
    for index in range(4):  # each host has its copy of the records
        assert [*(hosts.folder / f"local{index}").rglob("*.tfrecord*")]


def worker_of(loop):
    """Return the process that a loop waits for; `exec` keeps the shell's number."""
    path = pathlib.Path(f"/proc/{loop.pid}/task/{loop.pid}/children")
    (child,) = path.read_text().split()
    return int(child)
