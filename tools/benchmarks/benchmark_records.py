"""Compare building records with the original's builder and with bare tokenizers.

All numbers are tokens per second of wall time with the same number of processes or
threads. Builders include start-up, reading, packing, writing and the manifest.
--original is a checkout of google-research/electra, whose build_pretraining_dataset.py
then runs unchanged on the same text.
"""

import argparse
import concurrent.futures
import itertools
import json
import multiprocessing
import pathlib
import subprocess
import sys
import tempfile
import time
from functools import partial

import peers


class Text:
    def __init__(self, options: argparse.Namespace, folder: str):
        self.lines = peers.text_lines(options.input, options.megabytes)
        self.folder, self.workers = folder, options.workers
        self.path = pathlib.Path(folder, "text.txt")
        self.path.write_text("\n".join(self.lines), encoding="utf-8")
        self.vocab = options.vocab or f"{folder}/vocab.txt"
        if not options.vocab:
            peers.run_command("build_vocab", input=self.path, output=self.vocab)

    def output(self) -> str:
        return tempfile.mkdtemp(dir=self.folder)

    def shares(self) -> list[list[str]]:
        ends = (len(self.lines) * n // self.workers for n in range(self.workers + 1))
        return [self.lines[a:b] for a, b in itertools.pairwise(ends)]


def build_records(text: Text) -> float:
    output, start = text.output(), time.perf_counter()
    flags = {"vocab": text.vocab, "output": output, "workers": text.workers}
    flags["order"] = "original"
    peers.run_command("build_records", input=text.path, **flags)
    seconds = time.perf_counter() - start
    manifest = json.loads(pathlib.Path(output, "manifest.json").read_text())
    return manifest["tokens"] / seconds


def original_builder(text: Text, checkout: str, tokens: int) -> float:
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


def compare(options: argparse.Namespace, text: Text) -> None:
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
    add = parser.add_argument
    add("--input", help="text file; default: English Wikipedia")
    add("--original", help="checkout of google-research/electra")
    add("--megabytes", type=float, default=200)
    add("--vocab", help="default: trained on the text")
    add("--workers", type=int, default=multiprocessing.cpu_count())
    add("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Text(options, folder))


if __name__ == "__main__":
    main()
