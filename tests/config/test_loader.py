import dataclasses
import pathlib

import pytest

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import (
    PretrainingConfig,
    RecordsConfig,
    TokenizationConfig,
)
from electra_tf.errors import InputError


def write(path, text):
    path.write_text(text)
    return str(path)


def test_defaults_are_the_papers_small_model():
    assert loader.load_config() == PretrainingConfig()
    assert PretrainingConfig().records.max_length == 128
    assert PretrainingConfig().vocabulary.size == 30522


def test_what_is_written_is_read_again_as_the_same(tmp_path):
    first = loader.load_config(sets=["records.max_length=512", "corpus.field=body"])
    second = loader.load_config(
        write(tmp_path / "resolved.yaml", loader.dump_config(first))
    )
    assert second == first != PretrainingConfig()


def test_a_file_holds_the_lines_that_differ_from_the_file_it_extends(tmp_path):
    write(tmp_path / "base.yaml", "records: {max_length: 512, seed: 7}\n")
    (tmp_path / "sub").mkdir()
    path = write(
        tmp_path / "sub" / "difference.yaml",
        "extends: ../base.yaml\nrecords: {seed: 8}\n",
    )
    assert loader.load_config(path).records == RecordsConfig(max_length=512, seed=8)


def test_later_words_win(tmp_path):
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
def test_words_that_look_like_numbers_are_written_so_that_they_stay_words(
    tmp_path, word
):
    first = loader.load_config(overrides={"corpus.field": word})
    assert (
        loader.load_config(write(tmp_path / "c.yaml", loader.dump_config(first)))
        == first
    )


@pytest.mark.parametrize("word", ["on", "off", "auto"])
def test_on_and_off_are_words(tmp_path, word):
    typed = loader.load_config(sets=[f"training.xla={word}"])
    written = loader.load_config(
        write(tmp_path / "c.yaml", f"training: {{xla: {word}}}")
    )
    assert typed.training.xla == written.training.xla == word


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "false", "False", "FALSE"])
def test_truth_values_are_those_of_yaml_1_2(word):
    typed = loader.load_config(sets=[f"tokenization.lower_case={word}"])
    assert typed.tokenization.lower_case is (word.lower() == "true")


def test_merge_keys_are_yaml_too(tmp_path):
    text = "records: &r {seed: 4}\ninput: {<<: *r, batch_size: 8}\n"
    assert loader.load_config(write(tmp_path / "c.yaml", text)).input.seed == 4


def test_settings_cannot_change():
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
        ("model.sharing=all", "`model`: sharing: all has one encoder.*to 1"),
        ("model.heads=3", "width 256 must be a multiple of its 3 heads"),
        ("records.max_length=1024", "1024 must not exceed model.max_positions 512"),
        ("training.accumulation=3", "128 must be a multiple.*accumulation 3"),
        ("masking.scheme=Original", "'whole_word' or 'original', not 'Original'"),
        ("optimizer.learning_rat=1", "Did you mean `optimizer.learning_rate`"),
        ("records.seed=2020-01-01", "Quote what YAML takes for a date"),
    ],
)
def test_a_wrong_setting_is_told_with_its_name_and_what_to_do(item, words):
    with pytest.raises(InputError, match=f"(?s){words}"):
        loader.load_config(sets=[item])


def test_a_mistake_is_looked_for_where_it_may_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    good = tmp_path / "configs" / "mine.yaml"
    good.write_text("records: {seed: 1}")
    with pytest.raises(InputError, match=r"Did you mean configs/mine\.yaml\?"):
        loader.load_config("mine")
    with pytest.raises(InputError, match=r"mine\.yaml and the command line: every"):
        loader.load_config(str(good), ["records.sed=1"])
    good.write_text("records: {sed: 1}")
    with pytest.raises(InputError, match=r"mine\.yaml: every"):
        loader.load_config(str(good))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_names_are_those_of_the_files():
    files = (pathlib.Path(loader.__file__).parents[2] / "configs").glob("*.yaml")
    assert loader.installed() == sorted(path.stem for path in files)
    assert {"tiny", "small++", "large-1.75M", "finetune_base"} <= {*loader.installed()}


def test_an_installed_config_is_found_by_name_from_any_folder(elsewhere):
    tiny = loader.load_config("tiny")
    assert tiny.model.width == 128
    write(elsewhere / "mine.yaml", "extends: tiny\nrecords: {seed: 9}\n")
    mine = loader.load_config("mine.yaml")
    assert mine.records == dataclasses.replace(tiny.records, seed=9)
    assert mine.model == tiny.model


