"""New runs that start from the weights of a model of any format."""

import dataclasses
import re

import numpy as np
import pytest

from electra_tf import sources
from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.interop.extension import check_vocabulary, extend_rows, new_entries
from electra_tf.interop.warm_start import check_shapes, load_weights
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.runs.experiment import Experiment
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary
from electra_tf.training.checkpoint import open_checkpoint, training_state
from tests import tiny
from tests.tiny import resolve

MAIN, GENERATOR = "electra/discriminator", "electra/generator"
PROPOSAL = "--set objective.name=mlm"


@pytest.fixture(scope="module")
def ours(folder, tmp_path_factory):
    """A checkpoint of a pair."""
    experiment = resolve(folder, "training.seed=1")
    parent = tmp_path_factory.mktemp("ours")
    pretrainer = experiment.pretrainer()
    rng = np.random.default_rng(0)
    for variable in pretrainer.trainable_variables:
        # The initial biases of two seeds are equal.
        variable.assign(rng.normal(0, 0.1, variable.shape))
    return experiment.save_checkpoint(pretrainer, str(parent))


@pytest.fixture(scope="module")
def public(ours, tmp_path_factory):
    """The pair, and each of its halves, as folders of Hugging Face."""
    parent = tmp_path_factory.mktemp("public")
    for part in ("all", "discriminator", "generator"):
        convert_checkpoint(ours, parent / part, "huggingface", part=part)
    return parent


def copied(arrays):
    return {name: np.array(values) for name, values in arrays.items()}


def load(experiment, path):
    """Return a new pretrainer's weights before and after loading, and the summary."""
    pretrainer = experiment.pretrainer()
    before = copied(training_state(pretrainer)[0])
    source = sources.open_source(path)
    text = load_weights(
        pretrainer,
        source.pretrained,
        source.own_checkpoint,
        experiment.config,
        experiment.tokenizer,
    )
    after, slots = map(copied, training_state(pretrainer))
    assert not any(values.any() for values in slots.values())
    assert int(pretrainer.optimizer.iterations) == 0
    return before, after, text


def changed(before, after):
    return {n for n in before if not np.array_equal(before[n], after[n])}


@pytest.mark.parametrize("form", ["electra_tf", "huggingface", "halves", "tf1"])
def test_a_pair_of_any_format_sets_all_weights(form, folder, ours, public, tmp_path):
    source = {
        "electra_tf": ours,
        "huggingface": public / "all",
        "halves": f"{public / 'discriminator'},{public / 'generator'}",
        "tf1": tmp_path / "tf1",
    }[form]
    sets = ()
    if (
        form == "tf1"
    ):  # which stores no number of heads; those of its models are 64 wide
        tiny.tf1(source, ours)
        sets = ("model.heads=1", "model.generator_heads=1")
    before, after, text = load(resolve(folder, *sets), source)
    for name, values in open_checkpoint(ours).weights().items():
        np.testing.assert_array_equal(after[name], values, err_msg=name)
    assert f"loaded: all {len(before)} weights" in text
    assert re.search(rf"{MAIN}/encoder: (\d+) weights, \1 loaded", text)
    assert "not loaded: optimizer" in text
    assert "anew" not in text
    assert PROPOSAL not in text
    assert ("training.seed: 1 -> 0" in text) == (form == "electra_tf")


@pytest.mark.parametrize("half", ["discriminator", "generator"])
def test_half_a_pair_sets_its_network_and_the_tables(half, folder, ours, public):
    before, after, text = load(resolve(folder), public / half)
    loaded = changed(before, after)
    tables = f"{MAIN}/encoder/embeddings/"
    own = f"electra/{half}/"
    assert loaded == {n for n in before if n.startswith((own, tables))}
    expected = open_checkpoint(ours).weights()
    for name in loaded:
        np.testing.assert_array_equal(after[name], expected[name])
    other = "discriminator" if half == "generator" else "generator"
    assert re.search(rf"{half}/encoder: (\d+) weights, \1 loaded", text)
    assert re.search(rf"{other}/encoder: .*\d+ initialised anew", text)
    assert re.search(rf"{other}/head: (\d+) weights, \1 initialised anew", text)


