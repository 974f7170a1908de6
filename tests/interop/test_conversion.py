"""Conversion against outputs that the other libraries computed (golden/interop)."""

import dataclasses
import os
import pathlib
import re

import numpy as np
import pytest

import electra_tf
from electra_tf import sources
from electra_tf.config import loader
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop import checkpoint as ours
from electra_tf.interop import formats, huggingface
from electra_tf.interop.hdf5_file import read_hdf5_file
from electra_tf.interop.keras_hub import WEIGHTS
from electra_tf.interop.model import Network
from electra_tf.interop.names import Prefixes
from electra_tf.interop.tensor_bundle import read_bundle
from electra_tf.interop.torch_file import read_torch_file
from electra_tf.model.layer_ops import LayerOps
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import find_tokenizer
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import open_checkpoint
from tests import tiny
from tests.conftest import GOLDEN as ALL_GOLDEN
from tests.conftest import ROOT, full_disk
from tests.interop.numpy_forward import assert_same_networks, hidden_states, logits

GOLDEN = ALL_GOLDEN / "interop"
DISCRIMINATOR = str(GOLDEN / "huggingface_discriminator")
GENERATOR = str(GOLDEN / "huggingface_generator")
PAIR = f"{DISCRIMINATOR},{GENERATOR}"
GARDEN = str(GOLDEN / "model_garden" / "encoder.ckpt-1")
KERAS_HUB = str(GOLDEN / "keras_hub")
TOKENS = np.array([[2, 7, 30, 12, 31, 3, 0, 0], [2, 8, 9, 10, 11, 12, 13, 3]])
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 0, 0], [0] * 4 + [1] * 4])
MASK = np.array([[1] * 6 + [0] * 2, [1] * 8])
REAL = MASK > 0


def outputs(folder):
    with np.load(pathlib.Path(folder, "outputs.npz")) as file:
        return dict(file)


def every_layer(encoder, ids, segments, mask):
    """Return the embeddings' output and each layer's states of a Keras encoder."""
    bias = (1.0 - mask[:, None, None, :].astype(np.float32)) * -1e4
    layer_ops = LayerOps(training=False)
    states = encoder.embeddings(ids, segments, layer_ops=layer_ops)
    if encoder.embeddings_project is not None:
        states = encoder.embeddings_project(states)
    collected = [states]
    for block in encoder.blocks:
        collected.append(block(collected[-1], bias, layer_ops=layer_ops))
    last = encoder(ids, segments, mask)
    np.testing.assert_allclose(last, collected[-1], atol=1e-6)
    return [np.asarray(one) for one in collected]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The golden Hugging Face pair as a checkpoint of this package."""
    target = tmp_path_factory.mktemp("interop") / "ours"
    convert_checkpoint(PAIR, target)
    return target


@pytest.mark.parametrize("case", ["given", "odd"])
def test_every_layer_computes_what_transformers_computed(case, tmp_path, monkeypatch):
    """Nine heads and epsilon 1e-5; then a config without some of its keys."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from write_interop_golden import ODD_CONFIG

    folders = [tmp_path / role for role in ("discriminator", "generator")]
    for folder in folders:
        keys = ODD_CONFIG if case == "odd" else {}
        tiny.huggingface(folder, source=folder.name, **keys)
    convert_checkpoint(",".join(map(str, folders)), tmp_path / "ours")
    model = electra_tf.Electra.from_preset(tmp_path / "ours")
    positions = np.tile(np.arange(TOKENS.shape[1]), (2, 1))
    logits = (
        model(TOKENS, SEGMENTS, MASK),
        model.generator(TOKENS, SEGMENTS, MASK, positions),
    )
    encoders = (model.encoder, model.generator.encoder)
    for folder, encoder, own in zip(folders, encoders, logits, strict=True):
        with np.load(folder / "layers.npz") as expected:
            hidden = expected[f"{case}_hidden"]
            np.testing.assert_allclose(
                own[REAL], expected[f"{case}_logits"][REAL], atol=2e-5
            )
        computed = every_layer(encoder, TOKENS, SEGMENTS, MASK)
        assert len(computed) == len(hidden) == 3
        for one, states in zip(computed, hidden, strict=True):
            np.testing.assert_allclose(one[REAL], states[REAL], atol=1e-5)


