"""Tags and spans convert into each other in all schemes, by conlleval's rules."""

import collections
import gzip
import itertools

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.data.conll import read_conll
from electra_tf.tasks.data.schemes import (
    as_span_tags,
    conlleval_spans,
    is_span_scheme,
    scheme_of,
    to_bioes,
    to_scheme,
)

# One sentence in all schemes: two adjacent spans of A, then two of B.
SPANS = [(0, 1, "A"), (2, 2, "A"), (3, 5, "B"), (7, 7, "B")]
SCHEMES = {
    name: tags.split()
    for name, tags in {
        "IOB1": "I-A I-A B-A I-B I-B I-B O I-B",
        "IOB2": "B-A I-A B-A B-B I-B I-B O B-B",
        "IOE1": "I-A E-A I-A I-B I-B I-B O I-B",
        "IOE2": "I-A E-A E-A I-B I-B E-B O E-B",
        "BIOES": "B-A E-A S-A B-B I-B E-B O S-B",
    }.items()
}
BIOES_TAGS = ["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in "AB")]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", []),
        ("I-NP I-VP O", [(0, 0, "NP"), (1, 1, "VP")]),
        ("B-A E-A I-A", [(0, 1, "A"), (2, 2, "A")]),
        ("S-A I-A E-A", [(0, 0, "A"), (1, 2, "A")]),
        ("B-A E-B", [(0, 0, "A"), (1, 1, "B")]),
        ("[-A I-A ]-A . ]-A", [(0, 0, "A"), (1, 1, "A"), (2, 2, "A"), (4, 4, "A")]),
        ("B-X-Y I-X-Y I-X", [(0, 1, "X-Y"), (2, 2, "X")]),
        ("B I I O B", [(0, 2, ""), (4, 4, "")]),
    ],
)
def test_spans_begin_after_a_type_change_or_an_end(tags, spans):
    assert conlleval_spans(tags.split()) == spans


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_writes_the_same_spans(scheme):
    tags = SCHEMES[scheme]
    assert conlleval_spans(tags) == SPANS
    assert to_scheme(tags) == SCHEMES["BIOES"]
    assert to_scheme(SCHEMES["BIOES"], scheme) == tags
    assert scheme_of([tags, ["O"]]) == (scheme, [])
    other = ["I-A", "B-A"] if scheme in ("IOB2", "BIOES") else ["B-A", "O"]
    assert scheme_of([tags, other, tags]) == (scheme, [1])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_conversion_preserves_spans(scheme):
    for tags in itertools.product(BIOES_TAGS, repeat=4):
        spans, written = conlleval_spans(tags), to_scheme(tags, scheme)
        assert conlleval_spans(written) == spans
        assert to_scheme(to_scheme(written), scheme) == written
        # Each word with a tag is in one span; other words are in none.
        covered = [i for first, last, _ in spans for i in range(first, last + 1)]
        assert covered == [i for i, tag in enumerate(tags) if tag != "O"]


def test_is_span_scheme_requires_marks_with_types_or_o():
    assert is_span_scheme({"O", "B-NP", "I-NP", "E-X-Y", "S-1"})
    assert is_span_scheme({"O"})
    assert not is_span_scheme(set())
    for tag in ("NN", ".", "B", "B-", "-NP", "b-NP", "X-NP", "BB-NP", ""):
        assert not is_span_scheme({"O", "B-NP", tag})


SPELLINGS = {  # the tags of SPANS
    "BILOU": "B-A L-A U-A B-B I-B L-B O U-B",
    "BMES": "B-A E-A S-A B-B M-B E-B O S-B",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_other_letters_are_those_of_bioes(spelling):
    tags = SPELLINGS[spelling].split()
    new = to_bioes(collections.Counter(tags))
    assert [new.get(tag, tag) for tag in tags] == SCHEMES["BIOES"]
    assert len({new.get(tag, tag) for tag in tags}) == len(set(tags))
    assert conlleval_spans(as_span_tags(tags)) == SPANS


def test_tags_that_need_no_other_letters():
    usual = [*SCHEMES.values(), ["O"], [], ["B-L", "I-L", "O"]]
    words = [["NN", "VB"], ["O", "PER", "LOC"], ["B", "I", "L"], ["X-A", "Y-A"]]
    mixed = [["B-A", "L-A", "X-A"], ["U-A", "S-A"], ["B_A", "I-A"], ["O", "A-B-"]]
    for tags in [*usual, *words, *mixed]:
        assert to_bioes(dict.fromkeys(tags, 1)) == {}
    counts = {"O": 900, "U-A": 90, "tag": 1}
    assert to_bioes(counts, 1) == {"U-A": "S-A"}
    assert to_bioes(counts) == to_bioes({"O": 9, "U-A": 1, "x": 2}, 9) == {}


def test_tags_that_are_errors():
    for tag in ("NN", "X-NP", ""):
        with pytest.raises(InputError, match=repr(tag)):
            conlleval_spans(["O", tag])


def test_conll_2000_is_restored_byte_for_byte_from_bioes(data):
    for name in ("train", "test"):
        path = data / f"tagging/conll2000/{name}.txt.gz"
        tagged, pos = (read_conll(path, 0, column) for column in (2, 1))
        assert scheme_of([sentence.tags for sentence in tagged]) == ("IOB2", [])
        lines = []
        for sentence, parts in zip(tagged, pos, strict=True):
            tags = to_scheme(to_scheme(sentence.tags), "IOB2")
            columns = sentence.words, parts.tags, tags
            lines += [" ".join(row) for row in zip(*columns, strict=True)] + [""]
        text = "\n".join(lines) + "\n"
        assert text == gzip.decompress(path.read_bytes()).decode()
