"""Sentences of columns and of JSON; a bad line drops its sentence, with its place."""

import json

import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.conll import read_conll
from electra_tf.tasks.tag_task import read_sentences
from electra_tf.tasks.task_data import Reading

TEXT = "-DOCSTART- -X- O\n\nThe DT B-NP\ncat NN I-NP\n\n \t\nsat  VBD\tB-VP\n"


def fields(sentences):
    return [(s.words, s.tags, s.line) for s in sentences]


@pytest.fixture
def read(write):
    """Return a function that reads columns: words, tags and line of each sentence."""

    def of(content, *columns, name="a.txt", notify=print):
        path = write(name, content)
        sentences = read_conll(path, *columns, notify)
        assert all(sentence.source == path for sentence in sentences)
        return fields(sentences)

    return of


def test_blank_lines_and_docstart_end_a_sentence(read):
    expected = [(("The", "cat"), ("B-NP", "I-NP"), 3), (("sat",), ("B-VP",), 7)]
    assert read(TEXT, 0, 2) == read(TEXT, -3, -1) == expected
    assert read(TEXT, 0, 1)[0][1] == ("DT", "NN")
    assert read(TEXT, 0, None) == [(words, None, line) for words, _, line in expected]
    content = ("\ufeff" + TEXT).replace("\n", "\r\n")
    for name in ("a.txt.gz", "a.xz", "a"):
        assert read(content, 0, 2, name=name) == expected
    together = read("a O\n-DOCSTART- -X- -X- O\nb O", 0, 1)
    assert [words for words, *_ in together] == [("a",), ("b",)]


def test_spaces_tabs_and_line_feeds_separate(read):
    words = ("1\u00a0000", "a\u2028b", "c\x0bd", "\u3000", "e\x85", "#")
    text = "".join(f" {word} \t O \n" for word in words)
    assert read(text, 0, 1) == [(words, ("O",) * 6, 1)]
    assert read("\n".join(words), 0, None) == [(words, None, 1)]


def test_comments_of_conllu_are_skipped_and_reported(read):
    text, lines = "# newdoc\n# sent_id = 1\nThe D\n# S\n\n# text = # a\n# #\n", []
    sentences = read(text, 0, 1, notify=lines.append)
    assert [words for words, *_ in sentences] == [("The", "#"), ("#",)]
    (line,) = lines
    assert "3 lines" in line
    assert "line 1, '# newdoc'" in line


COMMENTS = {  # content, column of the tag, words of the sentences
    "an id of four columns": (
        "# id 1\tdomain=en\na _ _ O\n# _ _ O\n\n# id 2 domain=en\nb _ _ B-X\n", -1,
        [("a", "#"), ("b",)],
    ),
    "an id of another number of columns": (
        "# id 1 domain=de split=dev\na O\n\n# id 2\nb O\n\nc O\n", -1, ["a", "b", "c"],
    ),
    "a source": (
        "#\tn.de vom 3. Mai [2005]\n1\ta\tO\n\n#\thttp://n.de [2005]\n1\tb\tO\n", -1,
        [("1",), ("1",)],
    ),
    "a document of CoNLL-2012": (
        "#begin document (a/b); part 000\na O\n\n#end document\n", -1, ["a"],
    ),
    "a file of WebAnno": (
        "#FORMAT=WebAnno TSV 3.2\n#T_SP=NER|value\n\n#Text=a b\na\tO\nb\tO\n", -1,
        [("a", "b")],
    ),
    "words alone": ("# id 1 x\na\n#\n\n#\nb\n", None, [("a", "#"), ("#", "b")]),
    "a hash with a tag of its own": ("# #\n5 CD\n\na DT\n", -1, [("#", "5"), "a"]),
    "a rare hash": ("# hash SYM\na b C\n\na b C\n\na b C\n", -1, ["a", "a", "a"]),
    "a tag of hashtags": ("# HT\nb O\n\n#foo HT\n", -1, [("#", "b"), ("#foo",)]),
    "hashtags": ("#a B-tag\n# O\nb O\n\n#b I-tag\n", -1, [("#a", "#", "b"), ("#b",)]),
}  # fmt: skip


