"""The graph's own matters; test_tokenizer.py holds its ids to the tokenizer's."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.settings import Tokenization
from electra_tf.text.characters import Characters
from electra_tf.text.graph_tokenizer import (
    GraphTokenizer,
    compile_table,
    final_sigma_pattern,
)
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary
from text.plain_tokenizer import tokenize

# What tensorflow-text adds to stock TF Serving, of which we use one.
SERVING_HAS = {
    "CaseFoldUTF8",
    "NormalizeUTF8",
    "RegexSplitWithOffsets",
    "WordpieceTokenizeWithOffsets",
}


@pytest.fixture(scope="module")
def wide(vocabulary):
    """Both tokenizers, with both small sigmas as entries."""
    letters = "ασς中x5.,"
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    tokens = dict.fromkeys([*vocabulary.tokens, *pieces])
    tokenizer = Tokenizer(Vocabulary(tuple(tokens)))
    return tokenizer, tokenizer.graph()


@pytest.fixture(scope="module")
def graph(vocabulary):
    return GraphTokenizer(vocabulary, Tokenization())


def test_text_is_cleaned_and_words_stand_apart(graph):
    texts = ["Café,  ÉTÉ", "中文\tx", "\u200b \0", "ΟΔΟΣ"]
    cleaned = [text.decode() for text in graph.normalize(texts).numpy()]
    assert cleaned == ["cafe , ete", "中 文 x", "", "οδος"]


def test_ids_are_ragged_int32(graph):
    ids = graph(tf.constant(["the user", "", "the"]))
    assert ids.dtype == tf.int32
    assert ids.row_lengths().numpy().tolist() == [2, 0, 1]
    assert graph(tf.constant([], tf.string)).shape[0] == 0


def test_a_single_text_is_told_from_a_batch(graph):
    for text in ("a", [["a"]]):
        with pytest.raises(InputError, match="takes a batch of texts"):
            graph(tf.constant(text))


def test_the_table_holds_every_code_point():
    characters = Characters(Tokenization())
    block_of, splits, values = compile_table(characters)
    for code in [*range(0x3000), 0x4E2D, 0xAC01, 0xF900, 0x1F600, 0xE0080, 0x10FFFF]:
        row = block_of[code // 128] * 128 + code % 128
        become = values[splits[row] : splits[row + 1]]
        assert "".join(chr(c or code) for c in become) == characters[code]
    # Equal blocks are kept once, or the table would take megabytes of each export.
    assert values.nbytes + splits.nbytes + block_of.nbytes < 1_000_000


@pytest.mark.parametrize(
    "between", "\t\n\r \xa0\u2028\u3000\x1c\x85\u200b\u0301.,中x5\ufffd"
)
def test_a_sigma_looks_as_far_as_the_originals_words_reach(wide, between):
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


def test_the_sigma_pattern_asks_for_a_letter_before_and_none_after():
    texts = ["ΑΣ", "ΑΣΑ", "Σ", " Σ", "ΑΣ.Α", "ΑΣ. Α", "Α\u0301Σ\u0301!", "中Σ", "ΑΣΣ"]
    found = tf.strings.regex_replace(texts, final_sigma_pattern(), r"\1ς\2").numpy()
    assert [t.decode().count("ς") for t in found] == [
        text.lower().count("ς") for text in texts
    ]


def test_it_survives_a_saved_model_and_uses_only_what_stock_serving_has(
    graph, tmp_path
):
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
    core = set(tf.raw_ops.__dict__)
    assert {op for op in operations if op not in core} - {"_Arg", "_Retval"} == {
        "WordpieceTokenizeWithOffsets"
    }
    assert "StringLower" not in operations  # it follows the process's locale
    assert "WordpieceTokenizeWithOffsets" in SERVING_HAS
