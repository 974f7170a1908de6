"""Reading of configs: files, names, `--set`, and error messages."""

import dataclasses
import json
import os
import pathlib
import time

import pytest

from electra_tf.config import loader
from electra_tf.config.pretraining import (
    PretrainingConfig,
    RecordsConfig,
    TokenizationConfig,
)
from electra_tf.errors import InputError


def write(path, text):
    path.write_text(text)
    return str(path)


def test_defaults_are_the_small_model_of_the_paper():
    assert loader.load_config() == PretrainingConfig()
    assert PretrainingConfig().records.max_length == 128
    assert PretrainingConfig().vocabulary.size == 30522


def test_dumped_config_loads_to_an_equal_one(tmp_path):
    first = loader.load_config(sets=["records.max_length=512", "corpus.field=body"])
    second = loader.load_config(
        write(tmp_path / "resolved.yaml", loader.dump_config(first))
    )
    assert second == first != PretrainingConfig()


def test_file_overrides_the_file_it_extends(tmp_path):
    write(tmp_path / "base.yaml", "records: {max_length: 512, seed: 7}\n")
    (tmp_path / "sub").mkdir()
    path = write(
        tmp_path / "sub" / "difference.yaml",
        "extends: ../base.yaml\nrecords: {seed: 8}\n",
    )
    assert loader.load_config(path).records == RecordsConfig(max_length=512, seed=8)


def test_precedence_is_base_file_sets_overrides(tmp_path):
    path = write(tmp_path / "a.yaml", "records: {max_length: 16, seed: 1, shards: 2}")
    loaded = loader.load_config(
        path,
        ["records.seed=2", "records.shards=3"],
        {"records.shards": 4},
        base={"records.max_length": 64, "tokenization.lower_case": False},
    )
    assert loaded.records == RecordsConfig(max_length=16, seed=2, shards=4)
    assert loaded.tokenization.lower_case is False


@pytest.mark.parametrize("word", ["1e4", "1e-4", "2.5E3", ".5e3", "yes", "null", "1"])
def test_strings_that_look_like_other_types_stay_strings(tmp_path, word):
    first = loader.load_config(overrides={"corpus.field": word})
    assert (
        loader.load_config(write(tmp_path / "c.yaml", loader.dump_config(first)))
        == first
    )


@pytest.mark.parametrize("word", ["on", "off", "auto"])
def test_on_and_off_are_strings(tmp_path, word):
    typed = loader.load_config(sets=[f"training.xla={word}"])
    written = loader.load_config(
        write(tmp_path / "c.yaml", f"training: {{xla: {word}}}")
    )
    assert typed.training.xla == written.training.xla == word


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "false", "False", "FALSE"])
def test_booleans_are_those_of_yaml_1_2(word):
    typed = loader.load_config(sets=[f"tokenization.lower_case={word}"])
    assert typed.tokenization.lower_case is (word.lower() == "true")


@pytest.mark.parametrize(
    "text",
    [
        "records: &r {seed: 4}\ninput: {<<: *r, batch_size: 8}\n",
        "records: &a {seed: *a}\n",
        "model: {depth: &n 2, heads: *n}\n",
        "a: &a [1, 1]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    ],
)
def test_aliases_are_refused(text, tmp_path):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match=r"an alias \(\*\)"):
        loader.load_config(str(tmp_path / "c.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "1,000 brackets"),
        ("a: " + "{" * 2000, "1,000 brackets"),
        ("#" * (2**20 + 1), "1,048,576 characters"),
        ("? [1]\n: 2\n", "as key"),
        ("".join(f"{' ' * n}a:\n" for n in range(1400)), "."),
    ],
)
def test_huge_and_deep_files_are_refused(text, message, tmp_path):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        loader.load_config(str(tmp_path / "c.yaml"))


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "c.yaml")
    with pytest.raises(InputError, match="no regular file"):
        loader.load_config(str(tmp_path / "c.yaml"))


def test_many_unknown_keys_take_no_long_time(tmp_path):
    text = "records:\n" + "".join(f"  key{n}: {n}\n" for n in range(8000))
    (tmp_path / "c.yaml").write_text(text)
    times = []
    for _ in range(3):
        begin = time.process_time()
        with pytest.raises(InputError, match="and 7,990 more"):
            loader.load_config(str(tmp_path / "c.yaml"))
        times.append(time.process_time() - begin)
    assert min(times) < 1  # 0.06 on an idle machine; a quadratic reader takes 2


@pytest.mark.parametrize("pattern", ["x" * 201, "(", "["])
def test_long_and_invalid_patterns_are_refused(pattern):
    with pytest.raises(InputError, match=r"200 characters|regular expression"):
        loader.load_config(overrides={"optimizer.no_decay": [pattern]})


