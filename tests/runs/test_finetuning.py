"""Published settings of each task, and a run of all GLUE tasks."""

import dataclasses
from unittest import mock

import pytest
import tensorflow as tf

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.runs import finetuning
from electra_tf.sources import PretrainedEncoder
from electra_tf.text.tokenizer import WordPieceTokenizer
from tests.conftest import ROOT

SHAPE = EncoderConfig(
    depth=1, width=8, embedding=8, heads=1, feed_forward=16, vocabulary_size=1000,
    max_positions=64, segments=2, dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def settings(*sets, config=None):
    path = config and str(ROOT / f"configs/{config}.yaml")
    return lambda base: loader.load_config(path, sets, base=base, root=FinetuningConfig)


def write_glue(folder):
    """Write CoLA with 24 rows of train, 8 of dev and a complete test set."""
    task_folder = folder / "CoLA"
    task_folder.mkdir(parents=True)
    for name, rows in (("train", 24), ("dev", 8)):
        text = "".join(f"x\t{n % 2}\t\tthe file {n}\n" for n in range(rows))
        (task_folder / f"{name}.tsv").write_text(text)
    rows = "".join(f"{n}\tthe user {n}\n" for n in range(1063))
    (task_folder / "test.tsv").write_text("index\tsentence\n" + rows)
    return str(folder)


@pytest.fixture(scope="module")
def pretrained(vocabulary):
    tokenizer = WordPieceTokenizer(vocabulary)
    return PretrainedEncoder(SHAPE, tokenizer, None, "a test", "its identity")


@pytest.fixture
def run(pretrained, tmp_path, monkeypatch):
    """Return a function that fine-tunes an encoder with other attributes."""

    def of(name, data="", trials=1, config=None, sets=(), report=None, **changes):
        source = mock.Mock(encoder=dataclasses.replace(pretrained, **changes))
        monkeypatch.setattr(finetuning.sources, "open_source", lambda *_: source)
        make, output = settings(*sets, config=config), str(tmp_path / "out")
        devices = tf.distribute.get_strategy()
        finetuning.run_finetuning(name, data, "", output, trials, make, devices, report)

    return of


def task_config(name, pretrained, *sets, config=None, **shape):
    """Return the config of a task for a published encoder, with `sets`."""
    shape = {"depth": 12, "width": 256} | shape
    pretrained = dataclasses.replace(
        pretrained, shape=dataclasses.replace(SHAPE, **shape), weights={"x": None}
    )
    configs = []

    def resolve(base):
        configs.append(settings(*sets, config=config)(base))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        finetuning.run_task(name, "", pretrained, "", 1, resolve, None)
    return configs[0]


@pytest.mark.parametrize(
    ("name", "epochs", "length"),
    [
        ("cola", 3, 128),
        ("rte", 10, 128),
        ("stsb", 10, 128),
        ("mnli", 3, 128),
        ("squad1", 2, 512),
        ("squad2", 2, 512),
        ("chunking", 3, 256),
    ],
)
def test_each_task_has_its_published_settings(pretrained, name, epochs, length):
    config = task_config(name, pretrained, max_positions=512)
    assert (config.training.epochs, config.data.max_length) == (epochs, length)
    assert task_config(name, pretrained).data.max_length == 64  # of the encoder
    config = task_config(name, pretrained, "training.epochs=4", "data.max_length=16")
    assert (config.training.epochs, config.data.max_length) == (4, 16)
    small = task_config(name, pretrained, max_positions=512, depth=4)
    assert (small.training.epochs, small.data.max_length) == (None, length)


def test_the_command_doubles_the_rate_of_small_taggers_alone(pretrained):
    def rate(name, depth):
        config = task_config(name, pretrained, max_positions=512, depth=depth)
        return config.optimizer.learning_rate

    assert rate("chunking", 4) == 2 * rate("cola", 4)
    assert rate("chunking", 12) == rate("cola", 12)


@pytest.mark.parametrize(
    ("size", "rates"),
    [("small", (3e-4, 0.8)), ("base", (1e-4, 0.8)), ("large", (5e-5, 0.9))],
)
def test_configs_of_all_sizes_keep_published_task_settings(size, rates, pretrained):
    config = task_config("rte", pretrained, config=f"finetune_{size}")
    assert config.training.epochs == 10
    optimizer = config.optimizer
    assert (optimizer.learning_rate, optimizer.layer_decay) == rates


@pytest.mark.parametrize(("length", "warns"), [(48, True), (None, False)])
def test_texts_longer_than_the_records_of_pretraining_give_a_warning(
    run, capsys, tmp_path, length, warns
):
    sets = () if length is None else (f"data.max_length={length}",)
    with pytest.raises(InputError, match="nowhere"):  # read after the warning
        run("cola", str(tmp_path / "nowhere"), sets=sets, trained_length=32)
    assert ("pre-train with longer records" in capsys.readouterr().out) == warns


def test_glue_writes_a_table_and_a_submission(run, tmp_path, capsys):
    data = write_glue(tmp_path / "glue")
    sets = ("training.epochs=1", "training.batch_size=8", "data.max_length=16")
    run("glue", data, 2, sets=sets)
    printed = capsys.readouterr().out
    assert "cola; without: sst2, mrpc" in printed
    assert "cola trial 2 of 2 (seed 1): dev_mcc" in printed
    assert "mean of 1 medians, without wnli" in printed
    line = next(line for line in printed.splitlines() if "one label for all" in line)
    assert "SST-2" in line
    assert "CoLA" not in line
    assert (tmp_path / "out" / "submission.zip").exists()
    # A second run trains nothing and prints the same summary.
    report = tmp_path / "report.html"
    run("glue", data, 2, sets=sets, report=str(report))
    assert "cola: trial " in report.read_text()
    again = capsys.readouterr().out
    assert "epoch 1" not in again
    begin = printed.index("cola dev, trial ")
    assert again[again.index("cola dev, trial ") :] == printed[begin:]


def test_incomplete_data_is_an_error_before_training(run, tmp_path):
    with pytest.raises(InputError, match=r"--data.*GLUE"):
        run("glue", str(tmp_path))
    folder = write_glue(tmp_path / "glue")
    (tmp_path / "glue" / "CoLA" / "test.tsv").write_text("index\tsentence\n0\ta\n")
    with pytest.raises(InputError, match=r"CoLA.*1063 rows, not 1"):
        run("glue", folder)
