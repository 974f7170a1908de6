"""Exact and near-duplicate documents are dropped, with a report."""

import json
import random
import sys
import unicodedata

import pytest
from tiny import build_records

from electra_tf.config.data import RecordsConfig
from electra_tf.errors import InputError
from electra_tf.text import chunks, duplicates
from electra_tf.text.duplicates import DuplicateIndex

WORDS = [f"word{n}" for n in range(2000)]


def document(seed, words=200):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def edited(text, share, seed=0):
    """Replace a share of the words."""
    words, rng = text.split(), random.Random(seed)
    for position in rng.sample(range(len(words)), round(share * len(words))):
        words[position] = "edited"
    return " ".join(words)


def jaccard(a, b):
    sets = []
    for text in (a, b):
        words = text.lower().split()
        sets.append({tuple(words[i : i + 5]) for i in range(len(words) - 4)})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def find(texts, kind, similarity=0.8):
    """Return the duplicates of a list of documents, by their numbers."""
    settings = RecordsConfig(deduplicate=kind, duplicate_similarity=similarity)
    index = DuplicateIndex(settings, ["file"])
    chunk = chunks.Chunk(0, "file", 0, texts, list(range(len(texts))))
    kept, dropped = index.drop(chunk, duplicates.fingerprints(chunk, kind))
    assert sorted(kept.lines + [d.line for d in dropped]) == chunk.lines
    assert kept.documents == [texts[n] for n in kept.lines]
    return {d.line: (d.kind, d.kept_line, d.similarity) for d in dropped}


def test_exact_duplicates_have_the_same_words():
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
    assert find(texts, "exact") == {
        3: ("exact", 0, 1.0),
        4: ("exact", 1, 1.0),
        6: ("exact", 0, 1.0),
    }


def test_near_duplicates_exceed_the_similarity():
    pytest.importorskip("datasketch", reason="needs the extra `dedup`")
    originals = [document(seed) for seed in range(40)]
    few = [edited(text, 0.01) for text in originals]
    many = [edited(text, 0.2) for text in originals]
    assert min(map(jaccard, originals, few)) > 0.88
    assert max(map(jaccard, originals, many)) < 0.6
    found = find([*originals, *many, *few], "near")
    assert sorted(found) == list(range(80, 120))
    for number, (kind, kept, similarity) in found.items():
        assert (kind, kept) == ("near", number - 80)
        expected = jaccard(originals[kept], few[kept])
        # Standard deviation of 128 hashes: at most 0.03 at a similarity of 0.88.
        assert similarity == pytest.approx(expected, abs=0.12)
    assert len(find([*originals, *few], "near", similarity=0.999)) < 5


def test_a_near_duplicate_is_compared_with_documents_that_stay():
    pytest.importorskip("datasketch", reason="needs the extra `dedup`")
    first = document(0, 400)
    # Each differs little from the one before; the last differs much from the first.
    series = [first]
    for seed in range(1, 12):
        series.append(edited(series[-1], 0.015, seed))
    found = find(series, "near")
    assert found[1][1] == 0
    kept = set(range(12)) - set(found)
    assert len(kept) > 1
    assert {place for _, place, _ in found.values()} <= kept


def test_short_and_unspaced_documents():
    pytest.importorskip("datasketch", reason="needs the extra `dedup`")
    chinese = "".join(
        chr(0x4E00 + n) for n in random.Random(0).sample(range(5000), 200)
    )
    near = chinese[:100] + "\u4e00" + chinese[101:]
    assert list(find(["a b", "a b c", "A B", chinese, near], "near")) == [2, 4]


def test_the_report_lists_what_was_dropped_for_any_number_of_workers(
    tmp_path, vocabulary, monkeypatch
):
    pytest.importorskip("datasketch", reason="needs the extra `dedup`")
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 4000)
    first = [document(seed) for seed in range(30)]
    second = [edited(first[3], 0.01), first[4], document(100)]
    (tmp_path / "a.txt").write_text("\n\n".join(first))
    (tmp_path / "b.txt").write_text("\n\n".join(second))
    folders = []
    for workers in (1, 2):
        output = tmp_path / str(workers)
        manifest = build_records(
            tmp_path / "?.txt", output, vocabulary, workers=workers, deduplicate="near"
        )
        folders.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert folders[0] == folders[1]
    assert manifest.duplicates == {"near": 1, "exact": 1}
    assert manifest.documents == 31
    lines = [json.loads(line) for line in folders[0]["duplicates.jsonl"].splitlines()]
    a, b = (str(tmp_path / f"{name}.txt") for name in "ab")
    places = [(x["source"], x["line"], x["kept_source"], x["kept_line"]) for x in lines]
    assert places == [(b, 1, a, 7), (b, 3, a, 9)]
    assert [x["kind"] for x in lines] == ["near", "exact"]
    assert 0.8 <= lines[0]["similarity"] < lines[1]["similarity"] == 1
    # Without the option nothing is dropped, and the report of the old records goes.
    build_records(tmp_path / "?.txt", output, vocabulary, overwrite=True)
    assert not (output / "duplicates.jsonl").exists()


def test_near_duplicates_need_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketch", None)
    assert find(["a b c"] * 2, "exact")
    with pytest.raises(InputError, match=r"pip install 'electra_tf\[dedup\]'"):
        find(["a b c"], "near")