@pytest.mark.parametrize("source", [KERAS_HUB, GARDEN])
def test_encoders_of_keras_libraries_differ_by_their_gelu_only(source, tmp_path):
    report = convert_checkpoint(source, tmp_path / "ours")
    assert_same_networks(report)
    gelu = "gelu is computed by tanh in the source, exactly in the target"
    assert gelu in str(report)
    expected = outputs(source if source == KERAS_HUB else os.path.dirname(source))
    hidden = electra_tf.Encoder.from_preset(source)(TOKENS, SEGMENTS, MASK)
    assert 0 < np.abs(hidden - expected["hidden"])[REAL].max() < 5e-2
    states = hidden_states(report.model.main, TOKENS, SEGMENTS, MASK, "gelu")
    np.testing.assert_allclose(hidden[REAL], states[-1][REAL], atol=1e-5)
    # And back, to the bit.
    format, file, read, prefix = {
        KERAS_HUB: ("keras_hub", WEIGHTS, read_hdf5_file, ""),
        GARDEN: ("model_garden", "encoder.ckpt-1", read_bundle, "encoder/"),
    }[source]
    convert_checkpoint(tmp_path / "ours", tmp_path / "back", format)
    folder = source if source == KERAS_HUB else os.path.dirname(source)
    one, other = (
        read(os.path.join(path, file)) for path in (folder, tmp_path / "back")
    )
    for name in report.model.main.names_in(format, Prefixes.same(prefix)):
        np.testing.assert_array_equal(other[name], one[name], err_msg=name)


@pytest.mark.parametrize("source", [KERAS_HUB, GARDEN, DISCRIMINATOR, GENERATOR])
def test_numpy_forward_equals_the_library(source):
    (network,) = tiny.networks(source).networks
    states = hidden_states(network, TOKENS, SEGMENTS, MASK)
    expected = outputs(source if os.path.isdir(source) else os.path.dirname(source))
    last = (
        expected["hidden"][-1] if expected["hidden"].ndim == 4 else expected["hidden"]
    )
    np.testing.assert_allclose(states[-1][REAL], last[REAL], atol=1e-5)
    if "logits" in expected:
        computed = logits(network, states[-1])
        np.testing.assert_allclose(computed[REAL], expected["logits"][REAL], atol=2e-5)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-12])
def test_a_setting_that_the_target_lacks_is_named(epsilon, tmp_path):
    tiny.huggingface(tmp_path / "a", layer_norm_eps=epsilon)
    if epsilon == 1e-12:
        convert_checkpoint(tmp_path / "a", tmp_path / "b", "keras_hub")
        return
    with pytest.raises(InputError, match="layer_norm_epsilon 1e-05 becomes 1e-12"):
        convert_checkpoint(tmp_path / "a", tmp_path / "b", "keras_hub")
    assert not (tmp_path / "b").exists()
    report = convert_checkpoint(tmp_path / "a", tmp_path / "b", "keras_hub", force=True)
    assert "layer_norm_epsilon 1e-05 becomes 1e-12" in str(report)


def test_unequal_copies_of_shared_tables_are_loaded_apart(tmp_path):
    name = "electra.embeddings.word_embeddings.weight"
    tensors = tiny.huggingface(
        tmp_path / "generator", lambda t: {**t, name: t[name] + 1}, "generator"
    )
    pair = f"{DISCRIMINATOR},{tmp_path / 'generator'}"
    convert_checkpoint(pair, tmp_path / "ours", sharing="none")
    model = electra_tf.Electra.from_preset(tmp_path / "ours")
    assert model.settings.generator_embedding == 20
    words = model.generator.encoder.embeddings.word_embeddings
    np.testing.assert_array_equal(words, tensors[name])


