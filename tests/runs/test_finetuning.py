"""From a task's name to its reader and its published settings; all of GLUE at once."""

import pytest
from conftest import ROOT

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.runs import finetuning
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.text.tokenizer import Tokenizer

SHAPE = EncoderConfig(
    depth=1, width=8, embedding=8, heads=1, feed_forward=16, vocabulary_size=1000,
    max_positions=64, segments=2, dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def settings(*sets):
    return lambda base: loader.load_config(None, sets, base=base, root=FinetuningConfig)


def glue(folder):
    """CoLA with 24 rows to learn from, 8 to measure on and a whole test set."""
    place = folder / "CoLA"
    place.mkdir(parents=True)
    for name, rows in (("train", 24), ("dev", 8)):
        text = "".join(f"x\t{n % 2}\t\tthe file {n}\n" for n in range(rows))
        (place / f"{name}.tsv").write_text(text)
    rows = "".join(f"{n}\tthe user {n}\n" for n in range(1063))
    (place / "test.tsv").write_text("index\tsentence\n" + rows)
    return str(folder)


@pytest.fixture(scope="module")
def start(vocabulary):
    return PretrainedEncoder(
        SHAPE, Tokenizer(vocabulary), None, "a test", "its identity"
    )


def published(name, start, *sets):
    """The settings a task is run with."""
    seen = []

    def resolve(base):
        seen.append(settings(*sets)(base))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        finetuning.run_task(name, "", start, "", 1, resolve, None)
    return seen[0]


def test_a_task_has_its_published_settings(vocabulary):
    long = EncoderConfig(**{**vars(SHAPE), "max_positions": 512})
    start = PretrainedEncoder(long, Tokenizer(vocabulary), None, "a test")
    epochs = {
        name: published(name, start).training.epochs
        for name in ("cola", "rte", "stsb", "mnli", "squad1", "squad2", "chunking")
    }
    assert epochs == {
        "cola": 3, "rte": 10, "stsb": 10, "mnli": 3, "squad1": 2, "squad2": 2,
        "chunking": 3,
    }  # fmt: skip
    lengths = [
        published(name, start).data.max_length
        for name in ("cola", "squad2", "chunking")
    ]
    assert lengths == [128, 512, 256]
    changed = published("rte", start, "training.epochs=4", "data.max_length=16")
    assert (changed.training.epochs, changed.data.max_length) == (4, 16)


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_a_size_changes_nothing_of_what_is_published_for_a_task(size, start):
    seen = []

    def resolve(base):
        path = str(ROOT / f"configs/finetune_{size}.yaml")
        seen.append(loader.load_config(path, base=base, root=FinetuningConfig))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        finetuning.run_task("rte", "", start, "", 1, resolve, None)
    assert seen[0].training.epochs == 10
    rates = {"small": (3e-4, 0.8), "base": (1e-4, 0.8), "large": (5e-5, 0.9)}
    optimizer = seen[0].optimizer
    assert (optimizer.learning_rate, optimizer.layer_decay) == rates[size]


def test_a_cut_test_set_is_told_before_anything_is_trained(
    start, tmp_path, monkeypatch
):
    monkeypatch.setattr(PretrainedEncoder, "open", lambda path: start)
    folder = glue(tmp_path / "glue")
    test = tmp_path / "glue" / "CoLA" / "test.tsv"
    test.write_text("index\tsentence\n0\ta\n")
    output = str(tmp_path / "out")
    with pytest.raises(InputError, match=r"CoLA has 1063 rows.*with 1"):
        finetuning.run_finetuning("glue", folder, "", output, 1, settings(), None)


def test_an_encoder_with_few_positions_gets_no_more_of_them(start):
    assert published("squad2", start).data.max_length == 64


def test_all_of_glue_gives_a_table_and_a_zip(start, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(PretrainedEncoder, "open", lambda path: start)
    finetuning.run_finetuning(
        "glue",
        glue(tmp_path / "glue"),
        "a checkpoint",
        str(tmp_path / "out"),
        2,
        settings("training.epochs=1", "training.batch_size=8", "data.max_length=16"),
        finetuning.tf.distribute.get_strategy(),
    )
    said = capsys.readouterr().out
    assert "with data: cola; without: sst2, mrpc" in said
    assert "cola trial 2 of 2 (seed 1): dev_mcc" in said
    assert "mean of 1 medians, without wnli" in said
    line = next(line for line in said.splitlines() if "one answer for all" in line)
    assert "SST-2" in line
    assert "CoLA" not in line
    assert (tmp_path / "out" / "submission.zip").exists()
    # A second time there is nothing left to do, and the same is said of it.
    finetuning.run_finetuning(
        "glue",
        str(tmp_path / "glue"),
        "a checkpoint",
        str(tmp_path / "out"),
        2,
        settings("training.epochs=1", "training.batch_size=8", "data.max_length=16"),
        finetuning.tf.distribute.get_strategy(),
    )
    again = capsys.readouterr().out
    assert "trial" not in again.split("cola dev_mcc")[0]
    assert again.splitlines()[-4:] == said.splitlines()[-4:]


def test_a_folder_without_glue_is_told(start, tmp_path, monkeypatch):
    monkeypatch.setattr(PretrainedEncoder, "open", lambda path: start)
    output = str(tmp_path / "out")
    with pytest.raises(InputError, match="one of GLUE's tasks, with train and dev"):
        finetuning.run_finetuning(
            "glue", str(tmp_path), "", output, 1, settings(), None
        )