@pytest.mark.parametrize(
    "pattern", ["layer_norm", "(bias|gamma)$", r"layer_[0-9]+/.*bias", r"(?i)\(x\)*y"]
)
def test_usual_patterns_are_accepted(pattern):
    config = loader.load_config(overrides={"optimizer.no_decay": [pattern]})
    assert config.optimizer.no_decay == (pattern,)


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PretrainingConfig().records.seed = 1


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (
            "records.max_lenght=64",
            "unknown key `records.max_lenght`.*`records.max_length`",
        ),
        ("record.max_length=64", "unknown key `record`.*Did you mean `records`"),
        ("max_length=64", "unknown key `max_length`.*`records.max_length`"),
        ("records.colour=red", "unknown key `records.colour`.*Known: max_length"),
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
        ("records.seed=2020-13-45", "valid YAML"),
        ("model.sharing=all", "`model`: `sharing: all`.*generator_depth to 1"),
        ("model.heads=3", "width 256 must be a multiple of its 3 heads"),
        ("records.max_length=1024", "1024 must not exceed model.max_positions 512"),
        ("training.accumulation=3", "128 must be a multiple.*accumulation 3"),
        ("masking.scheme=Original", "'whole_word' or 'original', not 'Original'"),
        ("optimizer.learning_rat=1", "Did you mean `optimizer.learning_rate`"),
        ("records.seed=2020-01-01", "settings must be numbers.*date"),
    ],
)
def test_error_names_the_setting_and_the_remedy(item, words):
    with pytest.raises(InputError, match=f"(?s){words}"):
        loader.load_config(sets=[item])


def test_error_names_the_source_of_the_mistake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    good = tmp_path / "configs" / "mine.yaml"
    good.write_text("records: {seed: 1}")
    with pytest.raises(InputError, match=r"Did you mean configs/mine\.yaml\?"):
        loader.load_config("mine")
    with pytest.raises(
        InputError, match=r"mine\.yaml and the command line: .*`records\.sed`"
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
    assert (
        loader.load_config(path).model.depth == 2
    )  # relative to the folder of the file


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tinny", "Did you mean 'tiny'?"),
        ("configs/tiny.yaml", "Did you mean 'tiny'?"),
        ("smal", "Did you mean 'small'?"),
        ("xyzzy", "large-400k, mini"),
    ],
)
def test_error_suggests_the_nearest_name(elsewhere, name, hint):
    with pytest.raises(InputError) as error:
        loader.load_config(name)
    assert repr(name) in str(error.value)
    assert hint in str(error.value)


def test_error_lists_all_mistakes():
    with pytest.raises(InputError) as error:
        loader.load_config(sets=["records.seed=x", "input.batch_sise=3"])
    assert "records.seed" in str(error.value)
    assert "Did you mean `input.batch_size`?" in str(error.value)


def test_floats_of_yaml_1_2():
    loaded = loader.load_config(sets=["vocabulary.character_coverage=1e-1"])
    assert loaded.vocabulary.character_coverage == 0.1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("records: {seed: 1, seed: 2}", "duplicate key 'seed'"),
        ("- 1\n- 2", "a list"),
        ("extends: a.yaml", "extends.*a\\.yaml -> .*a\\.yaml"),
        ("extends: missing.yaml", "missing.yaml"),
        ("extends: [a.yaml]", "`extends` must be one"),
        ("records: [", "valid YAML"),
        ("records: " + "[" * 5000, "valid YAML"),
    ],
)
def test_invalid_file_is_an_error(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        loader.load_config(write(tmp_path / "a.yaml", text))


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        loader.load_config(str(tmp_path / "nowhere.yaml"))


def test_every_setting_has_a_description_and_a_default_of_its_type():
    for section, holder in PretrainingConfig.__dataclass_fields__.items():
        for name in holder.type.__dataclass_fields__:
            expected_type, _, text, default = loader.describe_field(f"{section}.{name}")
            assert text.endswith("."), name
            assert default is None or isinstance(default, expected_type)


@pytest.mark.parametrize(
    ("settings", "strips"),
    [
        ({}, True),
        ({"lower_case": False}, False),
        ({"lower_case": False, "strip_accents": "always"}, True),
        ({"strip_accents": "never"}, False),
    ],
)
def test_strips_accents(settings, strips):
    assert TokenizationConfig(**settings).strips_accents == strips


def test_given_names_reads_an_installed_config(elsewhere):
    assert "model.generator_width" in loader.given_names("tiny")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "a/" * 3000])
def test_impossible_paths_are_refused(name, tmp_path):
    path = write(tmp_path / "a.yaml", "extends: " + json.dumps(name))
    for source in (name, str(path)):
        with pytest.raises(InputError, match="readable YAML"):
            loader.load_config(source)