def test_an_encoder_without_a_head(folder, ours, tmp_path):
    target = tmp_path / "garden"
    convert_checkpoint(ours, target, "model_garden", part="discriminator")
    before, after, text = load(resolve(folder), target / "encoder.ckpt-1")
    assert changed(before, after) == {
        name for name in before if name.startswith(f"{MAIN}/encoder/")
    }
    assert "discriminator/head: 4 weights, 4 initialised anew" in text
    assert "gelu" in text
    assert PROPOSAL in text


def test_a_pair_in_a_run_of_one_network(folder, ours, public):
    experiment = resolve(folder, "objective.name=mlm")
    before, after, text = load(experiment, public / "all")
    expected = open_checkpoint(ours).weights()
    assert changed(before, after) == {n for n in before if n.startswith("bert/enc")}
    for name in changed(before, after):
        same = expected[name.replace("bert", MAIN, 1)]
        np.testing.assert_array_equal(after[name], same)
    assert "bert/head: 5 weights, 5 initialised anew" in text
    assert PROPOSAL not in text
    assert "ignored: the generator: the run has no such network" in text
    assert "ignored: the discriminator's head: " in text


def test_a_masked_lm_of_full_size_sets_the_discriminators_encoder(folder, tmp_path):
    experiment = resolve(folder, "objective.name=mlm", "training.seed=1")
    source = experiment.save_checkpoint(experiment.pretrainer(), str(tmp_path))
    before, after, text = load(resolve(folder), source)
    expected = open_checkpoint(source).weights()
    for name in changed(before, after):
        same = expected[name.replace(MAIN, "bert")]
        np.testing.assert_array_equal(after[name], same)
    assert f"{MAIN}/encoder/layer_0/output/kernel" in changed(before, after)
    assert "ignored: the generator's head" in text
    # The generator's place is preferred where both networks have the shape.
    shared = ("model.sharing=all", "model.generator_width=1.0")
    *_, text = load(resolve(folder, *shared), source)
    assert re.search(rf"{MAIN}/encoder: (\d+) weights, \1 loaded", text)
    assert "generator/head: 5 weights, 5 loaded" in text
    assert "discriminator/head: 4 weights, 4 initialised anew" in text


@pytest.mark.parametrize("is_masked_lm", [False, True])
def test_a_generator_as_wide_as_the_encoder_begins_with_its_lower_layers(
    is_masked_lm, folder, ours, public, tmp_path
):
    heads = resolve(folder).config.model.heads
    sets = ("model.generator_width=1.0", "model.generator_depth=0.5")
    sets += (f"model.generator_heads={heads}",)
    if is_masked_lm:
        single = resolve(folder, "objective.name=mlm", "training.seed=1")
        source = single.save_checkpoint(single.pretrainer(), str(tmp_path))
    else:
        source = public / "discriminator"
    before, after, text = load(resolve(folder, *sets), source)
    lower = [n for n in before if n.startswith(f"{GENERATOR}/encoder/layer_0/")]
    assert lower
    assert not [n for n in before if n.startswith(f"{GENERATOR}/encoder/layer_1/")]
    for name in lower:
        same = after[name.replace(GENERATOR, MAIN, 1)]
        np.testing.assert_array_equal(after[name], same, err_msg=name)
    state = "5 loaded" if is_masked_lm else "5 initialised anew"
    assert f"generator/head: 5 weights, {state}" in text
    assert "ignored" not in text
    assert PROPOSAL not in text


def test_a_frozen_generator_of_another_shape_is_an_error_with_flags(folder, tmp_path):
    single = resolve(folder, "objective.name=mlm")
    source = single.save_checkpoint(single.pretrainer(), str(tmp_path))
    sets = ["objective.freeze_generator=true", "model.sharing=none"]
    with pytest.raises(InputError) as error:
        load(resolve(folder, *sets), source)
    flags = re.findall(r"--set (model\.\S+=[\w.]*\w)", str(error.value))
    assert "model.generator_width=1.0" in flags
    before, after, _ = load(resolve(folder, *sets, *flags), source)
    assert all(name.startswith(GENERATOR) for name in changed(before, after))
    expected = open_checkpoint(source).weights()
    for name in (n for n in after if n.startswith(GENERATOR)):
        same = expected[name.replace(GENERATOR, "bert")]
        np.testing.assert_array_equal(after[name], same, err_msg=name)


