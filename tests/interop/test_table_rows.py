"""Token tables whose rows are not the entries of a vocabulary in this package's order.

[PAD] may have any id in another library, and a table may have more rows than entries.
"""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tiny
from conftest import GOLDEN as ALL_GOLDEN
from tokenizers import BertWordPieceTokenizer

import electra_tf
from electra_tf.config.finetuning import DataConfig
from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.interop.names import FORMATS
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import PAD, Vocabulary

GOLDEN = ALL_GOLDEN / "interop"
HALVES = ("discriminator", "generator")
OTHERS = tuple(name for name in FORMATS if name != "electra_tf")
VOCABULARIES = {"keras_hub": "assets/tokenizer/vocabulary.txt"}
TABLE, BIAS = "word_embeddings.weight", "generator_lm_head.bias"
TOKENS = np.array([[2, 7, 30, 12, 31, 3, 0, 0], [2, 8, 9, 10, 11, 12, 13, 3]])
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 0, 0], [0] * 4 + [1] * 4])
MASK = np.array([[1] * 6 + [0] * 2, [1] * 8])
SPARE = 8
# KerasHub and Model Garden have no setting for the epsilon of the golden networks.
SMALL = 1e-3


def write_half(folder, half, rows, **config):
    """Write half of the golden pair, with table and bias changed by a function."""
    names = (TABLE, BIAS, "generator_lm_head.weight")

    def change(tensors):
        return {n: rows(a) if n.endswith(names) else a for n, a in tensors.items()}

    tiny.huggingface(folder / half, change, half, **config)


@pytest.fixture(scope="module")
def entries():
    return (GOLDEN / "huggingface_discriminator" / "vocab.txt").read_text().split("\n")


@pytest.fixture(scope="module")
def order(entries):
    """The golden rows in the order of a library that has [PAD] as entry 4."""
    return [1, 2, 3, 4, 0, *range(5, len(entries) - 1)]


@pytest.fixture(scope="module")
def moved(entries, order, tmp_path_factory):
    """The golden pair with [PAD] as entry 4, as two folders of Hugging Face."""
    parent = tmp_path_factory.mktemp("moved")
    for half in HALVES:
        write_half(parent, half, lambda rows: rows[order])
        text = "".join(f"{entries[row]}\n" for row in order)
        (parent / half / "vocab.txt").write_text(text)
    return parent


@pytest.fixture(scope="module")
def ours(moved, tmp_path_factory):
    target = tmp_path_factory.mktemp("rows") / "ours"
    convert_checkpoint(f"{moved}/discriminator,{moved}/generator", target)
    return target


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """The golden pair with more rows than entries, all with large values."""
    parent = tmp_path_factory.mktemp("padded")
    spare = np.random.default_rng(0).normal(3, 1, (SPARE, 1)).astype(np.float32)

    def with_spare_rows(rows):
        more = np.broadcast_to(spare, (SPARE, rows[0].size))
        return np.concatenate([rows, more.reshape(SPARE, *rows.shape[1:])])

    for half in HALVES:
        write_half(parent, half, with_spare_rows, vocab_size=32 + SPARE)
    return parent


@pytest.fixture(scope="module")
def our_padded(padded, tmp_path_factory):
    target = tmp_path_factory.mktemp("rows") / "padded"
    convert_checkpoint(f"{padded}/discriminator,{padded}/generator", target)
    return target


def tensors_of(folder):
    return safetensors.numpy.load_file(folder / "model.safetensors")


