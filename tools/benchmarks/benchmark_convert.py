"""Time and memory of converting a base model to each format.

The limits are 30 seconds, and the memory of a process that only imports TensorFlow plus
2.5 times the weights.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FORMATS = ("electra_tf", "huggingface", "tf1", "keras_hub", "model_garden")
SECONDS, COPIES = 30, 2.5
_ROOT = pathlib.Path(__file__).parents[2]
_WRITE_SOURCE = """
import sys
import numpy as np
from electra_tf.config.pretraining import EncoderConfig
from electra_tf.interop import huggingface, network, pretrained
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary

words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]
words += [f"word{n}" for n in range(30522 - len(words))]
common = dict(
    depth=12, embedding=768, vocabulary_size=len(words), max_positions=512, segments=2,
    dropout=0.1, attention_dropout=0.1)
shapes = {
    "discriminator": EncoderConfig(width=768, heads=12, feed_forward=3072, **common),
    "generator": EncoderConfig(width=256, heads=4, feed_forward=1024, **common)}
rng = np.random.default_rng(0)
tables, networks = {}, []
for role in sys.argv[2].split(","):
    weights = {
        path: tables.get(path, rng.standard_normal(size, np.float32) * np.float32(0.02))
        for path, size in network.expected_shapes(role, shapes[role]).items()
        if "embeddings_project" not in path or role == "generator"}
    one = network.Network(role, shapes[role], weights)
    tables = one.embeddings
    networks.append(one.to_ours())
tokenizer = Tokenizer(Vocabulary(tuple(words), "made"))
model = pretrained.PretrainedModel.of_networks(networks, tokenizer, "made")
huggingface.write(model, sys.argv[1])
"""


def measure(*command: str) -> tuple[float, float]:
    """Return seconds and peak resident MB of a process.

    This process imports little: a child's peak begins with its parent's memory.
    """
    started = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    child = subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)[:99]} failed")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> int:
    """Print the table; return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--roles", default="discriminator,generator",
        help="Networks of the source: discriminator, or discriminator,generator.",
    )  # fmt: skip
    parser.add_argument("--formats", default=",".join(FORMATS), help="Targets.")
    parser.add_argument(
        "--sources", default="huggingface",
        help="Formats to read from, each made from the Hugging Face model.",
    )  # fmt: skip
    arguments = parser.parse_args()
    _, tensorflow = measure("-c", "import tensorflow")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        made = {"huggingface": os.path.join(folder, "huggingface")}
        measure("-c", _WRITE_SOURCE, made["huggingface"], arguments.roles)
        weights = _size(made["huggingface"])
        limit = tensorflow + COPIES * weights
        print(f"weights {weights:.0f} MB, import tensorflow {tensorflow:.0f} MB")
        print(f"limits: {SECONDS} s, {limit:.0f} MB")
        for source in arguments.sources.split(","):
            if source not in made:
                made[source] = os.path.join(folder, source)
                _convert(made["huggingface"], made[source], source)
            for target in arguments.formats.split(","):
                out = os.path.join(folder, "target")
                seconds, peak = _convert(made[source], out, target)
                subprocess.run(["rm", "-r", out], check=True)
                copies = (peak - tensorflow) / weights
                exceeded = seconds > SECONDS or peak > limit
                failed |= exceeded
                print(
                    f"{source:12} -> {target:12} {seconds:5.1f} s {peak:6.0f} MB = "
                    f"tensorflow + {copies:.2f} x weights{' EXCEEDED' * exceeded}",
                    flush=True,
                )
    return int(failed)


def _convert(source: str, target: str, name: str) -> tuple[float, float]:
    return measure(
        "-m", "electra_tf.convert", f"--from={source}", f"--to={target}",
        f"--format={name}",
    )  # fmt: skip


def _size(folder: str) -> float:
    """Return the MB of all weights below a folder."""
    files = pathlib.Path(folder).rglob("*.safetensors")
    return sum(file.stat().st_size for file in files) / 2**20


if __name__ == "__main__":
    sys.exit(main())