def test_a_file_wins_over_a_name_and_a_name_over_a_folder(elsewhere):
    write(elsewhere / "tiny", "model: {depth: 7}")
    assert loader.load_config("tiny").model.depth == 7
    (elsewhere / "mini").mkdir()
    assert loader.load_config("mini").model.width == 256
    (elsewhere / "sub").mkdir()
    path = write(elsewhere / "sub" / "a.yaml", "extends: tiny")
    assert loader.load_config(path).model.depth == 2  # seen from the file's folder


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tinny", "Did you mean 'tiny'?"),
        ("configs/tiny.yaml", "Did you mean 'tiny'?"),
        ("smal", "Did you mean 'small'?"),
        ("xyzzy", "large-400k, mini"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(elsewhere, name, hint):
    with pytest.raises(InputError) as error:
        loader.load_config(name)
    assert repr(name) in str(error.value)
    assert hint in str(error.value)


def test_several_mistakes_are_told_at_once():
    with pytest.raises(InputError) as error:
        loader.load_config(sets=["records.seed=x", "input.batch_sise=3"])
    assert "records.seed" in str(error.value)
    assert "Did you mean `input.batch_size`?" in str(error.value)


def test_numbers_may_be_written_as_in_yaml_1_2():
    loaded = loader.load_config(sets=["vocabulary.character_coverage=1e-1"])
    assert loaded.vocabulary.character_coverage == 0.1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("records: {seed: 1, seed: 2}", "'seed' stands twice"),
        ("- 1\n- 2", "a list"),
        ("extends: a.yaml", "circle"),
        ("extends: missing.yaml", "missing.yaml"),
        ("extends: [a.yaml]", "names one file"),
        ("records: [", "valid YAML"),
        ("records: &a {seed: *a}", "numbers, words, lists"),
        ("records: " + "[" * 5000, "valid YAML"),
    ],
)
def test_a_broken_file_is_told(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        loader.load_config(write(tmp_path / "a.yaml", text))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        loader.load_config(str(tmp_path / "nowhere.yaml"))


def test_every_setting_is_described():
    for section, holder in PretrainingConfig.__dataclass_fields__.items():
        for name in holder.type.__dataclass_fields__:
            kind, _, text, default = loader.describe_field(f"{section}.{name}")
            assert text.endswith("."), name
            assert default is None or isinstance(default, kind)


def test_accents_go_as_the_original_says_unless_told_otherwise():
    def strips(**settings):
        return TokenizationConfig(**settings).strips

    assert strips()
    assert not strips(lower_case=False)
    assert strips(lower_case=False, strip_accents="always")
    assert not strips(strip_accents="never")


OLD, NEW = next(iter(loader.RENAMED.items()))


@pytest.fixture
def warnings_again():
    loader._warn_renamed.cache_clear()


def test_a_former_name_in_a_file_is_read_with_one_warning(
    tmp_path, capsys, warnings_again
):
    parent = write(tmp_path / "parent.yaml", "masking:\n  writing: bert\n")
    child = write(tmp_path / "child.yaml", "extends: parent.yaml\n")
    assert loader.load_config(parent).masking.replacement == "bert"
    assert loader.load_config(child).masking.replacement == "bert"
    lines = capsys.readouterr().err.splitlines()
    assert [repr(OLD) in line and repr(NEW) in line for line in lines] == [True]


def test_a_former_name_is_read_from_the_command_line(capsys, warnings_again):
    sets = [f"{OLD}=bert"]
    assert loader.load_config(sets=sets).masking.replacement == "bert"
    assert loader.load_config(overrides={OLD: "bert"}).masking.replacement == "bert"
    assert loader.given_names(None, sets) == {NEW}
    assert capsys.readouterr().err.count(repr(OLD)) == 1


def test_the_command_line_overrides_a_file_whichever_name_they_use(tmp_path):
    old = write(tmp_path / "old.yaml", "masking:\n  writing: bert\n")
    new = write(tmp_path / "new.yaml", "masking:\n  replacement: bert\n")
    assert loader.load_config(old, [f"{NEW}=mask"]).masking.replacement == "mask"
    assert loader.load_config(new, [f"{OLD}=mask"]).masking.replacement == "mask"


def test_a_stored_config_with_a_former_name_is_read_without_warning(
    capsys, warnings_again
):
    stored = loader.dump_config(PretrainingConfig()).replace("replacement:", "writing:")
    assert "writing: mask" in stored
    assert loader.parse_config(stored, "a checkpoint") == PretrainingConfig()
    assert not capsys.readouterr().err


def test_a_setting_under_both_names_is_an_error(tmp_path):
    path = write(
        tmp_path / "both.yaml", "masking:\n  writing: bert\n  replacement: mask\n"
    )
    with pytest.raises(InputError, match=f"{NEW!r}.*{OLD!r}.*'bert'.*'mask'"):
        loader.load_config(path)


def test_every_present_name_is_a_setting():
    for name in loader.RENAMED.values():
        root = PretrainingConfig if name.startswith("masking.") else FinetuningConfig
        loader.describe_field(name, root)


def test_given_names_reads_an_installed_config(elsewhere):
    assert "model.generator_width" in loader.given_names("tiny")
