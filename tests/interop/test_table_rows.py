"""Token tables of vocabularies in any order.

[PAD] may have any id in another library, and a table may have more rows than entries.
"""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import electra_tf
from electra_tf.config.data import InputConfig
from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.interop import formats
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import PAD, Vocabulary
from tests import tiny
from tests.conftest import GOLDEN as ALL_GOLDEN
from tests.interop.numpy_forward import assert_same_networks
from tests.interop.test_conversion import MASK, REAL, SEGMENTS, TOKENS

GOLDEN = ALL_GOLDEN / "interop"
HALVES = ("discriminator", "generator")
OTHERS = tuple(name for name in formats.names() if name != "electra_tf")
VOCABULARIES = {"keras_hub": "assets/tokenizer/vocabulary.txt"}
TABLE, BIAS = "word_embeddings.weight", "generator_lm_head.bias"
ENTRIES = (GOLDEN / "huggingface_discriminator" / "vocab.txt").read_text().split()
# The golden rows in the order of a library that has [PAD] as entry 4.
ORDER = [1, 2, 3, 4, 0, *range(5, len(ENTRIES))]
SPARE = 8


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The golden pair with [PAD] as entry 4, and large values in rows without entry."""
    parent = tmp_path_factory.mktemp("theirs")
    names = (TABLE, BIAS, "generator_lm_head.weight")

    def rows(array):
        spare = np.random.default_rng(0).normal(3, 1, (SPARE, *array.shape[1:]))
        return np.concatenate([array[ORDER], spare.astype(np.float32)])

    def change(tensors):
        return {n: rows(a) if n.endswith(names) else a for n, a in tensors.items()}

    for half in HALVES:
        size = len(ENTRIES) + SPARE
        tiny.huggingface(parent / half, change, half, vocab_size=size)
        text = "".join(f"{ENTRIES[row]}\n" for row in ORDER)
        (parent / half / "vocab.txt").write_text(text)
    return parent


@pytest.fixture(scope="module")
def ours(theirs, tmp_path_factory):
    target = tmp_path_factory.mktemp("rows") / "ours"
    convert_checkpoint(f"{theirs}/discriminator,{theirs}/generator", target)
    return target


def tensors_of(folder):
    return safetensors.numpy.load_file(folder / "model.safetensors")


def assert_equal_models(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("format", OTHERS)
def test_a_conversion_back_restores_the_rows(format, ours, theirs, tmp_path, capsys):
    report = convert_checkpoint(ours, tmp_path / "back", format, force=True)
    assert_same_networks(report)
    if format == "huggingface":
        config = json.loads((tmp_path / "back" / "config.json").read_text())
        assert config["pad_token_id"] == 4
    file = tmp_path / "back" / VOCABULARIES.get(format, "vocab.txt")
    assert file.read_bytes() == (theirs / "discriminator" / "vocab.txt").read_bytes()
    # A conversion of the conversion: the same networks, and again the same order.
    convert_checkpoint(tmp_path / "back", tmp_path / "again", force=True)
    model = tiny.networks(tmp_path / "again")
    assert f"{SPARE} of {len(ENTRIES) + SPARE}" in capsys.readouterr().err
    assert model.tokenizer.vocabulary.ids[PAD] == 4
    assert model.main.shape.spare_rows == SPARE
    expected = tiny.networks(ours).main.without_head().weights
    assert_equal_models(model.main.without_head().weights, expected)


def test_a_generator_has_the_vocabulary_of_its_discriminator(theirs, tmp_path):
    shutil.copytree(theirs, tmp_path / "pair")
    (tmp_path / "pair" / "generator" / "vocab.txt").unlink()
    halves = ",".join(str(tmp_path / "pair" / half) for half in HALVES)
    for network in tiny.networks(halves).networks:
        assert network.shape.spare_rows == SPARE


def test_logits_are_those_of_the_golden_rows_and_none_of_spare_rows(ours):
    read = tiny.networks(ours)
    own = [read.tokenizer.vocabulary.ids[entry] for entry in ENTRIES]
    assert own[0] == 4
    assert sorted(own) == list(range(len(own)))
    network = read.networks[1]
    model = electra_tf.MaskedLanguageModel(electra_tf.Encoder(network.shape))
    model.build()
    for variable in model.weights:
        part = "head" if "head/" in variable.path else "encoder"
        name = variable.path.split(f"{part}/", 1)[1]
        variable.assign(network.weights[f"{part}/{name}"])
    positions = np.tile(np.arange(8), (2, 1))
    logits = model(np.array(own)[TOKENS], SEGMENTS, MASK, positions).numpy()
    with np.load(GOLDEN / "huggingface_generator" / "outputs.npz") as file:
        expected = file["logits"]
    np.testing.assert_allclose(logits[..., own][REAL], expected[REAL], atol=2e-5)
    assert (tf.nn.softmax(logits)[..., len(ENTRIES) :].numpy() == 0).all()


def test_texts_of_a_saved_model_are_padded_with_the_id_of_pad(theirs, tmp_path):
    source = theirs / "discriminator"
    electra_tf.TextClassifier.from_preset(source, 2).save(tmp_path / "model.keras")
    model = electra_tf.load_model(tmp_path / "model.keras")
    table = next(array for name, array in tensors_of(source).items() if TABLE in name)
    np.testing.assert_array_equal(model.encoder.embeddings.word_embeddings, table)
    padded = model.tokenizer(["a", "a a"])
    assert padded["token_ids"][0, 3:].tolist() == [4]
    assert padded["padding_mask"][0].tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("kind", "options", "inputs"),
    [
        (electra_tf.TextClassifier, {"num_classes": 2}, ["a", "a a"]),
        (electra_tf.TokenClassifier, {"tags": ["O", "X"]}, [["a"], ["a", "a"]]),
        (electra_tf.QuestionAnswerer, {}, [("a", "a"), ("a", "a a")]),
    ],
)
def test_batches_of_tasks_are_padded_with_pad(theirs, kind, options, inputs):
    settings = electra_tf.FinetuningConfig(data=DataConfig(max_length=16))
    model = kind.from_preset(theirs / "discriminator", settings=settings, **options)
    batch, _, _ = model.examples(inputs).batch([0, 1], 3)
    assert set(batch["token_ids"][batch["padding_mask"] == 0]) == {4}


def test_records_of_a_vocabulary_with_pad_anywhere(theirs, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(ENTRIES[5:]))
    vocabulary = Vocabulary.read(theirs / "discriminator" / "vocab.txt")
    data = tmp_path / "records"
    tiny.build_records(tmp_path / "text.txt", data, vocabulary, max_length=64)
    records = electra_tf.open_records(
        str(data), max_length=64, tokenizer=WordPieceTokenizer(vocabulary)
    )
    batches = electra_tf.training_batches(records, InputConfig(batch_size=1))
    (batch,) = batches.take(1)
    padding = batch.input_ids_BL[batch.input_mask_BL == 0]
    assert set(padding.numpy()) == {4}


def test_a_vocabulary_in_place_of_the_sources_own(theirs, tmp_path):
    own = (theirs / "discriminator" / "vocab.txt").read_text()
    file = tmp_path / "words.txt"
    file.write_text(own.replace(ENTRIES[20], "another"))
    model = tiny.networks(theirs / "discriminator", file)
    assert "another" in model.tokenizer.vocabulary.ids
    file.write_text(own + "".join(f"more{n}\n" for n in range(SPARE + 1)))
    with pytest.raises(InputError, match=r"40 rows.*41 entries"):
        tiny.networks(theirs / "discriminator", file)
