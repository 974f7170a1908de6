"""The command: input and output as files and as standard streams."""

import pytest

from electra_tf.tasks.classifier import TextClassifier
from tests import tiny
from tests.conftest import failure


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    TextClassifier(tiny.start(128), ["bad", "good"]).save(folder / "model.keras")
    return folder


def test_each_line_gets_a_label(here, model, tmp_path):
    text = "the file\nthe user can change the file\n\n"
    piped = here("predict", f"--model={model}", input=text)
    assert piped.returncode == 0, piped.stderr
    assert len(piped.stdout.splitlines()) == 3
    assert set(piped.stdout.splitlines()) <= {"bad", "good"}
    (tmp_path / "in.txt").write_text(text)
    output = tmp_path / "out.txt"
    filed = here(
        "predict",
        f"--model={model}",
        f"--input={tmp_path}/in.txt",
        f"--output={output}",
    )
    assert filed.returncode == 0, filed.stderr
    assert output.read_text() == piped.stdout


def test_a_flag_decides_about_missing_texts(here, model, tmp_path):
    (tmp_path / "a.csv").write_text("text\nthe file\nNaN\n")
    command = "predict", f"--model={model}", f"--input={tmp_path}/a.csv"
    assert "--missing_text" in failure(here(*command))
    for rule, count in (("skip", 1), ("keep", 2)):
        predicted = here(*command, f"--missing_text={rule}")
        assert len(predicted.stdout.splitlines()) == count, predicted.stderr


def test_invalid_input_is_an_error(here, model, tmp_path):
    assert "--model" in failure(here("predict"))
    message = failure(here("predict", f"--model={tmp_path}", input="a\n"))
    assert "a folder of another kind" in message
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    # The same bytes.
    message = failure(here("predict", f"--model={model}", input="caf\udce9\n"))
    assert "standard input" in message
    assert "UTF-8" in message
    output = tmp_path / "out"
    given = [f"--input={tmp_path}/latin", f"--output={output}"]
    assert "/latin:1: " in failure(here("predict", f"--model={model}", *given))
    given[1] = f"--output={tmp_path}/latin"
    message = failure(here("predict", f"--model={model}", *given))
    assert "--output must be no input" in message
    message = failure(here("predict", f"--model={model}", "--input=reviews.csv.gz"))
    assert "reviews.csv.gz" in message
    # No partial file is left.
    assert {path.name for path in tmp_path.iterdir()} == {"latin"}


def test_an_output_file_is_replaced_only_with_overwrite(here, model, tmp_path):
    output = tmp_path / "out.txt"
    output.write_text("old")
    # The output is checked before the model.
    message = failure(here("predict", "--model=none", f"--output={output}"))
    assert "--overwrite" in message
    assert output.read_text() == "old"
    (tmp_path / "new.csv").write_text("id,text\n5,the file\n")
    given = [f"--model={model}", f"--input={tmp_path}/new.csv", f"--output={output}"]
    done = here("predict", *given, "--overwrite", "--text_columns=text")
    assert done.returncode == 0, done.stderr
    assert output.read_text() in {"5\tbad\n", "5\tgood\n"}
