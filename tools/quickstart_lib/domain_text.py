"""Build a domain's corpus and a table to classify, from installed packages."""

import collections
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import quickstart_text as texts

from electra_tf import durable_files

HEADER = "sentence\tlabel\n"
_PACKAGES, _PER_FILE = 10, 4
_SHARES = {"train": 0.5, "dev": 0.15, "test": 0.35}  # of the functions


class Source(NamedTuple):
    package: str
    split: str
    path: pathlib.Path


def sources() -> list[Source]:
    """Return all source files in a fixed random order: 70% train, 10% dev, 20% test."""
    found = {}
    for root in texts.package_folders():
        for path in texts.sources([root]):
            inner = path.relative_to(root)
            digest = hashlib.sha256(inner.as_posix().encode()).digest()
            share = digest[-1] / 256
            split = "train" if share < 0.7 else "dev" if share < 0.8 else "test"
            found[digest] = Source(inner.parts[0].removesuffix(".py"), split, path)
    return [found[digest] for digest in sorted(found)]


def collect(folder: pathlib.Path, functions: int, megabytes: float) -> None:
    """Write `train.txt`, `heldout.txt` and, in `functions`, the table; print sizes.

    The corpus is of training files alone. No paragraph of it is in held-out text, or in
    dev and test of the table.
    """
    files = sources()
    read = [file.path for file in files if file.split == "train"]
    train = list(texts.documents(read, megabytes))
    corpus = {paragraph for document in train for paragraph in document}
    other = [file.path for file in files if file.split != "train"]
    unread = texts.documents(other, megabytes / 20)
    held_out = [[p for p in document if p not in corpus] for document in unread]
    held_out = [document for document in held_out if document]
    for name, documents in (("train", train), ("heldout", held_out)):
        texts.write_documents(folder / f"{name}.txt", documents)
        size = texts.num_characters(documents)
        print(f"{name}: {size:,} characters of {len(documents):,} source files")
    _write_functions(folder / "functions", files, functions, corpus)


def write_table(path: pathlib.Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    durable_files.write(path, "".join((HEADER, *lines)))


def _write_functions(
    folder: pathlib.Path, files: Sequence[Source], count: int, corpus: set[str]
) -> None:
    """Write functions of the largest packages that have enough, the test split last.

    Packages whose names contain each other, as a copy's often does, are not both used.
    """
    by_package = collections.defaultdict(list)
    for file in files:
        by_package[file.package].append(file)
    quotas = {n: max(1, round(count * s / _PACKAGES)) for n, s in _SHARES.items()}
    rows: dict[str, list[str]] = {split: [] for split in quotas}
    packages: list[str] = []
    used: set[str] = set()
    for package in sorted(by_package, key=lambda name: -len(by_package[name])):
        if any(package in other or other in package for other in packages):
            continue
        found = _functions(by_package[package], quotas, corpus, used)
        if all(len(found[split]) == quota for split, quota in quotas.items()):
            packages.append(package)
            for split, lines in found.items():
                rows[split] += [f"{text}\t{package}\n" for text in lines]
        if len(packages) == _PACKAGES:
            break
    for split, lines in rows.items():
        write_table(folder / f"{split}.tsv", lines)
    sizes = ", ".join(f"{split} {len(lines):,}" for split, lines in rows.items())
    print(f"functions: {sizes}; packages: {', '.join(packages)}", flush=True)


def _functions(
    files: Sequence[Source], quotas: Mapping[str, int], corpus: set[str], used: set[str]
) -> dict[str, list[str]]:
    """Return docstrings that do not name their package; no paragraph is used twice."""
    found: dict[str, list[str]] = {split: [] for split in quotas}
    for package, split, path in files:
        room = min(_PER_FILE, quotas[split] - len(found[split]))
        source = path.read_bytes() if room else b""
        for docstring in texts.docstrings(source, texts.FUNCTIONS):
            paragraphs = list(texts.paragraphs(docstring))
            text = " ".join(paragraphs)
            is_known = not used.isdisjoint(paragraphs) or (
                split != "train" and not corpus.isdisjoint(paragraphs)
            )
            if room and text and not is_known and package not in text.casefold():
                found[split].append(text)
                used.update(paragraphs)
                room -= 1
    return found
