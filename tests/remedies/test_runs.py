"""Remedies of errors about records, runs, scores of checkpoints and exports."""

import functools
import shutil

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.loader import load_config
from electra_tf.runs import blimp, nbest, probe
from electra_tf.runs.pretraining import check_run
from electra_tf.runs.scoring import TextScorer
from electra_tf.serving.export import load_exportable
from electra_tf.serving.export_options import check_arguments
from electra_tf.serving.request_limits import RequestLimits
from electra_tf.tasks.classifier import TextClassifier
from remedies.bench import (
    DISCRIMINATOR,
    GENERATOR,
    INTEROP,
    RECORDS,
    RUN,
    SAVED,
    STEP,
    VOCAB,
    remedy_test,
    resolve,
)


def _check(b, *sets, model_dir=None, init=None, data=RECORDS, vocab=None):
    experiment = resolve(*sets, data=data, vocab=vocab)
    init = init and str(init)
    check_run(experiment, experiment.open(str(data)), model_dir, init)


def _run(b):
    """Return the path of a copy of the golden run."""
    path = b.path("run")
    return str(path if path.exists() else b.copy(RUN, "run"))


def _checks(*sets, **options):
    return lambda b: [lambda s=s: _check(b, *s, **options) for s in sets]


def _resumed(*sets):
    return lambda b: [lambda s=s: _check(b, *s, model_dir=_run(b)) for s in sets]


def _loose(b):
    """Return a glob of record files beside which there is no vocabulary."""
    folder = b.path("loose")
    if not folder.exists():
        folder.mkdir()
        for path in RECORDS.glob("*.tfrecord*"):
            shutil.copy(path, folder)
    return folder / "*.tfrecord*"


def _build(b, name, *flags):
    """Build records of the golden vocabulary."""
    text = b.file("corpus.txt", "the first of all\n" * 200)
    flags = (f"--input={text}", f"--vocab={VOCAB}", "--max_length=32", *flags)
    b.run("build_records", *flags, f"--output={b.path(name)}")


RUNS = {
    "a text as records": lambda b: [
        lambda: _check(b, data=b.file("text.txt", "the first\n")),
        lambda: (
            _build(b, "built"),
            _check(b, "model.vocabulary_size=null", data=b.path("built")),
        ),
    ],
    "a folder without records": lambda b: [
        lambda: _check(b, data=b.file("texts/a.txt", "the").parent),
        lambda: _check(b, data=RECORDS),
    ],
    "records without a vocabulary": lambda b: [
        lambda: _check(b, data=_loose(b)),
        lambda: _check(b, data=_loose(b), vocab=RECORDS / "vocab.txt"),
    ],
    "another vocabulary": lambda b: [
        lambda: _check(b, data=_loose(b), vocab=DISCRIMINATOR / "vocab.txt"),
        lambda: _check(b, data=_loose(b), vocab=RECORDS / "vocab.txt"),
    ],
    "records of another length": _checks(
        ["records.max_length=64"], ["records.max_length=32"]
    ),
    "another size of the vocabulary": _checks(
        ["model.vocabulary_size=77"],
        ["model.vocabulary_size=1000"],
        ["model.vocabulary_size=null"],
    ),
    "a batch of more than all records": _checks(
        ["input.batch_size=90"], ["input.batch_size=89"]
    ),
    "a frozen generator from nowhere": lambda b: [
        lambda init=init: _check(
            b, "objective.freeze_generator=true", "model.sharing=none", init=init
        )
        for init in (None, GENERATOR, f"{DISCRIMINATOR},{GENERATOR}")
    ],
    "an initial checkpoint that does not exist": lambda b: [
        lambda: _check(b, init=b.path("missing")),
        lambda: _check(b, init=RUN),
    ],
    "another rate in a resumed run": lambda b: [
        *_resumed(["optimizer.learning_rate=1"], [])(b),
        lambda: _check(b, "optimizer.learning_rate=1", init=STEP),
    ],
    "another depth in a resumed run": lambda b: [
        *_resumed(["model.depth=3"], [])(b),
        lambda: _check(b, "model.depth=3", model_dir=str(b.path("other"))),
    ],
    "fewer steps than are done": _resumed(
        ["training.steps=2"], ["training.steps=8"], ["training.steps=9"]
    ),
    "records of which a file is cut": lambda b: [
        lambda: (
            _cut(b.copy(RECORDS, "a") / "pretrain_data.tfrecord-00000-of-00002"),
            _check(b, data=b.path("a")),
        ),
        lambda: _check(b, data=b.copy(RECORDS, "b")),
    ],
    "records of a build that was stopped": lambda b: [
        lambda: (
            b.file("out/_building/a", ""),
            _check(b, data=b.path("out")),
        ),
        lambda: (
            _build(b, "out", "--overwrite"),
            _check(b, "model.vocabulary_size=null", data=b.path("out")),
        ),
    ],
}


