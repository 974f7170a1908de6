"""Documents with the words of an earlier one are dropped, with a report."""

import json
import random
import unicodedata

from electra_tf.text import builder
from tests.tiny import build_records

WORDS = [f"word{n}" for n in range(2000)]


def document(seed, words=200):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def test_exact_duplicates_have_the_same_words(tmp_path, vocabulary):
    accented = "caf\u00e9 au lait"
    texts = [
        "One  two\nthree.",
        accented,
        "one two three.",  # another case
        "One two three.",
        unicodedata.normalize("NFD", accented),
        "One two, three.",
        "One two\t\nthree.",
    ]
    rows = (json.dumps({"text": text}) for text in texts)
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    output = tmp_path / "records"
    build_records(tmp_path / "a.jsonl", output, vocabulary, deduplicate="exact")
    lines = map(json.loads, (output / "duplicates.jsonl").read_text().splitlines())
    assert {x["line"]: x["kept_line"] for x in lines} == {4: 1, 5: 2, 7: 1}


def test_the_report_lists_what_was_dropped_for_any_number_of_workers(
    tmp_path, vocabulary, monkeypatch
):
    monkeypatch.setattr(builder, "CHUNK_CHARACTERS", 4000)
    first = [document(seed) for seed in range(30)]
    second = [first[3].replace(" ", "\n"), document(100), first[4]]
    (tmp_path / "a.txt").write_text("\n\n".join(first))
    (tmp_path / "b.txt").write_text("\n\n".join(second))
    folders = []
    for workers in (1, 2):
        output = tmp_path / str(workers)
        manifest = build_records(
            tmp_path / "?.txt", output, vocabulary, workers=workers, deduplicate="exact"
        )
        folders.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert folders[0] == folders[1]
    assert manifest.duplicates == {"exact": 2}
    assert manifest.documents == 31
    lines = [json.loads(line) for line in folders[0]["duplicates.jsonl"].splitlines()]
    a, b = (str(tmp_path / f"{name}.txt") for name in "ab")
    places = [(x["source"], x["line"], x["kept_source"], x["kept_line"]) for x in lines]
    assert places == [(b, 1, a, 7), (b, 204, a, 9)]
    # Without the option nothing is dropped, and the report of the old records goes.
    build_records(tmp_path / "?.txt", output, vocabulary, overwrite=True)
    assert not (output / "duplicates.jsonl").exists()