@pytest.mark.parametrize("name", ["zip.bin", "legacy.bin"])
def test_torch_files_of_both_kinds_are_read(name):
    with np.load(GOLDEN / "bin.npz") as expected:
        arrays = read_torch_file(str(GOLDEN / name))
        assert arrays.keys() == set(expected)
        for key in expected:
            np.testing.assert_array_equal(arrays[key], expected[key])


def test_missing_surplus_and_misshaped_weights_are_named(tmp_path):
    def change(tensors):
        del tensors["electra.embeddings_project.bias"]
        wrong = {"discriminator_predictions.dense.bias": np.zeros(3, np.float32)}
        return tensors | wrong

    tiny.huggingface(tmp_path / "a", change)
    words = r"embeddings_project\.bias.*dense\.bias.*\(3,\)"
    with pytest.raises(InputError, match=words):
        tiny.networks(tmp_path / "a")
    tiny.huggingface(tmp_path / "b", lambda t: t | {"adapter.weight": np.zeros(2)})
    with pytest.raises(InputError, match=r"adapter\.weight"):
        tiny.networks(tmp_path / "b")


def test_names_are_those_of_the_released_small_model(data):
    """All variables of google's electra_small are used or listed as left out."""
    table = data / "weights" / "electra_small_tf1_index" / "variables.tsv"
    rows = (line.split("\t") for line in table.read_text().splitlines()[1:])
    shapes = {
        name: tuple(int(n) for n in size.split("x") if n.strip().isdigit())
        for name, _, size, *_ in rows
    }
    shape = EncoderConfig(
        depth=12, embedding=128, vocabulary_size=30522, max_positions=512, segments=2,
        dropout=0.1, attention_dropout=0.1, heads=4, width=256, feed_forward=1024,
    )  # fmt: skip
    named = {}
    for role, body in (("discriminator", "electra/"), ("generator", "generator/")):
        network = Network(role, shape, {})
        sizes, rows = network.shapes, network.rows("tf1", Prefixes(body, "electra/"))
        named |= {theirs: sizes[ours] for ours, _, theirs in rows}
    left = shapes.keys() - named.keys()
    assert left <= {"global_step", "generator_predictions/temperature"}
    assert named.keys() <= shapes.keys()
    assert all(shapes[name] == size for name, size in named.items() if shapes[name])


def test_slots_and_states_of_a_tf1_checkpoint_are_left_out(converted, tmp_path):
    table = "electra/embeddings/word_embeddings"
    slots = (
        "adam_m", "adam_v", "Adam", "Adam_1", "LAMB", "lamb_m", "Momentum",
        "AdamWeightDecayOptimizer", "ExponentialMovingAverage",
    )  # fmt: skip
    more = {f"{table}/{name}": np.full(2, np.nan, np.float32) for name in slots}
    more |= {"loss_scale": np.float32(np.inf), "global_step": np.array([7])}
    more |= {f"training/Adam/{name}": np.zeros(2) for name in "ab"}
    tiny.tf1(tmp_path / "tf1", converted, **more)
    report = convert_checkpoint(tmp_path / "tf1", tmp_path / "ours")
    count = len(slots) + 3
    assert f"left out: {count} other tensors, such as {table}/" in str(report)
    before, after = (open_checkpoint(str(f)) for f in (converted, tmp_path / "ours"))
    assert after.step == 7
    assert not after.slots()
    for name, array in before.weights().items():
        np.testing.assert_array_equal(after.weights()[name], array)


CHINESE = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] \u2028 房 间 很 干 净 ， 。 ！ "
    "5 ##8 wi ##fi a é e ； % 😀"
)
CHINESE_TEXTS = (
    "房间很干净，WiFi也快。",
    "５８元！！58％",
    "房间\u2028很\u3000干净；😀\ufe0f",
    "  房\t间\x00\ufeff\u200b净 ",
    "é e\u0301 É",
    "净" * 300 + "wifi" * 40 + " " + "a" * 101,
)


