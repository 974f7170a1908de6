"""The real command, on real files."""

import json

import pytest
from conftest import failure

from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

TEXT = "The quick brown fox, the lazy dog. Números y café para todos.\n" * 50


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_vocabulary_is_learnt_and_reported(command, text, tmp_path):
    output = tmp_path / "new" / "vocab.txt"
    (tmp_path / "held.txt").write_text("the fox 中")
    result = command(
        "build_vocab",
        f"--input={text}",
        f"--output={output}",
        "--size=90",
        f"--heldout={tmp_path / 'held.txt'}",
        "--nolower_case",
    )
    assert result.returncode == 0, result.stderr
    vocabulary = Vocabulary.read(output)
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert "T" in vocabulary.ids
    assert "ú" in "".join(vocabulary.tokens)  # cased text keeps its accents
    assert f"{len(vocabulary)} entries" in result.stdout
    assert "held-out text: 3 words" in result.stdout
    assert "[UNK]" in result.stdout
    settings = json.loads(output.with_suffix(".settings.json").read_text())
    assert settings["lower_case"] is False
    assert settings["vocabulary_sha256"] == vocabulary.sha256


def test_mistakes_are_told(command, text, tmp_path):
    output = tmp_path / "vocab.txt"
    output.write_text("mine")
    existing = command("build_vocab", f"--input={text}", f"--output={output}")
    assert "replaced only on request" in failure(existing)
    assert output.read_text() == "mine"

    small = command(
        "build_vocab",
        f"--input={text}",
        f"--output={output}",
        "--overwrite",
        "--size=9",
    )
    assert "Raise --size or lower --character_coverage" in failure(small)
    assert output.read_text() == "mine"

    blank = tmp_path / "blank.txt"
    blank.write_text("\n\n")
    empty = command("build_vocab", f"--input={blank}", f"--output={tmp_path / 'v.txt'}")
    assert "blank.txt: empty file" in failure(empty)
    assert not (tmp_path / "v.txt").exists()
