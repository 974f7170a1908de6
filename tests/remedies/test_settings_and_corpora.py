"""Remedies of errors about configs, flags and corpora."""

import gzip

from electra_tf.config.loader import load_config
from remedies.bench import (
    RECORDS,
    VOCAB,
    read_corpus,
    remedy_test,
)

TEXT = "the first of the texts\n\nand the second\n"


def _extends(b, *pairs):
    """Return calls that read a.yaml, each after writing both files."""
    return [
        lambda pair=pair: (
            b.file("b.yaml", pair[1]),
            load_config(str(b.file("a.yaml", pair[0]))),
        )
        for pair in pairs
    ]


SETTINGS = {
    "a cycle of extends": lambda b: _extends(
        b,
        ("extends: b.yaml", "extends: a.yaml"),
        ("training: {}", "extends: a.yaml"),
        ("extends: b.yaml", "training: {}"),
    ),
    "extends with a list": lambda b: _extends(
        b, ("extends: [b.yaml]", ""), ("extends: b.yaml", ""), ("extends: tiny", "")
    ),
}


CORPORA = {
    "JSON lines of plain text": lambda b: [
        lambda name=name: read_corpus(str(b.file(name, TEXT)))
        for name in ("a.jsonl", "a.txt")
    ],
    "a table of other columns": lambda b: [
        lambda field=field: read_corpus(
            str(b.file("a.csv", "title,body\nthe,first\n")), field=field
        )
        for field in ("text", "body")
    ],
    "a file that is compressed without a suffix": lambda b: [
        lambda: read_corpus(str(b.file("a.txt", gzip.compress(TEXT.encode())))),
        lambda: read_corpus(str(b.file("b.txt", TEXT))),
    ],
    "a folder": lambda b: (
        lambda: read_corpus(str(b.file("corpus/x/a.txt", TEXT).parent.parent)),
        lambda: read_corpus(str(b.path("corpus/**/*.txt"))),
        lambda: read_corpus(str(b.path("corpus/x/*.txt"))),
    ),
    "an empty file": lambda b: (
        lambda: read_corpus(str(b.file("c/empty.txt", "").parent / "*.txt")),
        lambda: (
            b.file("c/a.txt", TEXT),
            b.path("c/empty.txt").unlink(),
            read_corpus(str(b.path("c/*.txt"))),
        ),
    ),
    "a size below the alphabet": lambda b: b.running(
        "build_vocab", *_sizes(b, "--size=10", "--size=60")
    ),
    "an existing vocabulary": lambda b: b.running(
        "build_vocab",
        [f"--input={b.file('b.txt', TEXT)}", f"--output={b.file('v.txt', '')}"],
        [f"--input={b.path('b.txt')}", f"--output={b.path('v.txt')}", "--overwrite"],
        [f"--input={b.path('b.txt')}", f"--output={b.path('w.txt')}"],
    ),
    "a folder with other files": lambda b: b.running(
        "build_records",
        _records(b, b.file("out/note.txt", "").parent),
        _records(b, b.path("new")),
    ),
    "existing records": lambda b: b.running(
        "build_records",
        _records(b, b.copy(RECORDS, "out")),
        [*_records(b, b.path("out")), "--overwrite"],
        _records(b, b.path("new")),
    ),
    "options of Beam without it": lambda b: b.running(
        "build_records",
        [*_records(b, b.path("out")), "--beam_options=--x"],
        _records(b, b.path("out")),
    ),
    "an unknown flag": lambda b: b.running(
        "build_records",
        [*_records(b, b.path("out")), "--max_lenght=32"],
        [*_records(b, b.path("out")), "--max_length=32"],
        ["--help"],
    ),
}


def _sizes(b, *flags):
    text = b.file("b.txt", TEXT * 50)
    return [
        [f"--input={text}", f"--output={b.path(f'{flag}.txt')}", flag] for flag in flags
    ]


def _records(b, output):
    text = b.file("text.txt", TEXT)
    flags = [f"--input={text}", f"--output={output}", "--shards=1", "--workers=1"]
    return [*flags, f"--vocab={VOCAB}"]


test_a_remedy_works = remedy_test(settings=SETTINGS, corpora=CORPORA)
