"""Compare building records with the original's builder and with bare tokenizers.

All numbers are tokens per second of wall time with the same number of processes or
threads. Builders include start-up, reading, packing, writing and the manifest.
--original is a checkout of google-research/electra, whose build_pretraining_dataset.py
then runs unchanged on the same text.

--memory measures peak memory instead: of building records in one process from a tenth
of the text and from all of it. The second build runs under a limit of its address space
of 1.25 times the peak of the first one, without near-duplicates, whose index grows.
"""

import argparse
import concurrent.futures
import itertools
import json
import multiprocessing
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import peers

OURS = "electra_tf.build_records"


def run(name: str, **flags: object) -> None:
    """Run a command of the package."""
    arguments = [f"--{flag}={value}" for flag, value in flags.items()]
    command = [sys.executable, "-m", f"electra_tf.{name}", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def build_records(text: pathlib.Path, vocab: str, workers: int, folder: str) -> float:
    """Return tokens per second of the whole command."""
    output, start = tempfile.mkdtemp(dir=folder), time.perf_counter()
    run("build_records", input=text, vocab=vocab, output=output, workers=workers)
    seconds = time.perf_counter() - start
    return json.loads(pathlib.Path(output, "manifest.json").read_text())["tokens"] / (
        seconds
    )


def original_builder(
    checkout: str, lines: list[str], vocab: str, workers: int, folder: str
) -> float:
    """Return the seconds of the original's program."""
    corpus, output = tempfile.mkdtemp(dir=folder), tempfile.mkdtemp(dir=folder)
    for number, share in enumerate(shares(lines, workers)):
        pathlib.Path(corpus, str(number)).write_text("\n".join(share), encoding="utf-8")
    command = [sys.executable, "build_pretraining_dataset.py"]
    command += [f"--corpus-dir={corpus}", f"--vocab-file={vocab}"]
    command += [f"--output-dir={output}", f"--num-processes={workers}"]
    start = time.perf_counter()
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    return time.perf_counter() - start


def shares(lines: list[str], count: int) -> list[list[str]]:
    ends = [len(lines) * number // count for number in range(count + 1)]
    return [lines[a:b] for a, b in itertools.pairwise(ends)]


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

    tokenizer = BertWordPieceTokenizer(vocab)._tokenizer
    start, tokens = time.perf_counter(), 0
    for i in range(0, len(lines), 1000):
        batch = lines[i : i + 1000]
        encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        tokens += sum(len(encoding.ids) for encoding in encoded)
    return tokens / (time.perf_counter() - start)


def compare_memory(lines: list[str], vocab: str, folder: str) -> None:
    """Print the peak memory for a tenth of the text and for all of it."""
    for kind in ("none", "exact", "near"):
        limit = 0
        for share in (10, 1):
            text = pathlib.Path(folder) / "part.txt"
            text.write_text("\n".join(lines[: len(lines) // share]), encoding="utf-8")
            resident, virtual = peak_memory(text, vocab, folder, kind, limit)
            print(
                f"--deduplicate={kind}, {text.stat().st_size / 1e6:.1f} MB: peak "
                f"resident {resident / 1e6:.0f} MB, address space "
                f"{virtual / 1e6:.0f} MB"
                + (f" of at most {limit / 1e6:.0f} MB" if limit else ""),
                flush=True,
            )
            limit = 0 if kind == "near" else int(1.25 * virtual)


def peak_memory(
    text: pathlib.Path, vocab: str, folder: str, kind: str, limit: int
) -> tuple[int, int]:
    """Return peak resident and virtual bytes of a build."""
    # The peak of the address space is readable only while the process runs.
    program = (
        "import runpy, sys, atexit\n"
        "atexit.register(lambda: print(open('/proc/self/status').read()))\n"
        "runpy.run_module('electra_tf.build_records', run_name='__main__')"
    )
    arguments = [f"--input={text}", f"--vocab={vocab}", f"--deduplicate={kind}"]
    arguments += [f"--output={tempfile.mkdtemp(dir=folder)}", "--workers=1"]

    def set_limit():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=set_limit if limit else None,
    )
    status = dict(re.findall(r"^(Vm\w+):\s+(\d+) kB$", result.stdout, re.M))
    return int(status["VmHWM"]) * 1000, int(status["VmPeak"]) * 1000


def main() -> None:
    """Measure rates or memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", help="text file; default: English Wikipedia")
    parser.add_argument("--original", help="checkout of google-research/electra")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--vocab", help="default: trained on the text")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    lines, n = peers.text_lines(options.input, options.megabytes), options.workers
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("\n".join(lines), encoding="utf-8")
        vocab = options.vocab or f"{folder}/vocab.txt"
        if not options.vocab:
            run("build_vocab", input=text, output=vocab)
        if options.memory:
            compare_memory(lines, vocab, folder)
            return
        megabytes = text.stat().st_size / 1e6
        print(f"{megabytes:.1f} MB of text, {n} processes, {options.rounds} rounds")
        compare_speed(options, lines, text, vocab, folder)


def compare_speed(
    options: argparse.Namespace,
    lines: list[str],
    text: pathlib.Path,
    vocab: str,
    folder: str,
) -> None:
    """Print tokens per second of builders and tokenizers."""
    n = options.workers
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(n, spawn) as pool:

        def all_tokenizers() -> float:
            found = list(pool.map(bare_tokenizer, shares(lines, n), [vocab] * n))
            return sum(tokens for tokens, _ in found) / max(s for _, s in found)

        measures = {
            OURS: lambda: build_records(text, vocab, n, folder),
            "bare Tokenizer.encode": all_tokenizers,
            "bare Hugging Face encode_batch_fast": lambda: hugging_face(lines, vocab),
        }
        base = OURS
        if options.original:
            base = "the original's builder"
            tokens, _ = bare_tokenizer(lines, vocab)
            measures[base] = lambda: (
                tokens / original_builder(options.original, lines, vocab, n, folder)
            )
        results = peers.interleaved(options.rounds, measures)
    peers.report(results, "tokens/s", base)


if __name__ == "__main__":
    main()