def test_unshared_tables_load_copies_and_unequal_ones_are_refused(
    folder, ours, public, tmp_path
):
    sets = ("model.sharing=none", "model.generator_embedding=16")
    before, after, text = load(resolve(folder, *sets), public / "all")
    assert f"loaded: all {len(before)} weights" in text
    table = "encoder/embeddings/word_embeddings"
    expected = open_checkpoint(ours).weights()[f"{MAIN}/{table}"]
    for owner in (MAIN, GENERATOR):
        np.testing.assert_array_equal(after[f"{owner}/{table}"], expected)
    experiment = resolve(folder, *sets)
    source = experiment.save_checkpoint(experiment.pretrainer(), str(tmp_path))
    with pytest.raises(InputError, match=r"word_embeddings.*model\.sharing=none"):
        load(resolve(folder), source)


@pytest.mark.parametrize(
    ("sets", "source", "words"),
    [
        (["generator_width=1.0"], "all", "generator's width is 16 in .*, 32 in the"),
        (["generator_width=1.0"], "generator", "generator's width is 16"),
        (["width=64", "heads=1"], "discriminator", "width is 32 in .*, 64 in the run"),
        (["heads=4"], "all", "discriminator's heads is 2 in .*, 4 in the run"),
        (["generator_heads=2"], "all", "generator's heads is 1 in .*, 2 in the run"),
        (["layer_norm_epsilon=1e-5"], "all", "epsilon is 1e-12 in .*, 1e-05 in the"),
        (["max_positions=64"], "discriminator", "max_positions is 32 in .*, 64 in"),
        (["embedding=8", "sharing=none"], "all", "embedding is 16 in .*, 8 in the"),
        (["depth=1"], "all", "depth is 2 in .*, 1 in the run"),
        (["depth=4", "generator_depth=0.5"], "all", "depth is 2 in .*, 4 in the run"),
    ],
)
def test_another_shape_is_an_error_with_the_flags_that_fit(
    sets, source, words, folder, public
):
    sets = [f"model.{item}" for item in sets]
    networks = tiny.networks(str(public / source)).networks
    found = [(n, "generator" if n.role == "generator" else "main") for n in networks]
    with pytest.raises(InputError, match=words) as error:
        check_shapes(found, resolve(folder, *sets).config, source)
    flags = re.findall(r"--set (\S*\w)", str(error.value))
    assert flags
    check_shapes(found, resolve(folder, *sets, *flags).config, source)


def test_shapes_that_no_flags_fit(folder, public):
    experiment = resolve(folder, "model.max_positions=64", "records.max_length=64")
    with pytest.raises(InputError, match="at most 32 positions"):
        load(experiment, public / "all")
    sets = ("model.width=8", "model.heads=1", "model.generator_width=0.5")
    with pytest.raises(InputError, match=r"is 16 in .*, 4 in the run"):
        load(resolve(folder, *sets), public / "generator")


def with_vocabulary(experiment, tokens, spare=0, **settings):
    vocabulary = Vocabulary(tuple(tokens))
    tokenization = dataclasses.replace(experiment.config.tokenization, **settings)
    rows = {"vocabulary_size": len(vocabulary) + spare, "spare_rows": spare}
    config = dataclasses.replace(
        experiment.config,
        model=dataclasses.replace(experiment.config.model, **rows),
        tokenization=tokenization,
    )
    return Experiment(config, WordPieceTokenizer(vocabulary, tokenization))


def test_appended_entries_start_as_the_mean_of_their_pieces(folder, ours, public):
    experiment = resolve(folder)
    entries = experiment.tokenizer.vocabulary.tokens
    appended = ["electroencephalogram", "##izationism", "##encephalo", "\u4e9c\u4e9c"]
    assert not set(appended) & set(entries)
    extended = with_vocabulary(experiment, [*entries, *appended])
    _, after, text = load(extended, public / "all")
    weights = open_checkpoint(ours).weights()
    tokenizers = experiment.tokenizer, extended.tokenizer
    for name, values in extend_rows(weights, *tokenizers, spare_rows=0).items():
        np.testing.assert_array_equal(after[name], values, err_msg=name)
    assert len(after[f"{GENERATOR}/head/output_bias"]) == len(entries) + 4
    assert "4 entries appended to 1,000" in text


