"""Compare building records with the original's builder and with bare tokenizers.

All numbers are tokens per second of wall time with the same number of processes or
threads. Builders include start-up, reading, packing, writing and the manifest.

--original is a checkout of google-research/electra, whose build_pretraining_dataset.py
then runs unchanged on the same text. Without it, the peer is a reimplementation of its
method (tests/text/plain_tokenizer.py, one `tf.train.Example` per record), which has
about 1.6 times the original's speed.

--memory measures peak memory instead: of building records in one process from a tenth
of the text and from all of it. The second build runs under a limit of its address space
of 1.25 times the peak of the first one, without near-duplicates, whose index grows.
"""

import argparse
import concurrent.futures
import functools
import json
import multiprocessing
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import time

import benchmark_common as common

METHOD_FRACTION = 20  # `original_method` runs on one of this many parts of the text
METHOD, ORIGINAL = "the original's method", "the original's builder"


def build_records(text: pathlib.Path, vocab: str, workers: int, folder: str) -> float:
    output = tempfile.mkdtemp(dir=folder)
    start = time.perf_counter()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "electra_tf.build_records",
            f"--input={text}",
            f"--vocab={vocab}",
            f"--output={output}",
            f"--workers={workers}",
        ],
        check=True,
        capture_output=True,
    )
    seconds = time.perf_counter() - start
    manifest = json.loads((pathlib.Path(output) / "manifest.json").read_text())
    return manifest["tokens"] / seconds


def peak_memory(
    text: pathlib.Path, vocab: str, folder: str, kind: str, limit: int
) -> tuple[int, int, dict]:
    """Return peak resident and virtual bytes of a build, and its manifest."""
    output = tempfile.mkdtemp(dir=folder)
    flags = {
        "input": text, "vocab": vocab, "output": output, "workers": 1,
        "deduplicate": kind,
    }  # fmt: skip
    # The peak of the address space is readable only while the process runs.
    program = (
        "import runpy, sys, atexit\n"
        "atexit.register(lambda: print(open('/proc/self/status').read()))\n"
        "runpy.run_module('electra_tf.build_records', run_name='__main__')"
    )
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    set_limit = functools.partial(resource.setrlimit, resource.RLIMIT_AS)
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=(lambda: set_limit((limit, limit))) if limit else None,
    )
    status = dict(re.findall(r"^(Vm\w+):\s+(\d+) kB$", result.stdout, re.M))
    manifest = json.loads((pathlib.Path(output) / "manifest.json").read_text())
    return int(status["VmHWM"]) * 1000, int(status["VmPeak"]) * 1000, manifest


