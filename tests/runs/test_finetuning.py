"""Published settings of each task, and a run of all GLUE tasks."""

import dataclasses

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
    return PretrainedEncoder(
        SHAPE, Tokenizer(vocabulary), None, "a test", "its identity"
    )


def task_config(name, pretrained, *sets):
    """Return the config of a task, with published settings and `sets`."""
    configs = []

    def resolve(base):
        configs.append(settings(*sets)(base))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        finetuning.run_task(name, "", pretrained, "", 1, resolve, None)
    return configs[0]


def test_each_task_has_its_published_settings(vocabulary):
    shape = EncoderConfig(**{**vars(SHAPE), "max_positions": 512})
    pretrained = PretrainedEncoder(shape, Tokenizer(vocabulary), None, "a test")
    epochs = {
        name: task_config(name, pretrained).training.epochs
        for name in ("cola", "rte", "stsb", "mnli", "squad1", "squad2", "chunking")
    }
    assert epochs == {
        "cola": 3, "rte": 10, "stsb": 10, "mnli": 3, "squad1": 2, "squad2": 2,
        "chunking": 3,
    }  # fmt: skip
    lengths = [
        task_config(name, pretrained).data.max_length
        for name in ("cola", "squad2", "chunking")
    ]
    assert lengths == [128, 512, 256]
    changed = task_config("rte", pretrained, "training.epochs=4", "data.max_length=16")
    assert (changed.training.epochs, changed.data.max_length) == (4, 16)


@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
def test_configs_of_all_sizes_keep_published_task_settings(size, pretrained):
    configs = []

    def resolve(base):
        path = str(ROOT / f"configs/finetune_{size}.yaml")
        configs.append(loader.load_config(path, base=base, root=FinetuningConfig))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        finetuning.run_task("rte", "", pretrained, "", 1, resolve, None)
    assert configs[0].training.epochs == 10
    rates = {
        "tiny": (6e-4, 1.0), "small": (3e-4, 0.8), "base": (1e-4, 0.8),
        "large": (5e-5, 0.9),
    }  # fmt: skip
    optimizer = configs[0].optimizer
    assert (optimizer.learning_rate, optimizer.layer_decay) == rates[size]


@pytest.mark.parametrize(
    ("config", "depth", "width", "warns"),
    [
        (None, 2, 128, True),
        (None, 4, 768, True),
        (None, 12, 128, True),
        ("finetune_small", 2, 128, True),
        ("finetune_large", 2, 128, True),
        ("finetune_tiny", 2, 128, False),
        (None, 12, 256, False),
        ("finetune_small", 12, 256, False),
    ],
)
def test_published_rates_for_a_small_encoder_give_a_warning(
    config, depth, width, warns, pretrained, monkeypatch, tmp_path, capsys
):
    shape = dataclasses.replace(SHAPE, depth=depth, width=width)
    encoder = dataclasses.replace(pretrained, shape=shape)
    monkeypatch.setattr(PretrainedEncoder, "open", lambda path: encoder)
    monkeypatch.setattr(finetuning, "run_task", lambda *_: None)
    path = config and str(ROOT / f"configs/{config}.yaml")

    def make_config(base):
        return loader.load_config(path, base=base, root=FinetuningConfig)

    output = str(tmp_path / "out")
    finetuning.run_finetuning("sst2", "", "", output, 1, make_config, None)
    message = capsys.readouterr().err
    words = ("--config=finetune_tiny", f"depth {depth} and width {width}")
    assert all((word in message) == warns for word in words)


@pytest.mark.parametrize(
    ("trained", "warns"), [(32, True), (128, False), (512, False), (None, False)]
)
def test_texts_longer_than_the_records_of_pretraining_give_a_warning(
    trained, warns, pretrained, monkeypatch, tmp_path, capsys
):
    encoder = dataclasses.replace(pretrained, trained_length=trained)
    monkeypatch.setattr(PretrainedEncoder, "open", lambda path: encoder)
    monkeypatch.setattr(finetuning, "run_task", lambda *_: None)
    output = str(tmp_path / "out")
    finetuning.run_finetuning("sst2", "", "", output, 1, settings(), None)
    assert ("data.max_length=32" in capsys.readouterr().err) == warns


def test_an_incomplete_test_set_is_an_error_before_training(
    pretrained, tmp_path, monkeypatch
):
    monkeypatch.setattr(PretrainedEncoder, "open", lambda path: pretrained)
    folder = write_glue(tmp_path / "glue")
    test = tmp_path / "glue" / "CoLA" / "test.tsv"
    test.write_text("index\tsentence\n0\ta\n")
    output = str(tmp_path / "out")
    with pytest.raises(InputError, match=r"CoLA.*1063 rows.*with 1"):
        finetuning.run_finetuning("glue", folder, "", output, 1, settings(), None)


def test_max_length_is_limited_by_the_encoder(pretrained):
    assert task_config("squad2", pretrained).data.max_length == 64


def test_glue_writes_a_table_and_a_submission(
    pretrained, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(PretrainedEncoder, "open", lambda path: pretrained)
    finetuning.run_finetuning(
        "glue",
        write_glue(tmp_path / "glue"),
        "a checkpoint",
        str(tmp_path / "out"),
        2,
        settings("training.epochs=1", "training.batch_size=8", "data.max_length=16"),
        finetuning.tf.distribute.get_strategy(),
    )
    printed = capsys.readouterr().out
    assert "cola; without: sst2, mrpc" in printed
    assert "cola trial 2 of 2 (seed 1): dev_mcc" in printed
    assert "mean of 1 medians, without wnli" in printed
    line = next(line for line in printed.splitlines() if "one label for all" in line)
    assert "SST-2" in line
    assert "CoLA" not in line
    assert (tmp_path / "out" / "submission.zip").exists()
    # A second run trains nothing and prints the same summary.
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
    assert again.splitlines()[-4:] == printed.splitlines()[-4:]


def test_a_folder_without_glue_is_an_error(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(PretrainedEncoder, "open", lambda path: pretrained)
    output = str(tmp_path / "out")
    with pytest.raises(InputError, match=r"--data.*GLUE"):
        finetuning.run_finetuning(
            "glue", str(tmp_path), "", output, 1, settings(), None
        )