def test_rows_without_an_entry_are_loaded_as_far_as_the_run_has_them(folder, tmp_path):
    padded = resolve(folder, "model.spare_rows=8", "training.seed=1")
    assert padded.config.model.vocabulary_size == 1008
    source = padded.save_checkpoint(padded.pretrainer(), str(tmp_path))
    expected = open_checkpoint(source).weights()
    table = f"{MAIN}/encoder/embeddings/word_embeddings"
    assert expected[table].shape[0] == 1008
    _, after, text = load(resolve(folder), source)
    np.testing.assert_array_equal(after[table], expected[table][:1000])
    assert "8 of 8 rows without an entry" in text
    (flag,) = re.findall(r"--set (model\.spare_rows=\d+)", text)
    _, after, text = load(resolve(folder, flag), source)
    np.testing.assert_array_equal(after[table], expected[table])
    assert "without an entry" not in text
    # New entries take the place of rows without an entry, not their values.
    entries = padded.tokenizer.vocabulary.tokens
    extended = with_vocabulary(resolve(folder), [*entries, "##izationism"], spare=7)
    _, after, text = load(extended, source)
    np.testing.assert_array_equal(after[table][1001:], expected[table][1001:])
    assert not np.array_equal(after[table][1000], expected[table][1000])


def test_another_vocabulary_names_the_first_entry_that_differs(folder):
    experiment = resolve(folder)
    entries = list(experiment.tokenizer.vocabulary.tokens)

    def check(tokens, **settings):
        other = with_vocabulary(experiment, tokens, **settings)
        check_vocabulary(experiment.tokenizer, other.tokenizer, "source")

    check([*entries, "more."])
    changed = [*entries[:500], "changed.", *entries[501:], "more."]
    with pytest.raises(InputError, match=rf"500 is {entries[500]!r}.*'changed\.'"):
        check(changed)
    with pytest.raises(InputError, match=f"entry 999 is {entries[999]!r}.*the end"):
        check(entries[:-1])
    with pytest.raises(InputError, match=r"lower_case True .*False"):
        check(entries, lower_case=False)


def test_words_over_unused_entries_start_as_the_mean_of_their_pieces():
    words = (*SPECIAL_TOKENS, "[unused0]", "[unused1]", "[unused2]", "a", "##b", "[")
    old = WordPieceTokenizer(Vocabulary((*words, "]", "c")))
    changed = (*words[:5], "ab", "[AC]", *words[7:], "]", "c", "##bb", "[AB]")
    settings = TokenizationConfig(keep_whole=("[AC]",), max_word_characters=100)
    new = WordPieceTokenizer(Vocabulary(changed), settings)
    check_vocabulary(old, new, "source")
    table = np.arange(26, dtype=np.float32).reshape(13, 2) ** 2
    arrays = {"x/word_embeddings": table, "head/output_bias": table[:, 0], "y": table}
    extended = extend_rows(arrays, old, new, spare_rows=0)
    ids = old.vocabulary.ids
    expected = {
        5: ["a", "##b"], 6: ["[", "[UNK]", "]"], 13: ["##b", "##b"],
        14: ["[", "a", "##b", "]"],
    }  # fmt: skip
    assert new_entries(old, new) == {n: changed[n] for n in expected}
    for path in ("x/word_embeddings", "head/output_bias"):
        assert len(extended[path]) == 15
        for row in range(15):
            pieces = [ids[piece] for piece in expected.get(row, [changed[row]])]
            np.testing.assert_allclose(
                extended[path][row], arrays[path][pieces].mean(axis=0)
            )
    assert extended["y"] is table
    with pytest.raises(InputError, match="keep_whole"):
        check_vocabulary(new, WordPieceTokenizer(new.vocabulary), "source")
