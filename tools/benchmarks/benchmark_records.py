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
from functools import partial

import peers

# The peak of the address space is readable only while the process runs.
_PROGRAM = """
import resource, runpy, atexit
resource.setrlimit(resource.RLIMIT_AS, ({limit}, -1))
atexit.register(lambda: print(open("/proc/self/status").read()))
runpy.run_module("electra_tf.build_records", run_name="__main__")
"""


class Text:
    """A text, its vocabulary, and a folder for the outputs."""

    def __init__(self, options: argparse.Namespace, folder: str):
        self.lines = peers.text_lines(options.input, options.megabytes)
        self.folder, self.workers = folder, options.workers
        self.path = self.write("text.txt", self.lines)
        self.vocab = options.vocab or f"{folder}/vocab.txt"
        if not options.vocab:
            peers.run_command("build_vocab", input=self.path, output=self.vocab)

    def write(self, name: str, lines: list[str]) -> pathlib.Path:
        path = pathlib.Path(self.folder, name)
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    def output(self) -> str:
        return tempfile.mkdtemp(dir=self.folder)

    def shares(self) -> list[list[str]]:
        ends = (len(self.lines) * n // self.workers for n in range(self.workers + 1))
        return [self.lines[a:b] for a, b in itertools.pairwise(ends)]


def build_records(text: Text) -> float:
    """Return tokens per second of the whole command."""
    output, start = text.output(), time.perf_counter()
    flags = {"vocab": text.vocab, "output": output, "workers": text.workers}
    flags["order"] = "original"
    peers.run_command("build_records", input=text.path, **flags)
    seconds = time.perf_counter() - start
    manifest = json.loads(pathlib.Path(output, "manifest.json").read_text())
    return manifest["tokens"] / seconds


def original_builder(text: Text, checkout: str, tokens: int) -> float:
    """Return tokens per second of the original's program."""
    corpus = text.output()
    for number, share in enumerate(text.shares()):
        pathlib.Path(corpus, str(number)).write_text("\n".join(share), encoding="utf-8")
    command = [sys.executable, "build_pretraining_dataset.py"]
    command += [f"--corpus-dir={corpus}", f"--vocab-file={text.vocab}"]
    command += [f"--output-dir={text.output()}", f"--num-processes={text.workers}"]
    start = time.perf_counter()
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    return tokens / (time.perf_counter() - start)


def bare_tokenizer(lines: list[str], vocab: str) -> tuple[int, float]:
    """Return tokens and seconds of `Tokenizer.encode`, with an empty cache."""
    from electra_tf.text.tokenizer import WordPieceTokenizer
    from electra_tf.text.vocab import Vocabulary

    tokenizer = WordPieceTokenizer(Vocabulary.read(vocab))
    start = time.perf_counter()
    tokens = sum(len(tokenizer.encode(line)) for line in lines)
    return tokens, time.perf_counter() - start


def all_tokenizers(text: Text, pool: concurrent.futures.Executor) -> float:
    """Return tokens per second of `Tokenizer.encode` in all processes."""
    vocabs = [text.vocab] * text.workers
    found = list(pool.map(bare_tokenizer, text.shares(), vocabs))
    return sum(tokens for tokens, _ in found) / max(seconds for _, seconds in found)


def hugging_face(text: Text) -> float:
    """Return tokens per second of the `tokenizers` package, which uses all cores."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(text.vocab)._tokenizer
    start, tokens = time.perf_counter(), 0
    for i in range(0, len(text.lines), 1000):
        batch = text.lines[i : i + 1000]
        encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        tokens += sum(len(encoding.ids) for encoding in encoded)
    return tokens / (time.perf_counter() - start)


def compare_memory(text: Text) -> None:
    """Print the peak memory for a tenth of the text and for all of it."""
    for kind in ("none", "exact", "near"):
        limit = resource.RLIM_INFINITY
        for share in (10, 1):
            part = text.write("part.txt", text.lines[: len(text.lines) // share])
            resident, virtual = peak_memory(text, part, kind, limit)
            print(
                f"--deduplicate={kind}, {part.stat().st_size / 1e6:.1f} MB: peak "
                f"resident {resident / 1e6:.0f} MB, address space "
                f"{virtual / 1e6:.0f} MB"
                + (f" of at most {limit / 1e6:.0f} MB" if limit > 0 else ""),
                flush=True,
            )
            if kind != "near":
                limit = int(1.25 * virtual)


def peak_memory(
    text: Text, part: pathlib.Path, kind: str, limit: int
) -> tuple[int, int]:
    """Return peak resident and virtual bytes of a build in one process."""
    arguments = [f"--input={part}", f"--vocab={text.vocab}", f"--deduplicate={kind}"]
    arguments += [f"--output={text.output()}", "--workers=1"]
    status = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(limit=limit), *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout
    peaks = dict(re.findall(r"^(Vm\w+):\s+(\d+) kB$", status, re.M))
    return int(peaks["VmHWM"]) * 1000, int(peaks["VmPeak"]) * 1000


def compare_speed(options: argparse.Namespace, text: Text) -> None:
    """Print tokens per second of builders and tokenizers."""
    megabytes = text.path.stat().st_size / 1e6
    print(f"{megabytes:.1f} MB, {text.workers} processes, {options.rounds} rounds")
    base = "electra_tf.build_records"
    measures = {base: partial(build_records, text)}
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(text.workers, spawn) as pool:
        measures["bare Tokenizer.encode"] = partial(all_tokenizers, text, pool)
        hugging = "bare Hugging Face encode_batch_fast"
        measures[hugging] = partial(hugging_face, text)
        if options.original:
            base = "the original's builder"
            tokens, _ = bare_tokenizer(text.lines, text.vocab)
            original = partial(original_builder, text, options.original, tokens)
            measures[base] = original
        peers.report(peers.interleaved(options.rounds, measures), "tokens/s", base)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", help="text file; default: English Wikipedia")
    parser.add_argument("--original", help="checkout of google-research/electra")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--vocab", help="default: trained on the text")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Text(options, folder)
        if options.memory:
            compare_memory(text)
        else:
            compare_speed(options, text)


if __name__ == "__main__":
    main()