def compare_memory(lines: list[str], vocab: str, folder: str) -> None:
    """Print the peak memory for a tenth of the text and for all of it."""
    for kind in ("none", "exact", "near"):
        limit = 0
        for share in (10, 1):
            text = pathlib.Path(folder) / "part.txt"
            text.write_text("\n".join(lines[: len(lines) // share]), encoding="utf-8")
            resident, virtual, manifest = peak_memory(text, vocab, folder, kind, limit)
            print(
                f"--deduplicate={kind}, {text.stat().st_size / 1e6:.1f} MB, "
                f"{manifest['documents']:,} documents kept: peak resident "
                f"{resident / 1e6:.0f} MB, address space {virtual / 1e6:.0f} MB"
                + (f" of at most {limit / 1e6:.0f} MB" if limit else "")
            )
            limit = 0 if kind == "near" else int(1.25 * virtual)


def original_builder(
    checkout: str, lines: list[str], vocab: str, workers: int, folder: str
) -> float:
    """Return the seconds of the original's program."""
    corpus, output = tempfile.mkdtemp(dir=folder), tempfile.mkdtemp(dir=folder)
    for i in range(workers):
        share = lines[len(lines) * i // workers : len(lines) * (i + 1) // workers]
        (pathlib.Path(corpus) / str(i)).write_text("\n".join(share), encoding="utf-8")
    start = time.perf_counter()
    subprocess.run(
        [
            sys.executable,
            "build_pretraining_dataset.py",
            f"--corpus-dir={corpus}",
            f"--vocab-file={vocab}",
            f"--output-dir={output}",
            f"--num-processes={workers}",
        ],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - start


def original_method(lines: list[str], vocab: str, output: str) -> tuple[int, float]:
    """Build records with the original's method; return tokens and seconds."""
    import tensorflow as tf
    from text.plain_tokenizer import tokenize

    from electra_tf.text.examples import original_order
    from electra_tf.text.vocab import Vocabulary

    vocabulary = Vocabulary.read(vocab)
    cls, sep = vocabulary.ids["[CLS]"], vocabulary.ids["[SEP]"]
    tokens, start = 0, time.perf_counter()

    def documents():
        nonlocal tokens
        document = []
        for line in lines:
            if line:
                ids = tokenize(line, vocabulary.ids)
                document.append("".join(map(chr, ids)))
                tokens += len(ids)
            elif document:
                yield document
                document = []

    with tf.io.TFRecordWriter(output) as writer:
        for first, second in original_order(documents(), 128, random.Random(0)):
            first, second = list(map(ord, first)), list(map(ord, second))
            ids = [cls, *first, sep, *second, *([sep] if second else [])]
            length = len(first) + 2
            pad = [0] * (128 - len(ids))
            features = {
                "input_ids": ids + pad,
                "input_mask": [1] * len(ids) + pad,
                "segment_ids": [0] * length + [1] * (len(ids) - length) + pad,
            }
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in features.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return tokens, time.perf_counter() - start


def bare_tokenizer(lines: list[str], vocab: str) -> tuple[int, float]:
    """Return tokens and seconds of `Tokenizer.encode`, with an empty cache."""
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.vocab import Vocabulary

    tokenizer = Tokenizer(Vocabulary.read(vocab))
    start = time.perf_counter()
    tokens = sum(len(tokenizer.encode(line)) for line in lines)
    return tokens, time.perf_counter() - start


def hugging_face(lines: list[str], vocab: str) -> float:
    """Return tokens per second of the `tokenizers` package, which uses all cores."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(vocab)
    start, tokens = time.perf_counter(), 0
    for i in range(0, len(lines), 1000):
        batch = tokenizer._tokenizer.encode_batch_fast(
            lines[i : i + 1000], add_special_tokens=False
        )
        tokens += sum(len(encoding.ids) for encoding in batch)
    return tokens / (time.perf_counter() - start)


def run_in_processes(pool, function, shares: list[tuple]) -> float:
    """Return tokens per second of all processes together."""
    results = list(pool.map(function, *zip(*shares, strict=True)))
    return sum(tokens for tokens, _ in results) / max(s for _, s in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--input", help="text file; default: English of ELECTRA_TF_DATA"
    )
    parser.add_argument("--original", help="checkout of google-research/electra")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--vocab", help="default: trained on the text")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    lines = common.text_lines(options.input, options.megabytes)
    n = options.workers
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("\n".join(lines), encoding="utf-8")
        vocab = options.vocab or train_vocabulary(text, folder)
        if options.memory:
            compare_memory(lines, vocab, folder)
            return
        size = text.stat().st_size
        print(f"{size / 1e6:.1f} MB of text, {n} processes, {options.rounds} rounds")
        tokens, _ = bare_tokenizer(lines, vocab)
        sample = lines[: len(lines) // METHOD_FRACTION]
        samples = [(sample[i::n], vocab, f"{folder}/method-{i}") for i in range(n)]
        shares = [
            (lines[len(lines) * i // n : len(lines) * (i + 1) // n], vocab)
            for i in range(n)
        ]
        spawn = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(n, spawn) as pool:
            measures = {
                METHOD: lambda: run_in_processes(pool, original_method, samples),
                "electra_tf.build_records": lambda: build_records(
                    text, vocab, n, folder
                ),
                "bare Tokenizer.encode": lambda: run_in_processes(
                    pool, bare_tokenizer, shares
                ),
                "bare Hugging Face encode_batch_fast": lambda: hugging_face(
                    lines, vocab
                ),
            }
            if options.original:
                measures[ORIGINAL] = lambda: (
                    tokens / original_builder(options.original, lines, vocab, n, folder)
                )
            results = common.interleaved(options.rounds, measures)
    common.report(results, "tokens/s", ORIGINAL if options.original else METHOD)


def train_vocabulary(text: pathlib.Path, folder: str) -> str:
    """Train a vocabulary of BERT's size on the text; return its path."""
    vocab = f"{folder}/vocab.txt"
    command = [sys.executable, "-m", "electra_tf.build_vocab"]
    subprocess.run(
        [*command, f"--input={text}", f"--output={vocab}"],
        check=True,
        capture_output=True,
    )
    return vocab


if __name__ == "__main__":
    main()
