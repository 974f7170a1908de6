"""Reading of configs: files, names, `--set`, and error messages."""

import dataclasses
import json
import os
import pathlib

import numpy as np
import pytest

from electra_tf.config import loader
from electra_tf.config.data import RecordsConfig
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.objectives import OBJECTIVE_SETTINGS
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError


def write(path, text):
    path.write_text(text)
    return str(path)


def test_file_overrides_the_file_it_extends(tmp_path):
    write(tmp_path / "base.yaml", "records: {max_length: 512, seed: 7}\n")
    (tmp_path / "sub").mkdir()
    path = write(
        tmp_path / "sub" / "difference.yaml",
        "extends: ../base.yaml\nrecords: {seed: 8}\n",
    )
    assert loader.load_config(path).records == RecordsConfig(max_length=512, seed=8)


def test_precedence_is_base_file_overrides(tmp_path):
    path = write(tmp_path / "a.yaml", "records: {max_length: 16, seed: 1, shards: 2}")
    loaded = loader.load_config(
        path,
        ["records.seed=2", "records.shards=4"],
        base={"records.max_length": 64, "tokenization.lower_case": False},
    )
    assert loaded.records == RecordsConfig(max_length=16, seed=2, shards=4)
    assert loaded.tokenization.lower_case is False


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (
            "records.max_lenght=64",
            "unknown key `records.max_lenght`.*`records.max_length`",
        ),
        ("record.max_length=64", "unknown key `record`.*did you mean `records`"),
        ("max_length=64", "unknown key `max_length`.*`records.max_length`"),
        ("records.colour=red", "unknown key `records.colour`.*known: max_length"),
        ("records.max_length=abc", "`records.max_length` must be a valid integer"),
        ("records.max_length='64'", "must be a valid integer, not '64'"),
        ("records.max_length=64.5", "valid integer.*64.5"),
        ("records.max_length=true", "valid integer.*True"),
        ("records.max_length=7", "greater than or equal to 8, not 7"),
        ("records.order=random", "'original' or 'document', not 'random'"),
        ("tokenization.lower_case=1", "valid boolean"),
        ("vocabulary.character_coverage=1.5", "less than or equal to 1"),
        ("records=5", "`records`.*not 5"),
        ("records.seed", "NAME=VALUE.*'records.seed'"),
        ("records.seed=[1", "valid YAML"),
        ("records.seed=-1", "greater than or equal to 0, not -1"),
        ("masking.scheme=Original", "'whole_word' or 'original', not 'Original'"),
        ("data.max_length=64", "unknown key `data`"),
        ("optimizer.learning_rat=1", "did you mean `optimizer.learning_rate`"),
        ("records.seed=2020-01-01", "records.seed.*2020-01-01"),
    ],
)
def test_error_names_the_setting_and_the_remedy(item, words):
    with pytest.raises(InputError, match=f"(?s){words}"):
        loader.load_config(overrides=[item])


def test_error_names_the_source_of_the_mistake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    good = tmp_path / "configs" / "mine.yaml"
    good.write_text("records: {seed: 1}")
    with pytest.raises(InputError, match=r"did you mean 'configs/mine\.yaml'\?"):
        loader.load_config("mine")
    with pytest.raises(
        InputError, match=r"mine\.yaml and the given settings: .*`records\.sed`"
    ):
        loader.load_config(str(good), ["records.sed=1"])
    good.write_text("records: {sed: 1}")
    with pytest.raises(InputError, match=r"mine\.yaml: .*`records\.sed`"):
        loader.load_config(str(good))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_installed_names_are_those_of_the_files():
    folder = pathlib.Path(loader.__file__).parents[2] / "configs"
    names = {path.stem for path in folder.glob("*.yaml")}
    names |= {f"ablations/{path.stem}" for path in folder.glob("ablations/*.yaml")}
    assert loader.installed() == sorted(names)
    assert {"tiny", "small++", "large-1.75M", "finetune_base"} <= {*loader.installed()}


def test_installed_config_is_found_from_any_folder(elsewhere):
    bert = loader.load_config("ablations/bert_80_10_10")
    assert (bert.objective.name, bert.masking.replacement) == ("mlm", "bert")
    assert bert.model == loader.load_config("base").model
    tiny = loader.load_config("tiny")
    assert tiny.model.width == 128
    write(elsewhere / "mine.yaml", "extends: tiny\nrecords: {seed: 9}\n")
    mine = loader.load_config("mine.yaml")
    assert mine.records == dataclasses.replace(tiny.records, seed=9)
    assert mine.model == tiny.model


