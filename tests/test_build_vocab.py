"""The command `build_vocab`, run on files."""

import json

import pytest

from electra_tf.text.tokenizer import settings_path
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary
from tests.conftest import failure, flags, full_disk

TEXT = "The quick brown fox, the lazy dog. Números y café para todos.\n" * 50


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def arguments(text, output, /, **changes):
    return flags(**{"input": text, "output": output, "size": 90, **changes})


def test_a_vocabulary_is_trained_and_reported(command, text, tmp_path):
    output = tmp_path / "new" / "vocab.txt"
    (tmp_path / "held.txt").write_text("the fox 中文")
    given = arguments(text, output, heldout=tmp_path / "held.txt")
    result = command("build_vocab", *given, "--nolower_case")
    assert result.returncode == 0, result.stderr
    vocabulary = Vocabulary.read(output)
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert "T" in vocabulary.ids
    assert "ú" in "".join(vocabulary.tokens)  # cased text keeps its accents
    assert f"{len(vocabulary)} entries of 90 requested" in result.stdout
    assert "held-out text: 4 words" in result.stdout
    assert "warning: " in result.stderr
    assert "of the tokens are [UNK]" in result.stderr
    for word in ("absl", "I0000", "W0000", "tensorflow", "cuda", "Warning"):
        assert word not in result.stdout + result.stderr
    settings = json.loads(settings_path(output).read_text())
    assert settings["lower_case"] is False
    assert settings["vocabulary_sha256"] == vocabulary.sha256


# Changes of the flags, and words of the message; {p} is the folder.
BAD = {
    "existing": ({}, "vocab.txt' exists"),
    "size": ({"size": 9, "overwrite": True}, "--size=9"),
    "below": ({"output": "{p}/text.txt/v", "overwrite": True}, "--output"),
    "folder": ({"output": "{p}", "overwrite": True}, "--output"),
    "settings": ({"output": "{p}/a"}, "a.settings.json"),
    "problems": ({"output": "{p}/b"}, "b.problems.txt"),
    "empty": ({"input": "{p}/blank", "output": "{p}/v"}, "blank: empty file"),
    "held-out": (
        {"heldout": "{p}/bad.txt", "output": "{p}/v"}, "bad.txt:1: invalid UTF-8"
    ),
    "no held-out": ({"heldout": "{p}/gone", "output": "{p}/v"}, "gone"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_changes_no_file(here, text, tmp_path, name):
    changes, words = BAD[name]
    for file in ("vocab.txt", "a.settings.json", "b.problems.txt"):
        (tmp_path / file).write_text("mine")
    (tmp_path / "blank").write_text("\n\n")
    (tmp_path / "bad.txt").write_bytes(b"not \xff fine\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    changes = {n: str(value).format(p=tmp_path) for n, value in changes.items()}
    result = here("build_vocab", *arguments(text, tmp_path / "vocab.txt", **changes))
    assert words in failure(result)
    # Held-out text is read before the words are counted.
    assert ("words, " in result.stdout) == (name == "size")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_leaves_existing_files(here, text, tmp_path):
    given = arguments(text, tmp_path / "vocab.txt")
    assert here("build_vocab", *given).returncode == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with full_disk(100):
        full = here("build_vocab", *given, "--overwrite")
    assert "File too large" in failure(full)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_bad_text_is_listed_on_request(here, text, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"not \xff fine\n")
    problems, given = tmp_path / "v.problems.txt", arguments(text, tmp_path / "v")
    more = f"--heldout={tmp_path / 'bad.txt'}", "--on_error=report"
    result = here("build_vocab", *given, *more)
    assert result.returncode == 0, result.stderr
    assert "1 x invalid UTF-8: listed in" in result.stdout
    assert problems.exists()
    assert here("build_vocab", *given, "--overwrite").returncode == 0
    assert not problems.exists()
