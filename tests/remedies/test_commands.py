"""Remedies of errors of fine-tuning and evaluation that need a trained model."""

import pytest
import safetensors.numpy

from remedies.bench import (
    DISCRIMINATOR,
    GENERATOR,
    RECORDS,
    RUN,
    SAVED,
    remedy_test,
)

ROWS = "text,label\n" + "the,a\nfirst,b\n" * 4


def _finetune(b, *flags):
    """Return calls of finetune with other flags."""
    base = [
        *(f"--data={b.file('train.csv', ROWS)}", f"--checkpoint={RUN}", "--task=csv"),
        *(f"--output={b.path('out')}", "--text_columns=text", "--label_column=label"),
        "--set=training.epochs=1",
    ]
    return b.running("finetune", *flags, base=base)


PAIR = f"{DISCRIMINATOR},{GENERATOR}"
LIMIT = "--set=tokenization.max_word_characters=100"
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
    "columns of another task": lambda b: _finetune(
        b, ["--task=rte", "--set=training.epochs=2"], ["--set=training.epochs=2"]
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
        *([f"--generator={DISCRIMINATOR}"], [f"--generator={RUN}"], []),
        base=[f"--checkpoint={RUN}", f"--data={RECORDS}", "--batches=1"],
    ),
    "halves of a pair with other tables": lambda b: _continue(
        b,
        ("a", []),
        ("b", ["model.sharing=none", "model.generator_embedding=20"]),
        ("c", [], DISCRIMINATOR),
    ),
    "a discriminator alone": lambda b: b.running(
        "evaluate",
        *([f"--checkpoint={path}"] for path in (DISCRIMINATOR, PAIR)),
        base=[f"--data={_short_records(b, LIMIT)}", "--batches=1"],
    ),
    "records of other settings": lambda b: b.running(
        "evaluate",
        *([f"--data={d}"] for d in (_short_records(b), _short_records(b, LIMIT))),
        base=[f"--checkpoint={PAIR}"],
    ),
    "a run of another shape": lambda b: _continue(
        b, ("a", ["model.depth=1"]), ("b", ["model.depth=2"], DISCRIMINATOR)
    ),
    "records of another length": lambda b: b.running(
        "evaluate",
        *([f"--data={_built(b, length)}"] for length in (64, 32)),
        base=[f"--checkpoint={RUN}"],
    ),
    "an unfinished fine-tuning as --model": lambda b: [
        lambda: b.run("predict", f"--model={_unfinished(b)}"),
        lambda: (
            _finetune(b, ["--set=training.epochs=2"])[0](),
            b.run("predict", f"--model={b.path('out')}", input="the\n"),
        ),
    ],
}


SHAPE = (
    "training.steps=2",
    "input.batch_size=4",
    "records.max_length=16",
    "model.max_positions=16",
    "model.layer_norm_epsilon=1e-05",
    "model.depth=2",
    "model.width=36",
    "model.embedding=20",
    "model.heads=9",
    "model.feed_forward=48",
    "model.generator_width=0.3333333333333333",
    "model.generator_heads=3",
    "model.generator_feed_forward=40",
)


def _short_records(b, *more):
    """Build records of the vocabulary of the golden pair."""
    vocab, output = DISCRIMINATOR / "vocab.txt", b.path(f"records{len(more)}")
    if not output.exists():
        words = [w for w in vocab.read_text().split()[5:] if w.isalpha()]
        text = b.file("a.txt", (" ".join(words) + "\n\n") * 99)
        flags = f"--input={text}", f"--vocab={vocab}", f"--output={output}"
        b.run("build_records", *flags, "--max_length=16", "--order=document", *more)
    return output


def _continue(b, *runs):
    """Return calls of pretrain from a golden pair, or from another checkpoint."""
    generator = b.copy(GENERATOR, "generator")
    tensors = safetensors.numpy.load_file(generator / "model.safetensors")
    tensors["electra.embeddings.word_embeddings.weight"] += 1
    safetensors.numpy.save_file(tensors, generator / "model.safetensors")
    pair = f"{DISCRIMINATOR},{generator}"
    return b.running(
        "pretrain",
        *(
            [
                f"--model_dir={b.path(name)}",
                f"--init_checkpoint={checkpoint[0] if checkpoint else pair}",
                *(f"--set={item}" for item in (*SHAPE, *sets)),
            ]
            for name, sets, *checkpoint in runs
        ),
        base=[f"--data={_short_records(b)}"],
    )


def _unfinished(b):
    return b.file("out/trial_1/a", "").parent.parent


def _built(b, length):
    output = b.path(f"records{length}")
    text = b.file("corpus.txt", "the first of all\n" * 200)
    vocab = RECORDS / "vocab.txt"
    flags = f"--vocab={vocab}", f"--max_length={length}", f"--output={output}"
    b.run("build_records", f"--input={text}", *flags)
    return output


test_a_remedy_works = pytest.mark.slow(remedy_test(commands=COMMANDS))
