"""Build a corpus from the docstrings of the Python installation.

`write_corpus` writes texts for pre-training and evaluation, and tables of sentences for
a classifier.
"""

import ast
import concurrent.futures
import hashlib
import itertools
import os
import pathlib
import random
import re
import signal
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence

from electra_tf import durable_files

HELD_OUT_EVERY = 20  # documents; the others are for training
TRAIN, HELD_OUT, CLASSES = "train.txt", "heldout.txt", "classes"
NUM_TRAIN, NUM_TEST = 8000, 1000  # sentences of the tables, at least if available
LABELS = ("as written", "exchanged")
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef

_SKIPPED = {"site-packages", "dist-packages", "test", "tests"}
_MAX_SOURCE_SIZE = 2_000_000  # bytes; larger files are generated
_MIN_DOCUMENT_SIZE = 200  # characters
_MIN_WORDS, _MAX_WORDS = 8, 20  # of a sentence of the tables

_UNDERLINE = re.compile(r"[-=~^*#+]{3,}$")
_CODE = re.compile(r">>>|\.\.\.|```|\$ |@|#")
_ENTRY = re.compile(r"[-*•] |\d+[.)] |\*{0,2}[\w.]+(, [\w.]+)*( \([^)]*\))?: ")
_HEADING = re.compile(r"\w+:$|\*{0,2}\w+(, \*{0,2}\w+)* : ")  # "Args:", "x : array"
_MARKUP = re.compile(r":[a-z:]+:(?=`)|`+|\*\*?(?=\S)|(?<=\S)\*\*?(?=\W|$)")
_SENTENCE = re.compile(r"[A-Z].*[.!?:)]$")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_WORD = re.compile(r"[(\"']*[A-Za-z][a-z]*([-'/][A-Za-z]+)*[.,;:!?)\"']*$")

Document = list[str]
"""Paragraphs of one source file."""


def paragraphs(text: str) -> Iterator[str]:
    lines, last_indent = [], 0
    for line in [*text.expandtabs().splitlines(), ""]:
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        entry = _ENTRY.match(bare)
        heading = _HEADING.match(bare)
        if not bare or entry or heading or (lines and indent < last_indent):
            if prose := _prose(lines):
                yield prose
            lines = []
        if _UNDERLINE.match(bare):
            lines = []
        elif bare and not heading:
            lines.append(bare[entry.end() :] if entry else bare)
            last_indent = indent


def _prose(lines: list[str]) -> str | None:
    """Return the lines joined, if they are sentences."""
    if any(map(_CODE.match, lines)):
        return None
    text = " ".join(_MARKUP.sub("", " ".join(lines)).split())
    words = text.split()
    if len(words) < 6 or not _SENTENCE.match(text) or not text.isprintable():
        return None
    return text if sum(map(bool, map(_WORD.match, words))) >= 0.8 * len(words) else None


def docstrings(source: bytes) -> Iterator[str]:
    """Yield the docstrings of a source file, without running it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # not valid for this version of Python
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            yield docstring


def package_folders() -> list[pathlib.Path]:
    names = ("stdlib", "purelib", "platlib")
    return list(dict.fromkeys(pathlib.Path(sysconfig.get_path(n)) for n in names))


def sources(roots: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """Return the source files below some folders, in a fixed random order."""
    paths = {}
    for root in roots:
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name not in _SKIPPED]
            for name in files:
                path = pathlib.Path(folder, name)
                if name.endswith(".py") and path.stat().st_size <= _MAX_SOURCE_SIZE:
                    inner = path.relative_to(root).as_posix()
                    paths[hashlib.sha256(inner.encode()).digest()] = path
    return [paths[key] for key in sorted(paths)]


def read_document(path: pathlib.Path) -> Document:
    return [p for text in docstrings(path.read_bytes()) for p in paragraphs(text)]


def documents(paths: Sequence[pathlib.Path], megabytes: float) -> Iterator[Document]:
    """Yield documents without repeated paragraphs, up to a number of characters."""
    seen, size = set(), 0
    # The main process ends the workers, which ignore Ctrl-C. A multiprocessing.Pool may
    # hang when it is left before the last result.
    ignore = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}
    pool = concurrent.futures.ProcessPoolExecutor(**ignore)
    try:
        for document in pool.map(read_document, paths, chunksize=32):
            new = [p for p in document if not (p in seen or seen.add(p))]
            if (length := num_characters([new])) >= _MIN_DOCUMENT_SIZE:
                yield new
                size += length
                if size >= megabytes * 1e6:
                    return
    finally:
        pool.shutdown(cancel_futures=True)


def num_characters(texts: Iterable[Document]) -> int:
    return sum(len(paragraph) for document in texts for paragraph in document)


def write_corpus(
    roots: Iterable[pathlib.Path], folder: pathlib.Path, megabytes: float
) -> tuple[int, int]:
    """Write the tables, `heldout.txt` and, last, `train.txt`.

    Held-out documents are whole source files, and no paragraph is repeated. Return the
    numbers of documents and of characters.
    """
    all_documents = list(documents(sources(roots), megabytes))
    held_out = all_documents[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    train = [d for n, d in enumerate(all_documents, 1) if n % HELD_OUT_EVERY]
    (folder / CLASSES).mkdir(parents=True, exist_ok=True)
    write_tables(train, held_out, folder / CLASSES)
    for texts, name in ((held_out, HELD_OUT), (train, TRAIN)):
        write_documents(folder / name, texts)
    return len(all_documents), num_characters(all_documents)


def write_documents(path: pathlib.Path, texts: Iterable[Document]) -> None:
    text = "".join("\n".join([*document, "", ""]) for document in texts)
    durable_files.write(path, text)


def write_tables(
    train: Iterable[Document], held_out: Iterable[Document], folder: pathlib.Path
) -> None:
    """Write `train.tsv`, and `test.tsv` from held-out documents.

    Every second sentence has two neighbouring words exchanged.
    """
    parts = ("train.tsv", train, NUM_TRAIN), ("test.tsv", held_out, NUM_TEST)
    for name, texts, count in parts:
        lines, rng = ["sentence\tlabel\n"], random.Random(0)
        # Unique sentences of medium length.
        split = (_SENTENCE_END.split(p) for document in texts for p in document)
        unique = dict.fromkeys(sentence for part in split for sentence in part)
        sizes = range(_MIN_WORDS, _MAX_WORDS + 1)
        sentences = [s for s in unique if len(s.split()) in sizes]
        for sentence in sentences[:: max(1, len(sentences) // count)]:
            if changed := exchange_words(sentence, rng):
                label = LABELS[len(lines) % 2]
                text = sentence if label == LABELS[0] else changed
                lines.append(f"{text}\t{label}\n")
        durable_files.write(folder / name, "".join(lines))


def exchange_words(sentence: str, rng: random.Random) -> str | None:
    """Exchange two adjacent lower-case words; return None if there are none."""
    words = sentence.split()
    plain = [word.isalpha() and word.islower() for word in words]
    pairs = enumerate(itertools.pairwise(words))
    indices = [n for n, (a, b) in pairs if plain[n] and plain[n + 1] and a != b]
    if not indices:
        return None
    n = rng.choice(indices)
    words[n : n + 2] = words[n + 1], words[n]
    return " ".join(words)