def _cut(path):
    path.write_bytes(path.read_bytes()[:-50])


PAIR = {
    "sentence_good": "the first",
    "sentence_bad": "first the",
    "UID": "order",
    "linguistics_term": "syntax",
}
CONLL = "the DT B-NP\nfirst JJ I-NP\n\n"


@functools.cache
def _scorer():
    return TextScorer.from_preset(str(DISCRIMINATOR))


def _rerank(path):
    return nbest.rerank(_scorer(), path, 1.0)


def _score(path):
    return nbest.score_lines(_scorer(), path)


SCORES = {
    "pairs that do not exist": lambda b: [
        lambda: blimp.read_pairs(str(b.path("missing"))),
        lambda: blimp.read_pairs(str(b.file("pairs.jsonl", PAIR))),
    ],
    "a folder without pairs": lambda b: [
        lambda: blimp.read_pairs(str(b.file("a/a.txt", "x").parent)),
        lambda: blimp.read_pairs(str(b.file("a/a.jsonl", PAIR))),
        lambda: blimp.read_pairs(str(b.path("a"))),
    ],
    "lines that are no pairs": lambda b: b.reading(
        blimp.read_pairs, "a.jsonl", {"text": "the"}, PAIR
    ),
    "probe without CoNLL-2000": lambda b: [
        lambda: probe.read_splits(str(b.folder)),
        lambda: (
            [b.file(f"{name}.txt", CONLL) for name in ("train", "test")]
            and probe.read_splits(str(b.folder))
        ),
    ],
    "probe with two columns": lambda b: b.reading(
        lambda path: b.file("test.txt", CONLL) and probe.read_splits(str(b.folder)),
        "train.txt",
        "the DT\n",
        CONLL,
    ),
    "a list that is no n-best list": lambda b: [
        *b.reading(_rerank, "a.txt", "one\n", "1\tone\n"),
        *b.reading(_score, "a.txt", "one\n"),
    ],
    "a weight without a list": lambda b: b.running(
        "score",
        [f"--checkpoint={DISCRIMINATOR}", "--weight=2"],
        [f"--checkpoint={DISCRIMINATOR}", "--weight=2", "--nbest"],
        input="1\tone\t-2\n",
    ),
    "a text that is too long": lambda b: b.reading(
        _score, "a.txt", "the " * 40, "\n".join(["the " * 10] * 4)
    ),
    "an empty text": lambda b: b.reading(
        _score, "a.txt", "the\n\nfirst\n", "the\nfirst\n"
    ),
    "an encoder that scores": lambda b: [
        lambda: TextScorer.from_preset(str(INTEROP / "keras_hub")),
        lambda: TextScorer.from_preset(str(DISCRIMINATOR)),
        lambda: TextScorer.from_preset(str(GENERATOR)),
    ],
    "a task without predictions": lambda b: [
        lambda: b.run("evaluate", f"--data={b.file('a.txt', CONLL)}", "--task=tagging"),
        lambda: b.run(
            "evaluate",
            f"--data={b.path('a.txt')}",
            "--task=tagging",
            f"--predictions={b.path('a.txt')}",
        ),
    ],
    "a flag of another mode": lambda b: [
        lambda: b.run(
            "evaluate",
            f"--model={SAVED / 'classifier'}",
            f"--data={_labelled(b)}",
            "--batches=1",
        ),
        lambda: b.run(
            "evaluate", f"--model={SAVED / 'classifier'}", f"--data={_labelled(b)}"
        ),
    ],
}


def _labelled(b):
    return b.file("a.csv", "text,label\nthe,bad\nfirst,good\n")


SHORT = load_config(None, ["data.max_length=64"], root=FinetuningConfig)
EXPORTS = {
    "a version that exists": lambda b: [
        lambda: (
            b.file("out/1/a", ""),
            check_arguments(str(b.path("out")), 1, ("text",), "saved_model"),
        ),
        lambda: check_arguments(str(b.path("out")), 2, ("text",), "saved_model"),
        lambda: (
            shutil.rmtree(b.path("out/1")),
            check_arguments(str(b.path("out")), 1, ("text",), "saved_model"),
        ),
    ],
    "a length beyond the positions": lambda b: [
        lambda: load_exportable(str(RUN), max_length=1000),
        lambda: load_exportable(str(RUN), max_length=32),
    ],
    "a limit of no row": lambda b: [
        lambda: RequestLimits(rows=0),
        lambda: RequestLimits(rows=1),
    ],
    "other labels than those of the model": lambda b: [
        lambda: TextClassifier.from_preset(str(SAVED / "classifier"), num_classes=3),
        lambda: TextClassifier.from_preset(str(SAVED / "classifier")),
        lambda: TextClassifier.from_preset(str(RUN), num_classes=3, settings=SHORT),
    ],
}

test_a_remedy_works = remedy_test(runs=RUNS, scores=SCORES, exports=EXPORTS)
