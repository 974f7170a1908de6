"""All commands copy a vocabulary file byte for byte."""

import csv
import json

import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401

from electra_tf.text.vocab import SPECIAL_TOKENS
from tests.conftest import flags
from tests.tiny import SMALL

LINES = [
    "北京是中华人民共和国的首都。",
    "这家酒店的房间很干净,服务也很好。",
    "早餐太差了,房间又小又吵。",
    "他昨天买了三本书,今天全看完了。",
    "上海的冬天很冷,夏天很热。",
]
ODD = ["\u2028", "\x85", "\xa0"]


def small_vocabulary():
    characters = sorted(set("".join(LINES)))
    lines = [*SPECIAL_TOKENS, *ODD, *characters, *(f"##{c}" for c in characters)]
    return "\ufeff" + "\r\n".join(lines)


@pytest.fixture(params=["small", "bert_chinese"])
def vocabulary_file(request, tmp_path):
    path = tmp_path / "given.txt"
    if request.param == "small":
        path.write_bytes(small_vocabulary().encode())
    else:
        data = request.getfixturevalue("data")
        path.write_bytes((data / "vocab" / "bert_chinese.txt").read_bytes())
    return path


def write_texts(folder):
    corpus, table, texts = (folder / name for name in ("c.txt", "t.csv", "p.txt"))
    documents = ("\n".join(LINES[i % 5 :] + LINES[: i % 5]) for i in range(200))
    corpus.write_text("\n\n".join(documents), encoding="utf-8")
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = [(line, ("bad", "good")[i % 2]) for i, line in enumerate(LINES * 8)]
        csv.writer(file).writerows([("text", "kind"), *rows])
    texts.write_text("\n".join(LINES), encoding="utf-8")
    return corpus, table, texts


def build(here, corpus, vocabulary, output):
    given = {"input": corpus, "vocab": vocabulary, "output": output}
    result = here("build_records", *flags(**given, max_length=32, workers=1))
    assert result.returncode == 0, result.stderr


def test_records_contain_the_vocabulary_byte_for_byte(here, vocabulary_file, tmp_path):
    corpus, _, _ = write_texts(tmp_path)
    build(here, corpus, vocabulary_file, tmp_path / "records")
    written = tmp_path / "records" / "vocab.txt"
    assert written.read_bytes() == vocabulary_file.read_bytes()
    build(here, corpus, written, tmp_path / "again")
    manifests = [
        json.loads((tmp_path / name / "manifest.json").read_text())
        for name in ("records", "again")
    ]
    assert manifests[0] == manifests[1]
    assert manifests[0]["unknown_share"] == 0


@pytest.mark.slow
def test_every_command_accepts_the_vocabulary(here, command, vocabulary_file, tmp_path):
    corpus, table, texts = write_texts(tmp_path)
    records, run, model, served = (
        tmp_path / name for name in ("records", "run", "model", "served")
    )
    build(here, corpus, vocabulary_file, records)
    sets = [*SMALL, "training.steps=3", "training.evaluation_batches=null"]
    tuned = ["training.epochs=1", "training.batch_size=8", "data.dev_share=0.2"]
    tuned += ["data.max_length=32"]
    columns = {"text_columns": "text", "label_column": "kind"}
    calls = {
        "pretrain": (
            {"data": records, "evaluation_data": records, "model_dir": run}, sets
        ),
        "finetune": (
            {"task": "csv", "data": table, "checkpoint": run, "output": model}
            | columns, tuned
        ),
        "predict": ({"model": model, "input": texts, "format": "jsonl"}, ()),
        "export": ({"model": model, "output": served}, ()),
    }  # fmt: skip
    outputs = {}
    for name, (given, sets) in calls.items():
        result = command(name, *flags(**given), *(f"--set={item}" for item in sets))
        assert result.returncode == 0, result.stderr
        outputs[name] = result.stdout
    assert len(outputs["predict"].splitlines()) == len(LINES)
    written = [*run.rglob("vocab.txt"), *served.rglob("vocab.txt")]
    assert len(written) >= 2
    for path in written:
        assert path.read_bytes() == vocabulary_file.read_bytes(), path
    version = next(iter(sorted(served.rglob("saved_model.pb")))).parent
    assert tf.saved_model.load(str(version)).signatures