def test_chinese_ids_are_those_of_the_written_tokenizer(tmp_path):
    from tokenizers import Tokenizer as FastTokenizer

    vocabulary = Vocabulary(tuple(CHINESE.split(" ")), "test")
    shape = loader.load_config("tiny", [f"model.vocabulary_size={len(vocabulary)}"])
    tokenizer = WordPieceTokenizer(vocabulary)
    huggingface.write_tokenizer(tokenizer, shape.model.encoder, str(tmp_path))
    theirs = FastTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    read = find_tokenizer(str(tmp_path)).tokenizer()
    expected = [theirs.encode(t, add_special_tokens=False).ids for t in CHINESE_TEXTS]
    assert [tokenizer.encode(text) for text in CHINESE_TEXTS] == expected
    assert [read.encode(text) for text in CHINESE_TEXTS] == expected
    assert tokenizer.graph()(list(CHINESE_TEXTS)).to_list() == expected
    assert len({i for ids in expected for i in ids}) > 15  # not only [UNK]


def test_a_splitting_that_the_target_lacks_is_reported(converted, tmp_path):
    model = tiny.networks(str(converted))
    settings = dataclasses.replace(
        model.tokenizer.settings, split_unspaced="characters"
    )
    tokenizer = WordPieceTokenizer(model.tokenizer.vocabulary, settings)
    ours.write(dataclasses.replace(model, tokenizer=tokenizer), str(tmp_path / "thai"))
    report = convert_checkpoint(tmp_path / "thai", tmp_path / "hf", "huggingface")
    assert "split_unspaced: characters" in str(report)
    report = convert_checkpoint(tmp_path / "thai", tmp_path / "ours")
    assert "split_unspaced" not in str(report)


def test_entries_kept_whole_are_converted(converted, tmp_path):
    model = tiny.networks(str(converted))
    entries = model.tokenizer.vocabulary.tokens[5:8]
    settings = dataclasses.replace(
        model.tokenizer.settings,
        keep_whole=entries,
        max_word_characters=120,
    )
    tokenizer = WordPieceTokenizer(model.tokenizer.vocabulary, settings)
    ours.write(dataclasses.replace(model, tokenizer=tokenizer), str(tmp_path / "kept"))
    report = convert_checkpoint(tmp_path / "kept", tmp_path / "hf", "huggingface")
    assert "keep_whole" not in str(report)
    assert find_tokenizer(str(tmp_path / "hf")).settings == settings
    convert_checkpoint(tmp_path / "hf", tmp_path / "back")
    assert tiny.networks(str(tmp_path / "back")).tokenizer.settings == settings
    garden = tmp_path / "garden"
    report = convert_checkpoint(tmp_path / "kept", garden, "model_garden", force=True)
    assert f"keep_whole: {entries[0]!r}" in str(report)
    tokenizer = tiny.networks(str(garden)).tokenizer
    assert tokenizer.settings == settings


@pytest.mark.parametrize("format", formats.names())
def test_a_full_disk_leaves_nothing(format, tmp_path):
    target = tmp_path / "new"
    with pytest.raises(InputError, match="free space"), full_disk(10_000):
        convert_checkpoint("electra_wiki_en", target, format, part="discriminator")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_named_before_weights_are_read(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "locked").mkdir(mode=0o555)
    for target in ("file/new", "locked", "locked/a/b"):
        with pytest.raises(InputError, match="can be written") as error:
            convert_checkpoint("no model", tmp_path / target)
        assert repr(str(tmp_path / target)) in str(error.value)
    assert len(os.listdir(tmp_path)) == 2


def test_what_a_killed_conversion_left_is_replaced(tmp_path):
    (tmp_path / "ours.partial").mkdir()
    (tmp_path / "ours.partial" / "weights").write_text("")
    convert_checkpoint(DISCRIMINATOR, tmp_path / "ours")
    assert os.listdir(tmp_path) == ["ours"]


def test_command_prints_what_it_wrote(here, converted, tmp_path):
    result = here(
        "convert",
        f"--from={converted}",
        f"--to={tmp_path / 'hf'}",
        "--format=huggingface",
    )
    assert result.returncode == 0, result.stderr
    assert re.findall(r"(\w+): \d+ weights, [\d,]+ parameters", result.stdout) == [
        "discriminator", "generator",
    ]  # fmt: skip
    assert sources.open_source(tmp_path / "hf").format == "huggingface"
