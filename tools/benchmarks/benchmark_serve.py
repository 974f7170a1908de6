"""Compare the CPU time of a served classifier between formats and runtimes.

All peers classify texts by one model with random weights. A text of a given length
consists of words of the vocabulary.

  electra_tf          our SavedModel, which has the tokenizer in its graph
  litert[.int8]       our LiteRT files, after the library `tokenizers`
  onnxruntime[.int8]  our ONNX files, after the library `tokenizers`
  matmul              the limit: large matmuls of as many FLOPs, in float32

The logits of the float32 models must equal the SavedModel's to 1e-3. The first requests
of a size, which trace and compile, are not measured.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import peers
from peers import LIMIT, OURS

FILES = {
    OURS: "saved_model/1",
    "litert": "litert/1/model.float32.tflite",
    "onnxruntime": "onnx/1/model.onnx",
    "litert.int8": "litert/1/model.int8.tflite",
    "onnxruntime.int8": "onnx/1/model.int8.onnx",
}
VOCAB = peers.ROOT / "electra_tf/preset_files/electra_wiki_en/vocab.txt"
TOLERANCE = 1e-3
Size = tuple[int, int]
"""Rows, and wordpieces of each."""


def make_texts(rows: int, length: int) -> list[str]:
    """Return texts of a number of wordpieces, with [CLS] and [SEP]."""
    words = VOCAB.read_text("utf-8").split("\n")
    words = [w for w in words if w.isascii() and w.isalpha() and w.islower()]
    return [
        " ".join(words[7919 * row * n % len(words)] for n in range(1, length - 1))
        for row in range(1, rows + 1)
    ]


def export(options: argparse.Namespace) -> None:
    from electra_tf import TextClassifier

    longest = max(length for _, length in options.sizes)
    model = TextClassifier.from_preset(
        options.config, vocabulary=VOCAB, num_classes=2, max_length=longest
    )
    model.save(f"{options.work}/model.keras")
    for form in {FILES[name].split("/")[0] for name in (OURS, *options.peers)}:
        command = "-m", "electra_tf.export", f"--model={options.work}/model.keras"
        flags = f"--format={form}", f"--output={options.work}/{form}"
        subprocess.run([sys.executable, *command, *flags], check=True)


def open_saved_model(path: str) -> Callable:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  its operations

    model = tf.saved_model.load(path)
    return lambda texts: model.signatures["serving_default"](text=tf.constant(texts))


def open_ids(name: str, path: str, options: argparse.Namespace) -> Callable:
    """Return a function of texts, from a file with a function of ids."""
    import numpy as np
    from tokenizers import Tokenizer

    if name.startswith("litert"):
        from ai_edge_litert.interpreter import Interpreter

        threads = options.threads
        runner = Interpreter(path, num_threads=threads).get_signature_runner()

        def model(inputs: dict) -> dict:
            return runner(**inputs)
    else:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        session = onnxruntime.InferenceSession(path, settings)

        def model(inputs: dict) -> dict:
            return {"logits": session.run(["logits"], inputs)[0]}

    file = pathlib.Path(path).with_name("tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.enable_padding()

    def run(texts: list[str]) -> dict:
        rows = tokenizer.encode_batch_fast(texts)
        inputs = {
            "token_ids": [row.ids for row in rows],
            "segment_ids": [row.type_ids for row in rows],
            "padding_mask": [row.attention_mask for row in rows],
        }
        return model({key: np.array(value, np.int32) for key, value in inputs.items()})

    return run


def make(name: str, options: argparse.Namespace) -> Callable:
    """Return a peer's function from a size to logits and CPU milliseconds."""
    import numpy as np

    if name == LIMIT:
        from electra_tf.config.loader import load_config
        from electra_tf.model import cost

        shape = load_config(options.config).model.encoder
        flops_per_ms = peers.peak_flops(options, time.process_time)(1e11) / 1e3
        return lambda size: (
            None,
            size[0] * cost.encoder_flops(shape, size[1]) / flops_per_ms,
        )
    path = f"{options.work}/{FILES[name]}"
    run = open_saved_model(path) if name == OURS else open_ids(name, path, options)

    def answer(size: Size) -> tuple:
        texts = make_texts(*size)
        logits = np.array(run(texts)["logits"])
        times, end = [], time.process_time() + options.seconds
        while not times or time.process_time() < end:
            begin = time.process_time()
            run(texts)
            times.append(1e3 * (time.process_time() - begin))
        return logits, statistics.median(times)

    return answer


def measure(found: dict, size: Size, rounds: int) -> None:
    """Print a line of the table."""
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        logits = {}
        for name, peer in found.items():
            logits[name], milliseconds = peer.ask(size)
            times[name].append(milliseconds)
    cells = "".join(f"{statistics.median(row):18.2f}" for row in times.values())
    print(f"{f'{size[0]}x{size[1]}':10}{cells}", flush=True)
    for name in set(found) - {LIMIT}:
        difference = abs(logits[name] - logits[OURS]).max()
        if not (difference <= TOLERANCE or name.endswith(".int8")):
            sys.exit(f"error: the logits of {name} differ by {difference:.1e}")


def main() -> None:
    parser = peers.parser(__doc__, [name for name in FILES if name != OURS])
    sizes = ["1x16", "1x128", "8x128", "32x128"]
    parser.add_argument("--sizes", nargs="+", default=sizes, help="rows x wordpieces")
    parser.add_argument("--seconds", type=float, default=0.5, help="of CPU, per round")
    options = parser.parse_args()
    options.sizes = [tuple(map(int, size.split("x"))) for size in options.sizes]
    with tempfile.TemporaryDirectory() as options.work:
        export(options)
        found = peers.start(make, options)
        print(
            f"\n{options.config}, {options.threads} threads, CPU ms, medians of "
            f"{options.rounds} rounds of {options.seconds:g} s\n{'':10}"
            + "".join(f"{name:>18}" for name in found)
        )
        for size in options.sizes:
            measure(found, size, options.rounds)
        for peer in found.values():
            peer.end()


if __name__ == "__main__":
    main()