def test_file_has_precedence_over_name_and_name_over_folder(elsewhere):
    write(elsewhere / "tiny", "model: {depth: 7}")
    assert loader.load_config("tiny").model.depth == 7
    (elsewhere / "mini").mkdir()
    assert loader.load_config("mini").model.width == 256
    (elsewhere / "sub").mkdir()
    path = write(elsewhere / "sub" / "a.yaml", "extends: tiny")
    # Relative to the folder of the file.
    assert loader.load_config(path).model.depth == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tinny", "did you mean 'tiny'?"),
        ("configs/tiny.yaml", "did you mean 'tiny'?"),
        ("smal", "did you mean 'small'?"),
        ("xyzzy", "large-400k, mini"),
    ],
)
def test_error_suggests_the_nearest_name(elsewhere, name, hint):
    with pytest.raises(InputError) as error:
        loader.load_config(name)
    assert repr(name) in str(error.value)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("records: {seed: 1, seed: 2}", "duplicate key 'seed'"),
        ("- 1\n- 2", "a list"),
        ("extends: c.yaml", "extends.*c\\.yaml -> .*c\\.yaml"),
        ("extends: missing.yaml", "missing.yaml"),
        ("extends: [a.yaml]", "`extends` must be one"),
        ("records: [", "valid YAML"),
        ("? [1]\n: 2\n", "as key"),
        ("records: &r {seed: 4}\ninput: {<<: *r, batch_size: 8}\n", r"an alias \(\*\)"),
        ("records: &a {seed: *a}\n", r"an alias \(\*\)"),
        ("a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n", r"an alias \(\*\)"),
        # PyYAML 6.0.4 has a limit of its own for brackets.
        ("[" * 100_000, "100 levels|nesting depth"),
        ("a: " + "{" * 2000, "100 levels|nesting depth"),
        ("- " * 300_000, "100 levels"),
        ("#" * (2**20 + 1), "1,048,576 characters"),
        ("".join(f"{' ' * n}a:\n" for n in range(1400)), "100 levels"),
        *(
            ("extends: " + json.dumps(name), "neither a file nor the name")
            for name in ("x" * 5000, "a\0b", "a/" * 3000)
        ),
    ],
    ids=lambda value: value[:20],
)
def test_invalid_file_is_an_error(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        loader.load_config(write(tmp_path / "c.yaml", text))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("training.xla", "on", "on"),
        ("training.xla", "off", "off"),
        *(("tokenization.lower_case", w, True) for w in ("true", "True", "TRUE")),
        *(("tokenization.lower_case", w, False) for w in ("false", "False", "FALSE")),
        ("vocabulary.character_coverage", "1e-1", 0.1),
        ("input.batch_size", "010", 10),
        ("input.batch_size", "0o10", 8),
        ("input.batch_size", "0x10", 16),
        ("corpus.field", "1:30", "1:30"),
        ("corpus.field", "1_0", "1_0"),
        ("corpus.field", "2026-11-29", "2026-11-29"),
        ("optimizer.no_decay", r"['(?i)\(x\)*y$']", (r"(?i)\(x\)*y$",)),
    ],
)
def test_types_are_those_of_yaml_1_2(tmp_path, name, text, value):
    section, key = name.split(".")
    path = write(tmp_path / "c.yaml", f"{section}: {{{key}: {text}}}")
    typed = loader.load_config(overrides=[f"{name}={text}"])
    for loaded in (loader.load_config(path), typed):
        assert getattr(getattr(loaded, section), key) == value
    assert name in loader.given_names(path)


@pytest.mark.parametrize(
    "word", ["1e4", "1e-4", "2.5E3", ".5e3", "yes", "null", "1", "0o7"]
)
def test_dumped_config_loads_to_an_equal_one(tmp_path, word):
    overrides = {"corpus.field": word, "optimizer.clip_norm": None}
    first = loader.load_config(overrides=overrides)
    path = write(tmp_path / "c.yaml", loader.dump_config(first))
    assert loader.load_config(path) == first != PretrainingConfig()
    overrides = {"data.text_columns": ["a", word], "data.word_column": -2}
    tuning = loader.load_config(overrides=overrides, root=FinetuningConfig)
    text = loader.dump_config(tuning)
    assert loader.parse_config(text, "a dump", FinetuningConfig) == tuning


