"""Scores of a pre-trained checkpoint, each by a command or a program of this folder."""

import ctypes
import dataclasses
import gzip
import json
import lzma
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import metrics

from electra_tf import durable_files
from electra_tf.tasks.data.schemes import conlleval_spans


@dataclasses.dataclass(frozen=True)
class Task:
    """Files and columns of a task of fine-tuning."""

    train: str
    """Below the data folder."""
    dev: str | None
    """None: the rows of `train` beyond `_PAIR_ROWS`."""
    label: int = -1
    """Column of the target."""
    header: bool = True
    flags: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        return ".txt" if "tagging" in self.train else ".tsv"


_PAIRS = "--text_columns=sentence1,sentence2", "--label_column=gold_label"
TASKS = {
    "chunking": Task(
        "tagging/conll2000/train.txt", "tagging/conll2000/test.txt", header=False
    ),
    "sst2": Task("glue/SST-2/train.tsv", "glue/SST-2/dev.tsv"),
    "cola": Task("glue/CoLA/train.tsv", "glue/CoLA/dev.tsv", label=1, header=False),
    "stsb": Task("glue/STS-B/train.tsv", "glue/STS-B/dev.tsv"),
    "mnli": Task("glue/MNLI/dev_matched.reduced.tsv", None, flags=_PAIRS),
    "mrpc": Task("glue/MRPC/train.tsv", "glue/MRPC/dev.tsv", label=0),
    "rte": Task("glue/RTE/train.tsv", "glue/RTE/dev.tsv"),
}
NAMES = (*TASKS, "probe", "blimp")
"""Names for the grid's `scores`."""
_HERE = pathlib.Path(__file__).parent
_PAIR_ROWS = 8000  # of MNLI, to train


def run_command(
    name: str,
    *arguments: str,
    log: pathlib.Path,
    spent: Callable[[float], None] = lambda seconds: None,
) -> str:
    """Run a command of the package, or `NAME.py` beside it; return what it printed."""
    program = [str(_HERE / name)]
    if not name.endswith(".py"):
        program = ["-m", f"electra_tf.{name}"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("a", encoding="utf-8") as messages:
        process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=environment,
            start_new_session=True,  # it gets one SIGTERM, ours
            preexec_fn=_end_with_parent,
        )
        try:
            printed = process.communicate()[0]
        except BaseException:  # SIGTERM: the command writes a checkpoint
            process.terminate()
            process.communicate()
            raise
        finally:
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            spent(used)
        messages.write(printed)
    if process.returncode or "stopped by SIG" in printed:
        raise SystemExit(f"{name} did not finish; its messages are in {log}")
    return printed


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def probe(checkpoint: str, data: pathlib.Path, log: pathlib.Path) -> dict[str, float]:
    report = _evaluate("probe.py", data / "tagging/conll2000", checkpoint, log)
    return {f"probe_{kind}": report[kind]["best"] for kind in ("pos", "chunk")}


def blimp(checkpoint: str, data: pathlib.Path, log: pathlib.Path) -> dict[str, float]:
    return {"blimp": _evaluate("blimp.py", data / "blimp", checkpoint, log)["accuracy"]}


def _evaluate(name: str, data: pathlib.Path, path: str, log: pathlib.Path) -> dict:
    printed = run_command(name, f"--data={data}", f"--checkpoint={path}", log=log)
    return json.loads(printed.strip().splitlines()[-1])


def finetune(
    name: str,
    checkpoint: str,
    source: pathlib.Path,
    output: pathlib.Path,
    flags: Sequence[str],
    seeds: int,
) -> dict[str, Any]:
    """Fine-tune with several seeds, and return what each row of dev got.

    An interruption costs one seed. The models are deleted, the answer is kept.
    """
    task = TASKS[name]
    run_command(
        "finetune",
        f"--task={name if name != 'mnli' else 'csv'}",
        f"--data={source}",
        f"--checkpoint={checkpoint}",
        f"--output={output}",
        f"--trials={seeds}",
        *task.flags,
        *flags,
        log=output.with_name(f"{output.name}.log"),
    )
    predicted = [
        (output / f"trial_{number}" / f"dev{task.suffix}").read_text(encoding="utf-8")
        for number in range(1, seeds + 1)
    ]
    dev = (source / f"dev{task.suffix}").read_text(encoding="utf-8-sig")
    rows = rows_of(name, dev, predicted)
    shutil.rmtree(output)
    return rows


