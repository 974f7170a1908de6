import gzip
import itertools

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.conll import read_conll
from electra_tf.tasks.schemes import (
    bioes,
    conlleval_spans,
    is_span_scheme,
    scheme_of,
    to_bioes,
    to_scheme,
    write_spans,
)
from electra_tf.text.data_errors import DataErrorLog

# One sentence in all schemes: two adjacent spans of A, then two of B.
SPANS = [(0, 1, "A"), (2, 2, "A"), (3, 5, "B"), (7, 7, "B")]
SCHEMES = {
    "IOB1": "I-A I-A B-A I-B I-B I-B O I-B",
    "IOB2": "B-A I-A B-A B-B I-B I-B O B-B",
    "IOE1": "I-A E-A I-A I-B I-B I-B O I-B",
    "IOE2": "I-A E-A E-A I-B I-B E-B O E-B",
    "BIOES": "B-A E-A S-A B-B I-B E-B O S-B",
}
BIOES_TAGS = ["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in "AB")]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_schemes_give_the_same_spans(scheme):
    tags = SCHEMES[scheme].split()
    assert conlleval_spans(tags) == SPANS
    assert to_bioes(tags) == SCHEMES["BIOES"].split()


def test_a_span_begins_after_a_type_change_or_an_end():
    assert conlleval_spans(["I-NP", "I-VP", "O"]) == [(0, 0, "NP"), (1, 1, "VP")]
    assert conlleval_spans(["B-A", "E-A", "I-A"]) == [(0, 1, "A"), (2, 2, "A")]
    assert conlleval_spans(["S-A", "I-A", "E-A"]) == [(0, 0, "A"), (1, 2, "A")]
    assert conlleval_spans(["B-A", "E-B"]) == [(0, 0, "A"), (1, 1, "B")]


def test_brackets_are_spans_of_one_word():
    assert conlleval_spans(["[-A", "I-A", "]-A", ".", "]-A"]) == [
        (0, 0, "A"),
        (1, 1, "A"),
        (2, 2, "A"),
        (4, 4, "A"),
    ]


def test_a_type_may_contain_hyphens_or_be_missing():
    assert conlleval_spans(["B-X-Y", "I-X-Y", "I-X"]) == [(0, 1, "X-Y"), (2, 2, "X")]
    assert to_bioes(["B", "I", "I", "O", "B"]) == ["B", "I", "E", "O", "S"]


def test_bioes_tags_preserve_spans():
    assert conlleval_spans([]) == []
    for tags in itertools.product(BIOES_TAGS, repeat=4):
        spans = conlleval_spans(tags)
        written = bioes(spans, 4)
        assert conlleval_spans(written) == spans
        assert to_bioes(written) == written
        # Each word with a tag is in one span; other words are in none.
        covered = [i for first, last, _ in spans for i in range(first, last + 1)]
        assert covered == [i for i, tag in enumerate(tags) if tag != "O"]


def test_is_span_scheme_requires_marks_with_types_or_o():
    assert is_span_scheme({"O", "B-NP", "I-NP", "E-X-Y", "S-1"})
    assert is_span_scheme({"O"})
    assert not is_span_scheme(set())
    for tag in ("NN", ".", "B", "B-", "-NP", "b-NP", "X-NP", "BB-NP", ""):
        assert not is_span_scheme({"O", "B-NP", tag})


@pytest.mark.parametrize("tag", ["NN", "X-NP", ""])
def test_a_tag_that_marks_no_span_is_an_error(tag):
    with pytest.raises(InputError, match=repr(tag)):
        conlleval_spans(["O", tag])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_write_spans_and_scheme_of_agree(scheme):
    tags = SCHEMES[scheme].split()
    assert (
        write_spans(conlleval_spans(SCHEMES["BIOES"].split()), len(tags), scheme)
        == tags
    )
    assert to_scheme(SCHEMES["BIOES"].split(), scheme) == tags
    assert scheme_of([tags, ["O"]]) == (scheme, [])
    other = ["I-A", "B-A"] if scheme in ("IOB2", "BIOES") else ["B-A", "O"]
    assert scheme_of([tags, other, tags]) == (scheme, [1])
    with pytest.raises(InputError, match="'BILOU'"):
        to_scheme(tags, "BILOU")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_to_scheme_preserves_spans(scheme):
    for tags in itertools.product(BIOES_TAGS, repeat=4):
        written = to_scheme(tags, scheme)
        assert conlleval_spans(written) == conlleval_spans(tags)
        assert to_scheme(to_bioes(written), scheme) == written


def test_conll_2000_is_restored_byte_for_byte_from_bioes(data, tmp_path):
    for name in ("train", "test"):
        path = data / f"tagging/conll2000/{name}.txt.gz"
        log = DataErrorLog("stop", tmp_path / "log")
        tagged, pos = (read_conll(path, 0, column, log) for column in (2, 1))
        scheme, misfits = scheme_of([sentence.tags for sentence in tagged])
        assert (scheme, misfits) == ("IOB2", [])
        lines = []
        for sentence, parts in zip(tagged, pos, strict=True):
            bioes_tags = to_bioes(sentence.tags)
            assert set(bioes_tags) != {"O"} or set(sentence.tags) == {"O"}
            columns = sentence.words, parts.tags, to_scheme(bioes_tags, scheme)
            lines += [" ".join(row) for row in zip(*columns, strict=True)] + [""]
        text = "\n".join(lines) + "\n"
        assert text == gzip.decompress(path.read_bytes()).decode()
