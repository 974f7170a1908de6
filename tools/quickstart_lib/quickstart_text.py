"""Text that lies on this machine: the docstrings of the Python installation.

`gather` writes what a model is pre-trained and measured on, and tables of sentences for
a classifier.
"""

import ast
import dataclasses
import hashlib
import multiprocessing
import os
import pathlib
import random
import re
import signal
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence

HELD_OUT_EVERY = 20  # of the documents; the others are trained on
TRAIN, HELD_OUT, CLASSES = "train.txt", "heldout.txt", "classes"
CLASS_EXAMPLES, CLASS_TESTS = 8000, 1000  # sentences at least, if there are as many
LABELS = ("as written", "exchanged")

_SKIPPED = {"site-packages", "dist-packages", "test", "tests"}
_LARGEST_SOURCE = 2_000_000  # bytes
_SHORTEST_DOCUMENT = 200  # characters
_TOPICS = ("pydoc_data", "topics.py")  # help() reads its text from there

_UNDERLINE = re.compile(r"[-=~^*#+]{3,}$")
_CODE = re.compile(r">>>|\.\.\.|```|\$ |@|#")
_ENTRY = re.compile(r"[-*•] |\d+[.)] |\*{0,2}[\w.]+(, [\w.]+)*( \([^)]*\))?: ")
_HEADING = re.compile(r"\w+:$|\*{0,2}\w+(, \*{0,2}\w+)* : ")  # "Args:", "x : array"
_MARKUP = re.compile(r":[a-z:]+:(?=`)|`+|\*\*?(?=\S)|(?<=\S)\*\*?(?=\W|$)")
_SENTENCE = re.compile(r"[A-Z].*[.!?:)]$")
_WORD = re.compile(r"[(\"']*[A-Za-z][a-z]*([-'/][A-Za-z]+)*[.,;:!?)\"']*$")


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a docstring that are English sentences, each on one line.

    Headings, tables, code and the names of parameters are left out; what is said of a
    parameter stays.
    """
    lines, deep = [], 0
    for line in [*text.expandtabs().splitlines(), ""]:
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        entry = _ENTRY.match(bare)
        heading = _HEADING.match(bare)
        if not bare or entry or heading or (lines and indent < deep):
            if prose := _prose(lines):
                yield prose
            lines = []
        if _UNDERLINE.match(bare):
            lines = []
        elif bare and not heading:
            lines.append(bare[entry.end() :] if entry else bare)
            deep = indent


def _prose(lines: list[str]) -> str | None:
    """The lines as one, if they are sentences."""
    if any(map(_CODE.match, lines)):
        return None
    told = " ".join(_MARKUP.sub("", " ".join(lines)).split())
    words = told.split()
    if len(words) < 6 or not _SENTENCE.match(told) or not told.isprintable():
        return None
    return told if sum(map(bool, map(_WORD.match, words))) >= 0.8 * len(words) else None


def strings(source: bytes, is_topics: bool = False) -> Iterator[str]:
    """The docstrings of a source file's module, classes and functions, in order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # written for another Python
    if is_topics:
        constants = (n for n in ast.walk(tree) if isinstance(n, ast.Constant))
        yield from (n.value for n in constants if isinstance(n.value, str))
    else:
        yield from _docstrings(tree)


def _docstrings(node: ast.AST) -> Iterator[str]:
    if found := ast.get_docstring(node):
        yield found
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for part in node.body:
            if isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _docstrings(part)


@dataclasses.dataclass(frozen=True)
class Document:
    """The prose of one source file."""

    paragraphs: Sequence[str]

    @property
    def size(self) -> int:
        """Characters."""
        return sum(map(len, self.paragraphs))


def installed() -> list[pathlib.Path]:
    """Return the folders of the standard library and of the installed packages."""
    names = ("stdlib", "purelib", "platlib")
    return list(dict.fromkeys(pathlib.Path(sysconfig.get_path(n)) for n in names))


