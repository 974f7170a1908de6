"""Test the comparison of pre-trainings on the task's own text."""

import argparse
import gzip
import json
import sys

import pytest
import yaml
from conftest import ROOT

pytestmark = pytest.mark.tools

FOLDER = ROOT / "tools" / "reproduction"
PHRASES = [f"a film of {n} words that begins like all of the others do" for n in "abc"]


@pytest.fixture
def data(monkeypatch):
    """Return the module with texts and tables."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import own_text

    yield own_text
    for name in ("own_text", "defaults", "scores", "domain_text"):
        sys.modules.pop(name, None)


def test_the_page_has_the_tables_of_the_rows(data):
    spec = yaml.safe_load((FOLDER / "own_text.yaml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "own-text.md").read_text(encoding="utf-8")
    rows = FOLDER / "own_text_rows"
    for name, split in [(name, "apart") for name in spec] + [("sst2", "dev")]:
        table = data.table(name, spec[name], rows, split).split("\n", 2)[2]
        assert table in page


def test_texts_that_are_scored_are_not_read_before(data, tmp_path, monkeypatch):
    monkeypatch.setattr(data.defaults, "_KEPT_APART", 1)
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    texts = [*PHRASES, *("like all of the others do", "of b words", "of c words")]
    for name in ("train", "dev"):
        lines = ["sentence\tlabel", *(f"{text}\t1" for text in texts), ""]
        with gzip.open(folder / f"{name}.tsv.gz", "wt") as file:
            file.write("\n".join(lines))
    unlabelled, train, splits = data.sst2(tmp_path)
    (kept, _), *others = splits["apart"]
    assert not others
    assert len(splits["dev"]) == len(texts)
    assert kept in PHRASES
    assert sorted(unlabelled) == sorted({*PHRASES} - {kept})
    assert all(text not in kept for text, _ in train)


def test_functions_are_read_as_the_collection_wrote_them(data, tmp_path):
    (tmp_path / "functions").mkdir()
    (tmp_path / "train.txt").write_text("One.\nTwo.\n\nThree.\n")
    for name, label in (("train", "numpy"), ("test", "scipy")):
        table = f"sentence\tlabel\nOf {name}.\t{label}\n"
        (tmp_path / "functions" / f"{name}.tsv").write_text(table)
    texts, train, splits = data.functions(tmp_path)
    assert texts == ["One.", "Two.", "Three."]
    assert train == [("Of train.", "numpy")]
    assert splits == {"apart": [("Of test.", "scipy")]}


def test_a_table_has_means_ranges_and_cost(data, tmp_path):
    plan = {"groups": [{"rows": 9, "seeds": [0, 1], "systems": ["none", "mlm"]}]}
    rows = [
        {"trained": "mlm", "steps": 2000, "seconds": 90},
        *({"system": "mlm", "rows": 9, "seed": n, "apart": 60 + n} for n in (0, 1)),
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "sst2.jsonl").write_text(text)
    assert data.table("sst2", plan, tmp_path, "apart").splitlines()[2:] == [
        "| system | steps | minutes | 9 rows |",
        "|---|---|---|---|",
        "| none |  |  |  |",
        "| mlm | 2,000 | 1.5 | 60.5 (60.0 to 61.0; 2) |",
    ]


def test_a_system_reads_a_corpus_or_begins_with_a_folder(data, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "_APART", 1)
    folder, model = tmp_path / "zh", tmp_path / "model"
    folder.mkdir()
    model.mkdir()
    lines = "label,review", *(f"1,很好{n}" for n in range(3)), ""
    (folder / "waimai_10k.csv").write_text("\n".join(lines), encoding="utf-8")
    commands = []

    def run_command(name, *flags, log):
        flags = dict(flag.split("=", 1) for flag in flags if "=" in flag)
        commands.append((name, flags))
        if name == "build_records":
            records = data.pathlib.Path(flags["--output"])
            records.mkdir()
            (records / "manifest.json").write_text('{"records": 64}')

    monkeypatch.setattr(data.scores, "run_command", run_command)
    wide = {"passes": 2, "corpus": "zh/wiki.txt", "vocabulary": 9, "set": ["a=1"]}
    more = {"passes": 3, "start": "model", "init": "model"}
    plan = {"config": "mini", "vocabulary": 5, "length": 8, "batch_size": 32}
    plan["systems"] = {"wide": wide, "more": more}
    options = argparse.Namespace(data=tmp_path, work=tmp_path, rows=tmp_path)
    runs, work = data.Runs("waimai", plan, options), tmp_path / "waimai"
    assert runs.checkpoint("wide") == work / "wide"
    assert runs.checkpoint("more") == work / "more"
    assert [name for name, _ in commands] == [
        *("build_vocab", "build_records", "pretrain", "build_records", "pretrain")
    ]
    vocabulary, both, first, own, second = (flags for _, flags in commands)
    assert vocabulary["--size"] == "9"
    assert both["--input"] == f"{work / 'text.txt'},{folder / 'wiki.txt'}"
    assert both["--vocab"] == vocabulary["--output"]
    assert "--init_checkpoint" not in first
    assert own["--input"] == str(work / "text.txt")
    assert own["--vocab"] == second["--init_checkpoint"] == str(model)
    rows = data.defaults.read_rows(tmp_path / "waimai.jsonl")
    assert [(row["trained"], row["steps"]) for row in rows] == [
        ("wide", 4),
        ("more", 6),
    ]