@pytest.mark.parametrize(("content", "tag", "words"), COMMENTS.values(), ids=COMMENTS)
def test_a_hash_is_a_comment_by_its_columns(read, content, tag, words):
    sentences = read(content, 0, tag)
    assert [words for words, *_ in sentences] == list(map(tuple, words))


def test_a_hash_with_a_space_before_a_usual_tag_is_an_error(read):
    with pytest.raises(InputError, match=r"a\.txt:3: another number of columns"):
        read("a O\n\n# 1 O\nb O\n", 0, -1)


def conllu(*rows):
    return "".join("\t".join([*row, *"_" * (10 - len(row))]) + "\n" for row in rows)


def test_ranges_and_empty_nodes_of_conllu_are_skipped(read, write):
    lemmas = ("De", "de", "P"), ("le", "le", "D"), ("un", "un", "N"), (".", ".", "U")
    words = [(str(n), *lemma) for n, lemma in enumerate(lemmas, 1)]
    nodes = [("1-2", "Du"), *words[:3], ("3.1", "vu", "voir", "V"), words[3]]
    content, lines = "# text = Du\n" + conllu(*nodes) + "\n" + conllu(*words), []
    expected = ("De", "le", "un", "."), ("P", "D", "N", "U")
    found = read(content, 1, 3, name="a.conllu", notify=lines.append)
    assert [(words, tags) for words, tags, _ in found] == [expected] * 2
    assert "2 lines skipped as ranges" in lines[1]
    (first, _) = read_conll(write("a.conllu", content), 1, 3)
    assert list(map(first.line_of, range(4))) == [3, 4, 5, 7]
    with pytest.raises(InputError, match=r"word_column=1 --set data\.tag_column=3"):
        read(content, 0, -1, name="a.conllu")


def test_words_have_spaces_where_each_line_has_tabs(read):
    rows = ("1", "Hà Nội", "x", "PROPN"), ("2", "là", "x", "AUX"), ("3", "1 000", "x")
    for name in ("a.conllu", "a.txt"):
        (sentence,) = read(conllu(*rows), 1, 3, name=name)
        assert sentence[0] == ("Hà Nội", "là", "1 000")
    assert read("New York\tB\nis\tO\n", 0, -1) == [(("New York", "is"), ("B", "O"), 1)]


NO_WORDS = {  # lines of a sentence, words of the error
    "an index from 0": ("0\tAnna\tB\n1\tsings\tO\n", "column 0.*data.word_column=1 "),
    "an index from 1": ("1 x Anna B\n2 x is O\n", "'1', '2'.*data.word_column=2 "),
    "a document": ("a/b_00 0 0 A X\na/b_00 0 1 of O\n", "'a/b_00'.*word_column=3 "),
    "WebAnno": ("1-1 0-4 Anna B\n1-2 5-7 is O\n", "'1-1', '1-2'.*word_column=2 "),
    "an index alone": ("1 O\n2 O\n", "with data.word_column"),
}


@pytest.mark.parametrize("case", NO_WORDS)
def test_a_column_that_cannot_be_words_is_an_error(read, case):
    content, words = NO_WORDS[case]
    with pytest.raises(InputError, match=rf"a\.txt:1 .*{words}"):
        read(content + "\n" + content, 0, -1)


BAD = {  # lines after a good sentence, line and words of the error
    "too few columns": (b"the B-NP\ncat\n", 4, "too few columns"),
    "a surplus column": (b"New York B-LOC\n", 3, "another number of .*'good O', has 2"),
    "UTF-8": (b"the O\ncaf\xe9 O\n", 4, "invalid UTF-8"),
    "NUL": (b"th\0e O\n", 3, "NUL"),
    "a carriage return": (b"the O\rcat O\n", 3, "carriage return"),
}


@pytest.mark.parametrize(("content", "line", "words"), BAD.values(), ids=BAD)
def test_bad_lines_are_errors(read, content, line, words):
    content = b"good O\n\n" + content + b"\nlast O\n"
    with pytest.raises(InputError, match=rf"a\.txt:{line}: .*{words}"):
        read(content, 0, 1)


