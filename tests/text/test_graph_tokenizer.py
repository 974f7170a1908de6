"""Properties of the graph tokenizer; test_tokenizer.py compares its ids."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.graph_tokenizer import GraphTokenizer, compile_table
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary
from tests.generated_texts import random_texts
from tests.text.plain_tokenizer import tokenize


@pytest.fixture(scope="module")
def wide(vocabulary):
    """Return both tokenizers, with both small sigmas as entries."""
    letters = "ασς中x5.,"
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    tokens = dict.fromkeys([*vocabulary.tokens, *pieces])
    tokenizer = WordPieceTokenizer(Vocabulary(tuple(tokens)))
    return tokenizer, tokenizer.graph()


@pytest.fixture(scope="module")
def graph(vocabulary):
    return GraphTokenizer(vocabulary, TokenizationConfig())


def test_ids_are_ragged_int32(graph):
    ids = graph(tf.constant(["the user", "", "the"]))
    assert ids.dtype == tf.int32
    assert ids.row_lengths().numpy().tolist() == [2, 0, 1]
    assert graph(tf.constant([], tf.string)).shape[0] == 0


def test_a_tensor_without_a_batch_axis_is_rejected(graph):
    for text in ("a", [["a"]]):
        with pytest.raises(InputError, match="shape"):
            graph(tf.constant(text))


def test_offsets_of_wordpieces(wide):
    tokenizer, graph = wide
    # A mark at the start, letters with marks, a word of two wordpieces, [UNK].
    offsets = graph.encode_with_offsets(
        ["\u0301\tσ\u0301\u0301ς", "", "≠中\u200b ж\u0301ж."]
    )
    vocabulary = tokenizer.vocabulary
    tokens = [vocabulary.tokens[index] for index in offsets.ids.flat_values]
    assert tokens == ["σ", "##ς", "=", "中", "[UNK]", "."]
    assert offsets.starts.to_list() == [[2, 5], [], [0, 1, 4, 7]]
    assert offsets.ends.to_list() == [[5, 6], [], [1, 2, 7, 8]]
    assert offsets.ids.dtype == offsets.starts.dtype == offsets.ends.dtype == tf.int32
    assert graph.encode_with_offsets(tf.constant([], tf.string)).starts.to_list() == []


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("strip_accents", ["always", "never"])
def test_offsets_equal_those_of_the_python_tokenizer(wide, lower_case, strip_accents):
    settings = TokenizationConfig(lower_case=lower_case, strip_accents=strip_accents)
    tokenizer = WordPieceTokenizer(wide[0].vocabulary, settings)
    texts = random_texts(400, seed=3)
    # Characters that become none, two, or two words.
    texts += ["İßŉ≠ǅ豈각\u0903\u200b\u0488", "x" * 201 + "\u0301x"]
    offsets = tokenizer.graph().encode_with_offsets(texts)
    ids, pairs = offsets.ids.to_list(), zip(offsets.starts, offsets.ends, strict=True)
    for text, row, (starts, ends) in zip(texts, ids, pairs, strict=True):
        assert row == tokenizer.encode(text)
        offsets = zip(starts.numpy().tolist(), ends.numpy().tolist(), strict=True)
        assert list(offsets) == tokenizer.piece_offsets(text)


def test_the_compiled_table_equals_the_python_table():
    characters = CharacterTable(TokenizationConfig())
    block_of, splits, values = compile_table(TokenizationConfig())
    for code in [*range(0x3000), 0x4E2D, 0xAC01, 0xF900, 0x1F600, 0xE0080, 0x10FFFF]:
        row = block_of[code // 128] * 128 + code % 128
        result = values[splits[row] : splits[row + 1]]
        assert "".join(chr(c or code) for c in result) == characters[code]
    # Duplicate blocks would take megabytes in each export.
    assert values.nbytes + splits.nbytes + block_of.nbytes < 1_000_000


@pytest.mark.parametrize(
    "between", "\t\n\r \xa0\u2028\u3000\x1c\x85\u200b\u0301.,中x5\ufffd"
)
def test_a_sigma_depends_on_its_word_as_in_the_original(wide, between):
    tokenizer, graph = wide
    texts = [
        f"Α{between}Σ",
        f"ΑΣ{between}Α",
        f"ΑΣ{between}",
        f"{between}Σ",
        f"ΣΣ{between}Σ",
    ]
    expected = [tokenize(text, tokenizer.vocabulary.ids) for text in texts]
    assert graph(texts).to_list() == expected
    assert [tokenizer.encode(text) for text in texts] == expected


def test_a_saved_model_returns_equal_ids_with_serving_operations_only(graph, tmp_path):
    module = tf.Module()
    module.tokenizer = graph
    spec = tf.TensorSpec([None], tf.string)
    module.serve = tf.function(
        lambda text: {"ids": graph(text).to_tensor()}, input_signature=[spec]
    )
    texts = tf.constant(["The user's 中文 ΟΔΟΣ", "a" * 201, "\0"])
    expected = module.serve(texts)["ids"].numpy()
    tf.saved_model.save(module, str(tmp_path))
    restored = tf.saved_model.load(str(tmp_path))
    assert np.array_equal(restored.serve(texts)["ids"], expected)

    definition = module.serve.get_concrete_function().graph.as_graph_def()
    operations = {node.op for node in definition.node}
    operations |= {n.op for f in definition.library.function for n in f.node_def}
    others = operations - set(tf.raw_ops.__dict__) - {"_Arg", "_Retval"}
    assert others == {"WordpieceTokenizeWithOffsets"}  # stock TF Serving has it
    assert "StringLower" not in operations  # its result depends on the locale