def assert_equal_models(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("format", OTHERS)
def test_a_conversion_back_restores_the_order(format, ours, moved, tmp_path):
    report = convert_checkpoint(ours, tmp_path / "back", format, force=True)
    assert all(comparison.largest < SMALL for comparison in report.comparisons)
    file = tmp_path / "back" / VOCABULARIES.get(format, "vocab.txt")
    assert file.read_bytes() == (moved / "discriminator" / "vocab.txt").read_bytes()
    # A conversion of the conversion: the same networks, and again the same order.
    convert_checkpoint(tmp_path / "back", tmp_path / "again", force=True)
    model = tiny.networks(str(tmp_path / "again"))
    assert model.tokenizer.settings.pad_id == 4
    expected = tiny.networks(str(ours)).networks[0].without_head().weights
    assert_equal_models(dict(model.networks[0].without_head().weights), dict(expected))


def test_hugging_face_files_are_those_of_the_source(ours, moved, tmp_path):
    convert_checkpoint(ours, tmp_path / "back", "huggingface")
    for half, folder in (("discriminator", ""), ("generator", "generator")):
        theirs = tensors_of(tmp_path / "back" / folder)
        source = tensors_of(moved / half)
        source.pop("generator_lm_head.weight", None)
        source = {n: a for n, a in source.items() if "position_ids" not in n}
        assert_equal_models(theirs, source)
        config = json.loads((tmp_path / "back" / folder / "config.json").read_text())
        assert config["pad_token_id"] == 4
    stored = json.loads((tmp_path / "back" / "tokenizer.json").read_text())
    assert stored["model"]["vocab"][PAD] == 4


@pytest.mark.parametrize("number", [1, 4, 700])
def test_ids_are_those_of_the_other_library_with_two_exchanged(number, tmp_path):
    cases = json.loads((ALL_GOLDEN / "tokenization.json").read_text())
    texts = {case["text"] for case in cases if "[" not in case["text"]}
    texts = [f"{a} {b}" for a in sorted(texts) for b in sorted(texts)]
    texts = texts[:: len(texts) // 50][:50]
    lines = (ALL_GOLDEN / "vocab.txt").read_text().rstrip("\n").split("\n")
    lines.insert(number, lines.pop(0))
    (tmp_path / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    theirs = BertWordPieceTokenizer(str(tmp_path / "vocab.txt"))
    vocabulary = Vocabulary.read(tmp_path / "vocab.txt", pad_anywhere=True)
    settings = TokenizationConfig(pad_id=vocabulary.pad_id, max_word_characters=100)
    tokenizer = Tokenizer(vocabulary, settings)
    exchanged = {0: number, number: 0}
    ids = [tokenizer.encode(text) for text in texts]
    ids = [[exchanged.get(i, i) for i in row] for row in ids]
    assert ids == [theirs.encode(t, add_special_tokens=False).ids for t in texts]
    assert tokenizer.original_text == (tmp_path / "vocab.txt").read_text()
    assert tokenizer.original_ids == theirs.get_vocab()


def test_pad_anywhere_survives_training_of_a_classifier(moved, tmp_path):
    source = str(moved / "discriminator")
    model = electra_tf.TextClassifier.from_preset(
        source, 2, settings=electra_tf.FinetuningConfig(data=DataConfig(max_length=16))
    )
    theirs = tensors_of(moved / "discriminator")
    theirs = next(array for name, array in theirs.items() if TABLE in name)
    np.testing.assert_array_equal(
        model.encoder.embeddings.word_embeddings[0], theirs[4]
    )
    model.save(tmp_path / "model.keras")
    model = electra_tf.load_model(tmp_path / "model.keras")
    assert model.tokenizer.settings.pad_id == 4
    convert_checkpoint(tmp_path / "model.keras", tmp_path / "tf1", "tf1")
    expected = (moved / "discriminator" / "vocab.txt").read_bytes()
    assert (tmp_path / "tf1" / "vocab.txt").read_bytes() == expected


def test_a_vocabulary_alone_must_begin_with_pad(moved):
    file = str(moved / "discriminator" / "vocab.txt")
    with pytest.raises(InputError, match=r"\[PAD\] on line 5.*convert --from"):
        electra_tf.TextClassifier.from_preset("tiny", 2, vocabulary=file)


def test_vocab_is_used_in_place_of_the_sources_own(moved, entries, tmp_path):
    file = tmp_path / "words.txt"
    own = (moved / "discriminator" / "vocab.txt").read_text()
    file.write_text(own.replace(entries[20], "another"))
    model = tiny.networks(str(moved / "discriminator"), str(file))
    assert "another" in model.tokenizer.vocabulary.ids
    assert model.main.origin.pad_id == 4


@pytest.mark.parametrize("format", OTHERS)
def test_spare_rows_leave_again(format, our_padded, padded, tmp_path, capsys):
    report = convert_checkpoint(our_padded, tmp_path / "back", format, force=True)
    assert all(comparison.largest < SMALL for comparison in report.comparisons)
    file = tmp_path / "back" / VOCABULARIES.get(format, "vocab.txt")
    expected = (padded / "discriminator" / "vocab.txt").read_bytes()
    assert file.read_bytes() == expected
    model = tiny.networks(str(tmp_path / "back"))
    entries = len(model.tokenizer.vocabulary)
    assert model.networks[0].shape.vocabulary_size == entries + SPARE
    assert model.networks[0].shape.spare_rows == SPARE
    assert f"{SPARE} of {entries + SPARE}" in capsys.readouterr().err
    if format == "huggingface":
        assert_equal_models(
            tensors_of(tmp_path / "back"), tensors_of(padded / "discriminator")
        )


def test_a_vocabulary_larger_than_the_table_is_an_error(padded):
    file = padded / "discriminator" / "vocab.txt"
    long = padded / "long.txt"
    long.write_text(file.read_text() + "".join(f"more{n}\n" for n in range(9)))
    with pytest.raises(InputError, match=r"40 rows.*41 entries"):
        tiny.networks(str(padded / "discriminator"), str(long))


def test_no_network_predicts_a_spare_row(our_padded):
    network = tiny.networks(str(our_padded)).networks[1]
    model = electra_tf.MaskedLanguageModel(electra_tf.Encoder(network.shape))
    model.build()
    for variable in model.weights:
        part = "head" if "head/" in variable.path else "encoder"
        name = variable.path.split(f"{part}/", 1)[1]
        variable.assign(network.weights[f"{part}/{name}"])
    logits = model(TOKENS, SEGMENTS, MASK, np.tile(np.arange(8), (2, 1)))
    with np.load(GOLDEN / "huggingface_generator" / "outputs.npz") as file:
        expected = file["logits"]
    entries = network.shape.vocabulary_size - SPARE
    own = logits[..., :entries][MASK > 0]
    np.testing.assert_allclose(own, expected[MASK > 0], atol=2e-5)
    assert (tf.nn.softmax(logits)[..., entries:].numpy() == 0).all()
