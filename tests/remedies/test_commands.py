"""Remedies of errors of fine-tuning and evaluation that need a trained model."""

import pytest

from remedies.bench import (
    DISCRIMINATOR,
    RECORDS,
    RUN,
    SAVED,
    TAGS,
    Bench,
    cases,
    follow,
)

ROWS = "text,label\n" + "the,a\nfirst,b\n" * 4


def _finetune(b, *flags):
    """Return calls of finetune with other flags."""
    return b.running(
        "finetune",
        *(
            [
                f"--data={b.file('train.csv', ROWS)}",
                f"--checkpoint={RUN}",
                f"--output={b.path('out')}",
                "--task=csv",
                "--text_columns=text",
                "--label_column=label",
                "--set=training.epochs=1",
                *one,
            ]
            for one in flags
        ),
    )


COMMANDS = {
    "a single update": lambda b: [
        *_finetune(b, [], ["--set=training.epochs=2"]),
        *_finetune(
            b,
            ["--set=optimizer.warmup_share=0", f"--output={b.path('b')}"],
            ["--set=training.batch_size=4", f"--output={b.path('c')}"],
        ),
    ],
    "other settings in a folder": lambda b: [
        lambda: (
            _finetune(b, ["--set=training.epochs=2"])[0](),
            _finetune(b, ["--set=training.epochs=3"])[0](),
        ),
        *_finetune(b, ["--set=training.epochs=3", f"--output={b.path('new')}"]),
    ],
    "columns of another task": lambda b: b.running(
        "finetune",
        *(
            [
                f"--data={b.file('train.txt', TAGS)}",
                f"--checkpoint={RUN}",
                f"--output={b.path('out')}",
                *flags,
            ]
            for flags in (["--task=tagging", "--text_columns=a"], ["--task=tagging"])
        ),
    ),
    "more positions than the encoder's": lambda b: _finetune(
        b,
        ["--set=data.max_length=65", "--set=training.epochs=2"],
        ["--set=data.max_length=64", "--set=training.epochs=2"],
    ),
    "a fine-tuned model as --checkpoint": lambda b: _finetune(
        b,
        [f"--checkpoint={SAVED / 'classifier'}", "--set=training.epochs=2"],
        ["--set=training.epochs=2"],
    ),
    "a generator of another vocabulary": lambda b: b.running(
        "evaluate",
        *(
            [f"--checkpoint={RUN}", f"--data={RECORDS}", "--batches=1", *flags]
            for flags in ([f"--generator={DISCRIMINATOR}"], [f"--generator={RUN}"], [])
        ),
    ),
    "records of another length": lambda b: [
        *b.running(
            "evaluate",
            [f"--checkpoint={RUN}", f"--data={_built(b, 64)}"],
        ),
        *b.running("evaluate", [f"--checkpoint={RUN}", f"--data={_built(b, 32)}"]),
    ],
    "an unfinished fine-tuning as --model": lambda b: [
        lambda: b.run("predict", f"--model={_unfinished(b)}"),
        lambda: (
            _finetune(b, ["--set=training.epochs=2"])[0](),
            b.run("predict", f"--model={b.path('out')}", input="the\n"),
        ),
    ],
}


def _unfinished(b):
    return b.file("out/trial_1/a", "").parent.parent


def _built(b, length):
    output = b.path(f"records{length}")
    text = b.file("corpus.txt", "the first of all\n" * 200)
    vocab = RECORDS / "vocab.txt"
    flags = f"--vocab={vocab}", f"--max_length={length}", f"--output={output}"
    b.run("build_records", f"--input={text}", *flags)
    return output


CASES = cases(commands=COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_remedy_works(case, here, tmp_path):
    follow(case, Bench(tmp_path, here))