def sources(roots: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """Return the source files below some folders, mixed well, always in one order."""
    found = {}
    for root in roots:
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name not in _SKIPPED]
            for name in files:
                path = pathlib.Path(folder, name)
                if name.endswith(".py"):
                    inner = path.relative_to(root).as_posix()
                    found[hashlib.sha256(inner.encode()).digest()] = path
    return [found[key] for key in sorted(found)]


def document(path: pathlib.Path) -> Document:
    """Read the prose of a source file; one too large to be written by hand has none."""
    if path.stat().st_size > _LARGEST_SOURCE:
        return Document([])
    is_topics = path.parts[-2:] == _TOPICS
    texts = strings(path.read_bytes(), is_topics)
    return Document([p for text in texts for p in paragraphs(text)])


def documents(found: Sequence[pathlib.Path], megabytes: float) -> Iterator[Document]:
    """Read documents until they hold enough characters; no paragraph comes twice."""
    seen, size = set(), 0
    with multiprocessing.Pool(initializer=_leave_interrupts) as pool:
        for read in pool.imap(document, found, chunksize=32):
            new = Document(
                [p for p in read.paragraphs if not (p in seen or seen.add(p))]
            )
            if new.size < _SHORTEST_DOCUMENT:
                continue
            yield new
            size += new.size
            if size >= megabytes * 1e6:
                return


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the process that ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def gather(
    roots: Iterable[pathlib.Path], folder: pathlib.Path, megabytes: float
) -> tuple[int, int]:
    """Write the tables, `heldout.txt` and, last, `train.txt`.

    A blank line ends a document. What is held out are whole files; no paragraph is in
    both texts, or twice in one.

    Returns:
        The numbers of documents and of characters.
    """
    every = list(documents(sources(roots), megabytes))
    held_out = every[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    train = [d for n, d in enumerate(every, 1) if n % HELD_OUT_EVERY]
    write_tables(train, held_out, folder / CLASSES)
    _write_text(held_out, folder / HELD_OUT)
    _write_text(train, folder / TRAIN)
    return len(every), sum(document.size for document in every)


def _write_text(texts: Iterable[Document], target: pathlib.Path) -> None:
    whole(target, "".join("\n".join([*d.paragraphs, "", ""]) for d in texts))


def whole(path: pathlib.Path, text: str) -> None:
    """Write a file that has its name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# ---- Sentences to classify: as written, or with two words exchanged.

_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_SHORTEST_SENTENCE, _LONGEST_SENTENCE = 8, 20  # words


def write_tables(
    train: Iterable[Document], held_out: Iterable[Document], folder: pathlib.Path
) -> None:
    """Write `train.tsv` and, from files that are held out, `test.tsv`.

    Every second sentence has two neighbouring words exchanged.
    """
    for name, documents, most in (
        ("train.tsv", train, CLASS_EXAMPLES),
        ("test.tsv", held_out, CLASS_TESTS),
    ):
        lines = ["sentence\tlabel\n"]
        draw = random.Random(0)
        found = _sentences(documents)
        for sentence in found[:: max(1, len(found) // most)]:
            if other := exchanged(sentence, draw):
                label = LABELS[len(lines) % 2]
                text = sentence if label == LABELS[0] else other
                lines.append(f"{text}\t{label}\n")
        whole(folder / name, "".join(lines))


def _sentences(documents: Iterable[Document]) -> list[str]:
    """Return sentences of medium length, none of them twice."""
    found = {
        sentence: None
        for document in documents
        for paragraph in document.paragraphs
        for sentence in _SENTENCE_END.split(paragraph)
        if _SHORTEST_SENTENCE <= len(sentence.split()) <= _LONGEST_SENTENCE
    }
    return list(found)


def exchanged(sentence: str, draw: random.Random) -> str | None:
    """Exchange two neighbouring words without signs or capitals; or return None."""
    words = sentence.split()
    plain = [word.isalpha() and word.islower() for word in words]
    places = [
        n
        for n in range(len(words) - 1)
        if plain[n] and plain[n + 1] and words[n] != words[n + 1]
    ]
    if not places:
        return None
    n = draw.choice(places)
    words[n : n + 2] = words[n + 1], words[n]
    return " ".join(words)