def test_every_installed_config_loads_as_its_kind():
    for root in (PretrainingConfig, FinetuningConfig):
        for name in loader.installed(root):
            assert isinstance(loader.load_config(name, root=root), root)
    changed = loader.load_config("tiny", ["training.steps=3"])
    for overrides in ({"training.steps": 3}, {"training": {"steps": 3}}):
        assert loader.load_config("tiny", overrides) == changed


@pytest.mark.parametrize(
    ("name", "root", "words"),
    [
        ("finetune_small", PretrainingConfig, "such as small.*fine-tuning.*decay"),
        ("small", FinetuningConfig, "finetune_small.*pre-training.*model.depth"),
    ],
)
def test_a_config_of_another_kind_is_an_error(name, root, words):
    with pytest.raises(InputError, match=f"(?s)^{name} must be .*{words}"):
        loader.load_config(name, root=root)


def test_settings_may_be_dictionaries_names_and_configs(tmp_path):
    expected = loader.load_config(
        overrides=["data.max_length=64", "training.epochs=5"], root=FinetuningConfig
    )
    small = loader.load_config("finetune_small", root=FinetuningConfig)
    path = tmp_path / "mine.yaml"
    path.write_text(loader.dump_config(expected))
    for settings in (
        expected,
        {"data.max_length": 64, "training.epochs": 5},
        {"data": {"max_length": np.int64(64)}, "training": {"epochs": 5}},
        {"data": {"max_length": 64}, "training.epochs": 5, "model": {}},
        str(path),
        path,
    ):
        assert loader.to_config(settings, FinetuningConfig) == expected
    length = {"data.max_length": 64}
    config = loader.to_config("finetune_small", FinetuningConfig, overrides=length)
    assert config == dataclasses.replace(small, data=expected.data)
    with_base = loader.to_config(length, FinetuningConfig, base=small)
    assert with_base == config
    assert loader.to_config(None, FinetuningConfig) == FinetuningConfig()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (PretrainingConfig(), "not PretrainingConfig"),
        ("small", "small must be a config of fine-tuning.*'model.depth'[^:`]*more"),
        ("finetune_smal", "did you mean 'finetune_small'"),
        ("", "not str ''"),
        (5, "not int 5"),
        ([("training.epochs", 3)], "not list"),
        ({"epochs": 3}, "unknown key `epochs`.*`training.epochs`"),
        ({"training.epoch": 3}, "did you mean `training.epochs`"),
        ({"training.epochs": "3"}, "valid integer, not '3'"),
        ({"training.epochs": {}}, "`training.epochs`"),
        ({"training": 3}, "`training`.*not 3"),
        ({1: 2}, "unknown key `1`"),
        ({"training.epochs": object()}, "numbers, strings"),
    ],
)
def test_settings_of_another_kind_are_errors(settings, words):
    with pytest.raises(InputError, match=f"(?s){words}"):
        loader.to_config(settings, FinetuningConfig)


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "c.yaml")
    with pytest.raises(InputError, match="no regular file"):
        loader.load_config(str(tmp_path / "c.yaml"))


def test_another_objective_ends_the_defaults_of_the_former(tmp_path):
    """The settings of a config's own objective need not fit a later one."""
    former = loader.load_config(overrides=["objective.generator_weight=2.0"])
    text = loader.dump_config(former)
    write(tmp_path / "former.yaml", text)
    write(tmp_path / "new.yaml", "extends: former.yaml\nobjective: {name: mlm}\n")
    expected = OBJECTIVE_SETTINGS["mlm"](generator_weight=2.0)
    assert loader.load_config(tmp_path / "new.yaml").objective == expected
    sets = {"objective.name": "mlm"}
    path = str(tmp_path / "former.yaml")
    assert loader.load_config(path, overrides=sets).objective == expected
    assert loader.to_config(sets, PretrainingConfig, former).objective == expected
    write(tmp_path / "former.yaml", "objective: {temperature: 2.0}\n")
    for item in ("objective.name=mlm", "objective.temperature=1.0"):
        with pytest.raises(InputError, match=r"`temperature` must.*`name: mlm`"):
            loader.load_config(tmp_path / "new.yaml", [item])
