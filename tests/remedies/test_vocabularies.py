"""Remedies of errors and warnings about vocabularies and tokenizer files."""

import json
import shutil

from text.test_tokenizer_files import WORDS, write_fast

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.tokenizer_files import Tokenizer, open_tokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary
from electra_tf.text.warnings import entry_warnings
from remedies.bench import RECORDS, VOCAB, remedy_test

ENTRIES = VOCAB.read_text().splitlines()


def _vocabularies(*entries):
    texts = ["".join(f"{entry}\n" for entry in one) for one in entries]
    return lambda b: b.reading(Vocabulary.read, "vocab.txt", *texts)


def _fast(bad, good):
    """Return calls that open a tokenizer.json with each change."""

    def case(b):
        def read(change):
            path, _ = write_fast(b.path("fast"))
            document = json.loads(path.read_text())
            change(document)
            path.write_text(json.dumps(document))
            open_tokenizer(path.parent)

        return [lambda change=change: read(change) for change in (bad, good)]

    return case


def _added(single_word):
    token = {"id": len(WORDS), "content": "[USER]", "special": False, "lstrip": False}
    token |= {"rstrip": False, "normalized": False, "single_word": single_word}
    return lambda document: document["added_tokens"].append(token)


def _limit(document, limit=10**6):
    document["model"]["max_input_chars_per_word"] = limit


def _check(vocabulary, **settings):
    """Raise an error if there is a warning."""
    tokenizer = Tokenizer(Vocabulary.read(vocabulary), TokenizationConfig(**settings))
    if lines := entry_warnings(tokenizer):
        raise InputError("there must be no warning", lines[0], "")


def _stored(b):
    """Copy a vocabulary with the settings that `build_vocab` stored."""
    for name in ("vocab.txt", "vocab.txt.settings.json"):
        shutil.copy(RECORDS / name, b.path(name))
    return b.path("vocab.txt")


CASED = [*SPECIAL_TOKENS, *(f"Word{n}" for n in range(9))]
UNUSED = [*ENTRIES, "[unused1]"]
VOCABULARIES = {
    "a blank line": _vocabularies(
        [*UNUSED, "", "last"], [*UNUSED, "[unused2]", "last"], [*UNUSED, "last"]
    ),
    "a repeated entry": _vocabularies([*UNUSED, "the"], [*UNUSED, "[unused2]"], UNUSED),
    "[PAD] on the last line": _vocabularies([*ENTRIES[1:], ENTRIES[0]], ENTRIES),
    "a tokenizer.json as a vocabulary": lambda b: [
        lambda: Vocabulary.read(write_fast(b.path("fast"))[0]),
        lambda: Tokenizer.read(b.path("fast/tokenizer.json")),
    ],
    "a folder without a vocabulary": lambda b: [
        lambda: open_tokenizer(b.folder),
        lambda: (shutil.copy(VOCAB, b.path("vocab.txt")), open_tokenizer(b.folder)),
        lambda: open_tokenizer(VOCAB),
    ],
    "damaged settings": lambda b: [
        lambda: (
            _stored(b),
            b.file("vocab.txt.settings.json", "{}"),
            open_tokenizer(b.path("vocab.txt")),
        ),
        lambda: (
            b.path("vocab.txt.settings.json").unlink(),
            open_tokenizer(b.path("vocab.txt")),
        ),
    ],
    "settings of another vocabulary": lambda b: [
        lambda: (
            _stored(b).write_text("\n".join(UNUSED)),
            open_tokenizer(b.path("vocab.txt")),
        ),
        lambda: (
            shutil.copy(RECORDS / "vocab.txt", b.path("vocab.txt")),
            open_tokenizer(b.path("vocab.txt")),
        ),
        lambda: (
            b.path("vocab.txt.settings.json").unlink(),
            open_tokenizer(b.path("vocab.txt")),
        ),
    ],
    "a flag against the stored settings": lambda b: b.running(
        "build_records",
        *(
            [
                f"--input={b.file('a.txt', 'the first of all')}",
                f"--vocab={_stored(b)}",
                f"--output={b.path('out')}",
                *flags,
            ]
            for flags in (["--nolower_case"], [])
        ),
    ),
    "a kept entry that is not there": lambda b: [
        lambda: _keep(ENTRIES),
        lambda: _keep([*ENTRIES, "[USER]"]),
        lambda: _keep(ENTRIES, ()),
    ],
    "a kept entry with a space": lambda b: b.running(
        "build_vocab",
        *(
            [
                f"--input={b.file('a.txt', 'the [USER] of all')}",
                f"--output={b.path('vocab.txt')}",
                f"--keep_whole={names}",
            ]
            for names in ("[USER],[A B]", "[USER]")
        ),
    ),
    "a kept special token": lambda b: [
        lambda names=names: _keep([*ENTRIES, "[USER]"], names)
        for names in (("[USER]", "[MASK]"), ("[USER]",))
    ],
    "a cased vocabulary that is lower-cased": lambda b: [
        lambda: _check(b.file("vocab.txt", "\n".join(CASED))),
        lambda: _check(b.path("vocab.txt"), lower_case=False),
        lambda: (
            b.file("tokenizer_config.json", {"do_lower_case": False}),
            _check(
                b.path("vocab.txt"),
                lower_case=open_tokenizer(b.path("vocab.txt")).settings.lower_case,
            ),
        ),
    ],
    "an added token for single words": _fast(_added(True), _added(False)),
    "a limit that is too high": _fast(_limit, lambda document: _limit(document, 1000)),
    "other entries in vocab.txt": lambda b: [
        lambda: (
            write_fast(b.path("fast")),
            b.file("fast/vocab.txt", "\n".join([*WORDS[:-1], "other"])),
            open_tokenizer(b.path("fast")),
        ),
        lambda: (
            b.path("fast/vocab.txt").rename(b.path("vocab.txt")),
            open_tokenizer(b.path("fast")),
        ),
        lambda: (
            b.path("vocab.txt").rename(b.path("fast/vocab.txt")),
            b.path("fast/tokenizer.json").unlink(),
            open_tokenizer(b.path("fast")),
        ),
    ],
    "a contradiction to tokenizer.json": lambda b: [
        lambda config=config: (
            write_fast(b.path("fast")),
            b.file("fast/tokenizer_config.json", config),
            open_tokenizer(b.path("fast")),
        )
        for config in ({"do_lower_case": True}, {"do_lower_case": False}, {})
    ],
    "a generic class without tokenizer.json": lambda b: [
        lambda: (
            shutil.copy(VOCAB, b.path("vocab.txt")),
            b.file(
                "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"}
            ),
            open_tokenizer(b.path("vocab.txt")),
        ),
        lambda: (
            write_fast(b.path("fast")),
            b.path("vocab.txt").unlink(),
            shutil.copy(b.path("fast/tokenizer.json"), b.folder),
            open_tokenizer(b.folder),
        ),
    ],
    "text of which accents are letters": lambda b: b.running(
        "build_vocab",
        *(
            [
                f"--input={b.file('a.txt', 'की किताब में नहीं है ' * 99)}",
                f"--output={b.path(f'v{number}.txt')}",
                *flags,
            ]
            for number, flags in enumerate(
                ([], ["--strip_accents=never"], ["--strip_accents=lowered"])
            )
        ),
    ),
}


def _keep(entries, names=("[USER]",)):
    vocabulary = Vocabulary(tuple(entries), "vocab.txt")
    tokenizer = Tokenizer(vocabulary, TokenizationConfig(keep_whole=names))
    tokenizer.encode("the [USER]")


test_a_remedy_works = remedy_test(vocabularies=VOCABULARIES)
