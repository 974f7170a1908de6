"""Fine-tune with the command, store what each row of dev got, and score it."""

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf import durable_files
from electra_tf.tasks.data.schemes import conlleval_spans
from electra_tf.tasks.metrics import METRICS


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
    metric: str = "accuracy"

    @property
    def suffix(self) -> str:
        return ".txt" if "tagging" in self.train else ".tsv"


_PAIRS = "--text_columns=sentence1,sentence2", "--label_column=gold_label"
TASKS = {
    "chunking": Task(
        "tagging/conll2000/train.txt", "tagging/conll2000/test.txt", header=False
    ),
    "sst2": Task("glue/SST-2/train.tsv", "glue/SST-2/dev.tsv"),
    "cola": Task(
        "glue/CoLA/train.tsv", "glue/CoLA/dev.tsv", label=1, header=False, metric="mcc"
    ),
    "stsb": Task("glue/STS-B/train.tsv", "glue/STS-B/dev.tsv", metric="spearman"),
    "mnli": Task("glue/MNLI/dev_matched.reduced.tsv", None, flags=_PAIRS),
    "mrpc": Task("glue/MRPC/train.tsv", "glue/MRPC/dev.tsv", label=0),
    "rte": Task("glue/RTE/train.tsv", "glue/RTE/dev.tsv"),
}
_PAIR_ROWS = 8000  # of MNLI, to train
_COUNTS = "tp", "fp", "fn"  # of the chunks of a sentence


def run_command(
    name: str,
    *arguments: str,
    log: pathlib.Path,
    spent: Callable[[float], None] = lambda seconds: None,
) -> str:
    """Run a command of the package; return what it printed."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("a", encoding="utf-8") as messages:
        process = subprocess.Popen(
            [sys.executable, "-m", f"electra_tf.{name}", *arguments],
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
            for i, kind in enumerate(_COUNTS)
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


def each(name: str, rows: Mapping[str, Any]) -> list[float]:
    """Return the score of each seed in percent, from `rows_of`."""
    if name == "chunking":
        counts = np.sum([rows[kind] for kind in _COUNTS], -1).T
        return [200 * tp / max(1, 2 * tp + fp + fn) for tp, fp, fn in counts]
    if "right" in rows:
        return [100 * seed.count("1") / len(seed) for seed in rows["right"]]
    gold, *seeds = ([*map(float, x)] for x in (rows["gold"], *rows["predicted"]))
    return [METRICS[TASKS[name].metric](gold, seed) for seed in seeds]


def prepare(name: str, data: pathlib.Path, folder: pathlib.Path) -> None:
    """Write train and dev of a task, once."""
    task = TASKS[name]
    if folder.exists():
        return
    head, train = read(data, task.train, task)
    if task.dev is None:
        train, dev = split(train, _PAIR_ROWS, _premise)
    else:
        dev = read(data, task.dev, task)[1]
    partial = folder.with_name(f"{name}.{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    for stem, items in (("train", train), ("dev", dev)):
        path = partial / f"{stem}{task.suffix}"
        path.write_text(head + "".join(items), encoding="utf-8", newline="")
    if not folder.exists():  # another process may have written it
        partial.rename(folder)


def split(
    items: Sequence[str], size: int, key: Callable[[str], str]
) -> tuple[list[str], list[str]]:
    """Draw items, always the same, and return them and the rest; no key is in both."""
    groups: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(key(item), []).append(number)
    names = sorted(groups)
    random.Random(0).shuffle(names)
    drawn: set[int] = set()
    for group in (groups[name] for name in names):
        if len(drawn) + len(group) <= size:
            drawn.update(group)
    first = [item for number, item in enumerate(items) if number in drawn]
    return first, [item for number, item in enumerate(items) if number not in drawn]


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


def read(data: pathlib.Path, path: str, task: Task) -> tuple[str, list[str]]:
    """Return the header line and the rows, or the sentences, of a file."""
    text = read_text(data / path)
    if task.suffix == ".txt":
        return "", [f"{block}\n\n" for block in _blocks(text)]
    lines = [f"{line}\n" for line in text.split("\n") if line.strip()]
    return (lines[0], lines[1:]) if task.header else ("", lines)


def _blocks(text: str) -> list[str]:
    return [block.strip("\n") for block in text.split("\n\n") if block.strip()]
