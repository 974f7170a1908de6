"""The command `build_vocab`, run on files."""

import json
import resource
import signal

import pytest
from conftest import failure

from electra_tf.text.tokenizer import settings_path
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

TEXT = "The quick brown fox, the lazy dog. Números y café para todos.\n" * 50


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_vocabulary_is_trained_and_reported(command, text, tmp_path):
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
    assert f"{len(vocabulary)} entries of 90 requested" in result.stdout
    assert "held-out text: 3 words" in result.stdout
    assert "[UNK]" in result.stdout
    settings = json.loads(settings_path(output).read_text())
    assert settings["lower_case"] is False
    assert settings["vocabulary_sha256"] == vocabulary.sha256


def test_invalid_flags_and_input_are_errors(here, text, tmp_path):
    output = tmp_path / "vocab.txt"
    output.write_text("mine")
    existing = here("build_vocab", f"--input={text}", f"--output={output}")
    assert f"{output}, which exists" in failure(existing)
    assert output.read_text() == "mine"

    small = here(
        "build_vocab",
        f"--input={text}",
        f"--output={output}",
        "--overwrite",
        "--size=9",
    )
    assert "--size=9" in failure(small)
    assert output.read_text() == "mine"

    # Files that the command writes to the same folder are not replaced either.
    for name in ("vocab.txt.settings.json", "vocab.txt.problems.txt"):
        output.unlink(missing_ok=True)
        (tmp_path / name).write_text("mine")
        result = here("build_vocab", f"--input={text}", f"--output={output}")
        assert name in failure(result)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()

    for path in (text / "below.txt", tmp_path):
        result = here(
            "build_vocab", f"--input={text}", f"--output={path}", "--overwrite"
        )
        assert "another --output" in failure(result)

    blank = tmp_path / "blank.txt"
    blank.write_text("\n\n")
    empty = here("build_vocab", f"--input={blank}", f"--output={tmp_path / 'v.txt'}")
    assert "blank.txt: empty file" in failure(empty)
    assert not (tmp_path / "v.txt").exists()


def test_a_full_disk_leaves_existing_files(command, text, tmp_path):
    output = tmp_path / "vocab.txt"
    arguments = [f"--input={text}", f"--output={output}", "--size=90"]
    assert command("build_vocab", *arguments).returncode == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def limit_file_size():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    full = command("build_vocab", *arguments, "--overwrite", preexec_fn=limit_file_size)
    assert "File too large" in failure(full)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_bad_heldout_text_stops_before_anything_is_written(command, text, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"not \xff fine\n")
    output = tmp_path / "vocab.txt"
    result = command(
        "build_vocab",
        f"--input={text}",
        f"--output={output}",
        f"--heldout={bad}",
        "--size=90",
    )
    assert "bad.txt:1: invalid UTF-8" in failure(result)
    assert not output.exists()
    report = command(
        "build_vocab",
        f"--input={text}",
        f"--output={output}",
        f"--heldout={bad}",
        "--size=90",
        "--on_error=report",
    )
    assert report.returncode == 0, report.stderr
    assert "1 x invalid UTF-8: listed in" in report.stdout
    assert (tmp_path / "vocab.txt.problems.txt").exists()
    clean = command(
        "build_vocab",
        f"--input={text}",
        f"--output={output}",
        "--size=90",
        "--overwrite",
    )
    assert clean.returncode == 0, clean.stderr
    assert not (tmp_path / "vocab.txt.problems.txt").exists()


def test_accent_stripping_of_other_scripts_needs_a_flag(here, tmp_path):
    (tmp_path / "hi.txt").write_text("हिन्दी भारत\n" * 20, encoding="utf-8")
    flags = (f"--input={tmp_path / 'hi.txt'}", f"--output={tmp_path / 'v.txt'}")
    message = failure(here("build_vocab", *flags, "--size=60"))
    for word in ("'हिन्दी' (6 characters) -> 'हिनदी' (5)", "--strip_accents=never"):
        assert word in message
    assert not (tmp_path / "v.txt").exists()
    result = here("build_vocab", *flags, "--size=60", "--strip_accents=lowered")
    assert result.returncode == 0, result.stderr
    assert "--strip_accents=never" in result.stdout
    unstripped = here(
        "build_vocab", *flags, "--size=60", "--strip_accents=never", "--overwrite"
    )
    assert unstripped.returncode == 0, unstripped.stderr
    assert "stripping accents" not in unstripped.stdout
    assert "ह" in Vocabulary.read(tmp_path / "v.txt").ids


def test_many_unknown_tokens_of_held_out_text_cause_a_warning(here, text, tmp_path):
    (tmp_path / "held.txt").write_text("中文 the fox", encoding="utf-8")
    result = here(
        "build_vocab",
        f"--input={text}",
        f"--output={tmp_path / 'v.txt'}",
        "--size=90",
        f"--heldout={tmp_path / 'held.txt'}",
    )
    assert result.returncode == 0, result.stderr
    assert "warning: " in result.stderr
    assert "of the tokens are [UNK]" in result.stderr
