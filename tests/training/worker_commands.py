"""Processes of several workers on this machine, and real `pretrain` commands."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Sequence

from tests import tiny

ROOT = pathlib.Path(__file__).parents[2]
SETS = (
    *tiny.SETS,
    "optimizer.learning_rate=1e-3",
    "optimizer.warmup_steps=5",
    "optimizer.clip_norm=0.5",
)


def free_addresses(count: int) -> list[str]:
    """Return addresses of free ports."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(count)]
        for port in ports:
            port.bind(("localhost", 0))
        return [f"localhost:{port.getsockname()[1]}" for port in ports]


def worker_configs(count: int) -> list[str]:
    """Return TF_CONFIG of each of `count` workers, on free ports."""
    workers = free_addresses(count)
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [
        json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks
    ]


def start_workers(
    count: int, arguments: Sequence[str], logs: pathlib.Path
) -> list[subprocess.Popen]:
    """Start a Python program on `count` workers; one has no TF_CONFIG.

    Each has one thread, so that they share few cores evenly, and writes to the file
    `INDEX.log`.
    """
    logs.mkdir(parents=True, exist_ok=True)
    environment = {name: v for name, v in os.environ.items() if name != "TF_CONFIG"}
    environment |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}
    environment["PYTHONPATH"] = str(ROOT)
    processes = []
    for index, config in enumerate(worker_configs(count)):
        with (logs / f"{index}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, *arguments],
                    env={**environment, **({"TF_CONFIG": config} if count > 1 else {})},
                    stdout=log,
                    stderr=log,
                    cwd=ROOT,
                )
            )
    return processes


def pretrain_arguments(data: object, run: object, *sets: str) -> list[str]:
    """Return the arguments of Python for a small run of pre-training."""
    return [
        *("-m", "electra_tf.pretrain", f"--data={data}", f"--model_dir={run}"),
        *(f"--set={item}" for item in (*SETS, *sets)),
    ]
