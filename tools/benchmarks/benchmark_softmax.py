"""Time and memory of All-Tokens MLM's softmax, in chunks and as one matmul.

Each process computes the loss of all positions and its gradients once to warm up, then
several times. Memory is what it adds to the process before the first call.
"""

import argparse
import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parents[2]
_PROGRAM = """
import resource, statistics, sys, time
import tensorflow as tf
from electra_tf.pretraining.vocabulary_softmax import log_probabilities

kind, positions, size, width, rounds = sys.argv[1], *map(int, sys.argv[2:])
normal = lambda shape, seed: tf.random.stateless_normal(shape, [0, seed])
hidden, table = normal([positions, width], 1), normal([size, width], 2)
bias = tf.zeros(size)
labels = tf.random.stateless_uniform([positions], [0, 3], 0, size, tf.int32)

@tf.function
def step(hidden, table, bias):
    with tf.GradientTape() as tape:
        tape.watch((hidden, table, bias))
        if kind == "chunks":
            found = log_probabilities(hidden, table, bias, labels, labels).label_X
        else:
            logits = tf.matmul(hidden, table, transpose_b=True) + bias
            found = tf.gather(tf.nn.log_softmax(logits), labels, batch_dims=1)
        loss = -tf.reduce_mean(found)
    return loss, tape.gradient(loss, (hidden, table, bias))

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, times = peak(), []
step(hidden, table, bias)
for _ in range(rounds):
    start = time.perf_counter()
    step(hidden, table, bias)[0].numpy()
    times.append(time.perf_counter() - start)
print(statistics.median(times), peak() - before)
"""


def main() -> None:
    """Print a row for each number of positions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--positions", default="2048,4096,8192,16384", help="Numbers of positions."
    )
    parser.add_argument("--vocabulary_size", type=int, default=30522, help="Entries.")
    parser.add_argument("--width", type=int, default=128, help="Of the token table.")
    parser.add_argument("--rounds", type=int, default=3, help="Timed steps.")
    arguments = parser.parse_args()
    print("positions   chunks: s, MB     one matmul: s, MB")
    for positions in arguments.positions.split(","):
        values = []
        for kind in ("chunks", "plain"):
            shape = positions, arguments.vocabulary_size, arguments.width
            given = *shape, arguments.rounds
            result = subprocess.run(
                [sys.executable, "-c", _PROGRAM, kind, *map(str, given)],
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
                capture_output=True,
                text=True,
                check=True,
            )
            seconds, megabytes = map(float, result.stdout.split())
            values += [f"{seconds:6.2f} {megabytes:7.0f}"]
        print(f"{int(positions):9,}   {values[0]}    {values[1]}", flush=True)


if __name__ == "__main__":
    main()
