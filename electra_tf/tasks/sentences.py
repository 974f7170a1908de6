"""Read sentences of words and tags: column files, or JSON with lists of both."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.conll import Sentence, read_conll
from electra_tf.tasks.split_column import unused_split_column
from electra_tf.tasks.tables import read_json
from electra_tf.text.compression import BROKEN, inner_suffix, open_compressed
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.json_records import SUFFIXES, begins_json, describe_json

WORD_KEYS = ("words", "tokens")
"""Usual keys of the words of a sentence."""
_TAG_KEYS = ("ner_tags", "tags", "labels", "chunk_tags", "pos_tags", "upos", "xpos")
_WORD = r"[^ \t\r\n]+"
_NO_COLUMNS = (".csv", ".parquet", ".xml", ".html")


def read_sentences(
    path: str,
    settings: DataConfig,
    log: DataErrorLog,
    notify: Callable[[str], None] = print,
) -> list[Sentence]:
    """Read a labelled file."""
    kind = inner_suffix(path)
    if kind in _NO_COLUMNS:
        raise InputError(
            "Sentences with tags must be a column file (.txt, .conll, .tsv) with a "
            "word on each line, or JSON lines (.jsonl) with lists of words and tags",
            f"{path!r}, a {kind} file",
            "Convert it: a line is a word, a tab and its tag; a blank line ends a "
            "sentence",
        )
    if kind in SUFFIXES:
        return _read_json(path, settings, log, notify)
    if begins_json(_first_line(path)):
        raise InputError(
            "A file of JSON must be named .jsonl or .json",
            f"{path!r}, whose first line is JSON",
            "Rename the file",
        )
    columns = settings.word_column, settings.tag_column
    return read_conll(path, *columns, log, notify=notify)


def _first_line(path: str) -> str:
    try:
        with open_compressed(path) as file:
            return file.readline().decode("utf-8", "replace")
    except (OSError, *BROKEN):
        return ""  # `read_conll` raises or reports the error


def require_json(path: str) -> None:
    """Raise an error if a file has no keys, which flags name."""
    if inner_suffix(path) not in SUFFIXES:
        raise InputError(
            "--text_columns, --label_column and --tag_names must be used with JSON",
            f"{path!r}, a column file",
            "Leave them out; in training, data.word_column and data.tag_column number "
            "the columns",
        )


def _read_json(
    path: str,
    settings: DataConfig,
    log: DataErrorLog,
    notify: Callable[[str], None],
) -> list[Sentence]:
    records, sentences = [], []
    for line, record in read_json(path, log):
        if isinstance(record, dict):
            records.append((line, record))
        else:
            _report(log, path, line, f"{describe_json(record)}, not an object")
    values = [record for _, record in records]
    (words, tags), names = _keys(values, settings, path), settings.tag_names
    for line, record in records:
        if not names and isinstance(record.get(tags), list):
            _require_names(record, tags, f"{path}:{line}")
        if problem := _problem(record, words, tags, names):
            _report(log, path, line, problem)
            continue
        tags_of_words = (
            names[tag] if isinstance(tag, int) else tag for tag in record[tags]
        )
        sentence = Sentence(
            tuple(record[words]), tuple(tags_of_words), path, line, True
        )
        sentences.append(sentence)
    if unused := unused_split_column(values, (words, tags)):
        notify(
            f"warning: {path}: {unused!r} holds names of splits, but is not used: "
            "write each split to a file, train.jsonl, dev.jsonl and test.jsonl"
        )
    return sentences


def _report(log: DataErrorLog, path: str, line: int, problem: str) -> None:
    detail = f"{problem}; the sentence is dropped"
    log.add(DataError(path, line, "no sentence", detail, "Correct the record"))


def _keys(
    records: Sequence[Mapping[str, Any]], settings: DataConfig, path: str
) -> tuple[str, str]:
    """Return the keys of words and tags."""
    known = list(dict.fromkeys(key for record in records for key in record))
    words = settings.text_columns or [key for key in WORD_KEYS if key in known]
    tags = [key for key in _TAG_KEYS if key in known]
    if settings.label_column:
        tags = [settings.label_column]
    if len(words) == len(tags) == 1 and {words[0], tags[0]} <= set(known):
        return words[0], tags[0]
    raise InputError(
        "JSON for tagging must have one list of words and one of tags in each record",
        f"{path} with the keys {format_list(known, 30)}; words: "
        f"{format_list(words) or 'none'}, tags: {format_list(tags) or 'none'}",
        "Name the keys, for example --text_columns=tokens --label_column=ner_tags",
    )


def _problem(
    record: Mapping[str, Any], words: str, tags: str, names: Sequence[str]
) -> str | None:
    """Return why a record is not a sentence with tags; None: it is one."""
    for key in (words, tags):
        if not isinstance(record.get(key), list) or not record[key]:
            value = f"is {record[key]!r:.60}" if key in record else "is missing"
            return f"{key!r} {value}, not a list with items"
    counts = len(record[words]), len(record[tags])
    if counts[0] != counts[1]:
        return f"{counts[0]} {words!r} and {counts[1]} {tags!r}"
    for key in (words, tags):
        for value in record[key]:
            if key == tags and type(value) is int:
                if not 0 <= value < len(names):
                    return f"{key!r} has {value}, of {len(names)} --tag_names"
            elif not isinstance(value, str) or not re.fullmatch(_WORD, value):
                return f"{key!r} has {value!r:.60}, not a string without white space"
    return None


def _require_names(record: Mapping[str, Any], tags: str, place: str) -> None:
    """Raise an error for tags as integers, whose names are not in the file."""
    numbers = [tag for tag in record[tags] if type(tag) is int]
    if numbers:
        raise InputError(
            "Tags must be strings, or integers with --tag_names",
            f"{place}: {tags!r} has {numbers[0]}, without --tag_names",
            "Pass the names in the order of their numbers: --tag_names=O,B-PER,I-PER "
            f"(of the library datasets: data.features[{tags!r}].feature.names)",
        )