ERRORS = {  # content, columns, name of the file, words
    "no tokens": ("-DOCSTART- O\n\n \n", (0, 1), "a.txt", "a.txt must have a valid"),
    "no text": ("\ufeff\n", (0, 1), "a.txt", "a.txt must have a valid sentence"),
    "one column twice": (TEXT, (0, 0), "a.txt", "both are 0"),
    "the last column twice": (TEXT, (-1, -1), "a.txt", "both are -1"),
    # The first column must not be taken for the last one too.
    "a word alone": ("alone\n", (0, -1), "a.txt", "too few columns"),
    "two columns from the end": ("a b\n", (1, -1), "a.txt", "too few columns"),
    "two columns from the start": ("a b\n", (-2, 0), "a.txt", "too few columns"),
    "an empty word": ("The cat\tO\n\tO\n", (0, 1), "a.txt", "a.txt:2: no word"),
    "JSON": ('{"words": ["a"]}\n', (0, 1), "a.txt", "named .jsonl"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "columns", "name", "words"), ERRORS.values(), ids=ERRORS
)
def test_files_without_sentences_raise(read, content, columns, name, words):
    with pytest.raises(InputError, match=words):
        read(content, *columns, name=name)


@pytest.mark.parametrize("header", ["token tag", "Word\tPOS", "form ner_tags"])
def test_header_lines_are_refused(read, header):
    with pytest.raises(InputError, match=r"a\.txt:1.*delete"):
        read(f"{header}\na N\nb V\n", 0, -1)
    assert read("Wort Tag\na N\n", 0, -1)


# JSON.

GOOD = {"tokens": ["Anna", "in", "Bern"], "ner_tags": ["B-PER", "O", "B-LOC"]}
NUMBERS = {**GOOD, "ner_tags": [1, 0, 2]}
TWO = {**GOOD, "pos_tags": ["NN", "IN", "NN"]}


@pytest.fixture
def read_json(write):
    """Return a function that reads records: sentences and notes."""

    def of(*records, name="a.jsonl", **settings):
        path, notes = write(name, "\n".join(map(json.dumps, records))), []
        reading = Reading(DataConfig(**settings), notes.append)
        return read_sentences(path, reading).items, notes

    return of


def test_keys_and_names_of_tags_are_settings(read_json):
    ((sentence,), _) = read_json(TWO, label_column="pos_tags")
    assert sentence.tags == ("NN", "IN", "NN")
    ((sentence,), _) = read_json(NUMBERS, tag_names=("O", "B-PER", "B-LOC"))
    assert sentence.tags == ("B-PER", "O", "B-LOC")


KEYS = {  # records, settings, words of the error
    "two lists of tags": ([TWO], {}, r"a\.jsonl .*'pos_tags'.*--label_column"),
    "another list of words": (
        [GOOD], {"text_columns": ("form",)}, "words: none, tags: 'ner_tags'",
    ),
    "no list of tags": ([GOOD], {"label_column": "x"}, "words: 'tokens', tags: none"),
    "numbers": ([GOOD, NUMBERS], {}, r"jsonl:2: .*'ner_tags' has 1.*--tag_names"),
    "few names": (
        [NUMBERS], {"tag_names": ("O", "B")}, r"jsonl:1: .*has 2, of 2 --tag_names",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("records", "settings", "words"), KEYS.values(), ids=KEYS)
def test_keys_that_are_errors(read_json, records, settings, words):
    with pytest.raises(InputError, match=words):
        read_json(*records, **settings)


BAD_RECORDS = {
    "lengths": ({**GOOD, "ner_tags": ["O"]}, "3 'tokens' and 1 'ner_tags'"),
    "no list": ({**GOOD, "tokens": "Anna in Bern"}, "'tokens' is 'Anna in Bern'"),
    "no tags": ({"tokens": ["Anna"]}, "'ner_tags' is missing"),
    "null": ({**GOOD, "tokens": None}, "'tokens' is missing"),
    "empty": ({"tokens": [], "ner_tags": []}, r"'tokens' is \[\]"),
    "space": ({**GOOD, "tokens": ["New York", "in", "x"]}, "'New York'"),
    "half a pair": ({**GOOD, "ner_tags": ["O", "O", "B-\ud83d"]}, r"'B-\\ud83d'"),
    "true": ({**GOOD, "ner_tags": [True, "O", "O"]}, "True"),
}


@pytest.mark.parametrize(("record", "words"), BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_bad_records_are_errors(read_json, record, words):
    with pytest.raises(InputError, match=rf"a\.jsonl:2: no sentence: .*{words}"):
        read_json(GOOD, record)