def rows_of(name: str, dev: str, predicted: Sequence[str]) -> dict[str, Any]:
    """Return what each row of dev got, without text, from files' contents.

    Lists have an item for each seed: `tp`, `fp` and `fn` of each sentence's chunks; a
    string `right` of 0 and 1; or `predicted`, beside `gold`.
    """
    task = TASKS[name]
    if name == "chunking":
        counts = [[_span_counts(b) for b in _blocks(text)] for text in predicted]
        return {
            kind: [[count[i] for count in seed] for seed in counts]
            for i, kind in enumerate(metrics.SPANS)
        }
    lines = dev.split("\n")[task.header :]
    gold = [line.split("\t")[task.label].strip() for line in lines if line.strip()]
    answers = [
        [line.split("\t")[1].strip() for line in text.split("\n")[1:] if line]
        for text in predicted
    ]
    if any(len(seed) != len(gold) for seed in answers):
        raise SystemExit(f"error: {name}: not all rows of dev were predicted")
    if name == "mnli":
        pairs = [zip(gold, seed, strict=True) for seed in answers]
        return {"right": ["".join(str(int(a == b)) for a, b in s) for s in pairs]}
    if name == "stsb":
        numbers = [[round(float(x), 4) for x in side] for side in (gold, *answers)]
    else:
        labels = sorted(set(gold))
        numbers = ["".join(str(labels.index(x)) for x in s) for s in (gold, *answers)]
    return {"gold": numbers[0], "predicted": numbers[1:]}


def _span_counts(block: str) -> tuple[int, int, int]:
    columns = zip(*(line.split()[-2:] for line in block.split("\n")), strict=True)
    gold, predicted = (set(conlleval_spans(tags)) for tags in columns)
    return len(gold & predicted), len(predicted - gold), len(gold - predicted)


def prepare(name: str, data: pathlib.Path, folder: pathlib.Path, tenth: bool) -> None:
    """Write train and dev of a task, once."""
    task = TASKS[name]
    if folder.exists():
        return
    head, train = _read(data, task.train, task)
    if task.dev is None:
        train, dev = split(train, [_PAIR_ROWS], _premise)
    elif not tenth:
        dev = _read(data, task.dev, task)[1]
    if tenth:
        key = _premise if name == "mnli" else str
        train, dev, _ = split(train, 2 * [len(train) // 10], key)
        if task.suffix == ".txt":  # `finetune` refuses types that train lacks
            known = _types(train)
            dev = [block for block in dev if _types([block]) <= known]
    partial = folder.with_name(f"{name}.{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    for stem, items in (("train", train), ("dev", dev)):
        path = partial / f"{stem}{task.suffix}"
        path.write_text(head + "".join(items), encoding="utf-8", newline="")
    if not folder.exists():  # another process may have written it
        partial.rename(folder)


def split(
    items: Sequence[str], sizes: Sequence[int], key: Callable[[str], str]
) -> list[list[str]]:
    """Draw parts of given sizes, and the rest, always the same, in the rows' order."""
    groups: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(key(item), []).append(number)
    drawn = sorted(groups)
    random.Random(0).shuffle(drawn)
    parts: list[list[int]] = [[] for _ in range(len(sizes) + 1)]
    for group in (groups[name] for name in drawn):
        free = [len(p) + len(group) <= n for p, n in zip(parts, sizes, strict=False)]
        parts[free.index(True) if any(free) else -1] += group
    return [[items[number] for number in sorted(part)] for part in parts]


def _types(blocks: Sequence[str]) -> set[str]:
    lines = [line for block in blocks for line in block.split("\n") if line.strip()]
    return {line.split()[-1].rpartition("-")[2] for line in lines}


def _premise(row: str) -> str:
    return row.split("\t")[1].strip()


def read_text(path: pathlib.Path) -> str:
    """Return the text of a file, which may be compressed by gzip."""
    if path.exists():
        return path.read_bytes().decode("utf-8-sig")
    packed = path.with_name(f"{path.name}.gz").read_bytes()
    return gzip.decompress(packed).decode("utf-8-sig")


def tfidf(analyzer: str, largest: int) -> Any:
    """Return TF-IDF of up to so many units with logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectors = TfidfVectorizer(analyzer=analyzer, ngram_range=(1, largest))
    return make_pipeline(vectors, LogisticRegression(C=10, max_iter=1000))


def read_rows(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}


def write_rows(path: pathlib.Path, rows: dict[str, Any]) -> None:
    durable_files.write(path, lzma.compress(json.dumps(rows).encode()))


def _read(data: pathlib.Path, path: str, task: Task) -> tuple[str, list[str]]:
    """Return the header line and the rows, or the sentences, of a file."""
    text = read_text(data / path)
    if task.suffix == ".txt":
        return "", [f"{block}\n\n" for block in _blocks(text)]
    lines = [f"{line}\n" for line in text.split("\n") if line.strip()]
    return (lines[0], lines[1:]) if task.header else ("", lines)


def _blocks(text: str) -> list[str]:
    return [block.strip("\n") for block in text.split("\n\n") if block.strip()]
