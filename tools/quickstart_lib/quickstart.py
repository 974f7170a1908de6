"""Train a small ELECTRA on text of this machine, and show its results.

    tools/quickstart [--output=quickstart_run] [--seed=0]

Ctrl-C stops it. Run the same command again to continue.
"""

import argparse
import json
import pathlib
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import quickstart_text as texts
from quickstart_commands import (
    ROOT,
    Commands,
    check_folder,
    exit_interrupted,
    short_path,
)

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.text.records import MANIFEST
from electra_tf.text.tokenizer import settings_path
from electra_tf.training.checkpoint import CHECKPOINTS

CONFIG = ROOT / "configs" / "tiny.yaml"
STEPS, MINUTES = 8000, 8
# Changes of configs/tiny.yaml, which is tuned for hours, for training within minutes.
MODEL = {"input.batch_size": 64, "model.generator_width": 0.125}
TRAINING = {
    "optimizer.learning_rate": "5e-4",
    "optimizer.decay_power": 0.6,
    "training.log_every": 100,
    "training.save_every": 1000,
    "training.evaluate_every": 1000,
    "training.evaluation_batches": 20,
}
# Settings of the classifier, for a small encoder and short sentences.
FINETUNING = {
    "data.max_length": 32,
    "optimizer.learning_rate": "5e-4",
    "optimizer.layer_decay": 1.0,
    "training.epochs": 4,
}
WEIGHTS = "pretrained", "random"
METRICS = ("masked_lm_loss", "masked_lm_accuracy", "disc_loss", "disc_auc")


def set_flags(settings: Mapping[str, Any]) -> list[str]:
    return [word for n, v in settings.items() for word in ("--set", f"{n}={v}")]


def command_lines(
    options: argparse.Namespace, folder: pathlib.Path
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, last file and command line of each stage that is a command."""

    def path(*names: str) -> str:
        return short_path(folder.joinpath(*names))

    vocab, config = path("vocab.txt"), f"--config={short_path(CONFIG)}"
    train, held_out = (path("text", name) for name in (texts.TRAIN, texts.HELD_OUT))
    yield "vocabulary", settings_path("vocab.txt").name, [
        "build_vocab", f"--input={train}", f"--output={vocab}",
        f"--size={options.vocabulary_size}", f"--heldout={held_out}", "--overwrite",
    ]  # fmt: skip
    for name, source in (("records", train), ("heldout", held_out)):
        yield name, f"{name}/{MANIFEST}", [
            "build_records", f"--input={source}", f"--vocab={vocab}",
            f"--output={path(name)}", config, "--overwrite",
        ]  # fmt: skip
    run, seed = path("run"), {"training.seed": options.seed}
    settings = {"training.steps": options.steps, **seed, **MODEL, **TRAINING}
    yield "training", f"{last_checkpoint(options)}/checkpoint.json", [
        "pretrain", config, f"--data={path('records')}",
        f"--evaluation_data={path('heldout')}", f"--model_dir={run}",
        *set_flags(settings),
    ]  # fmt: skip
    yield "evaluation", "evaluation.json", [
        "evaluate", f"--checkpoint={run}", f"--data={path('heldout')}",
        f"--output={path('evaluation.json')}",
    ]  # fmt: skip
    for weights in WEIGHTS:
        name = f"classifier_{weights}"
        yield name, f"{name}/results.json", [
            "finetune", "--task=csv", f"--data={path('text', texts.CLASSES)}",
            f"--checkpoint={run}", f"--output={path(name)}",
            "--text_columns=sentence", "--label_column=label",
            *set_flags({"model.weights": weights, **seed, **FINETUNING}),
        ]  # fmt: skip


def last_checkpoint(options: argparse.Namespace) -> str:
    return f"run/{CHECKPOINTS}/step_{options.steps:08d}"


def run(options: argparse.Namespace) -> None:
    """Run the stages that were not completed before, and show the results."""
    folder = pathlib.Path(options.output)
    check_folder(folder, {k: v for k, v in vars(options).items() if k != "output"})
    commands = Commands(folder)

    def is_done(name: str, last: str) -> bool:
        done = (folder / last).exists()
        if done:
            print(f"{name}: done before, {short_path(folder / last)}")
        return done

    if not is_done("text", f"text/{texts.TRAIN}"):
        with commands.timed("text"):
            collect_text(folder, options.text_megabytes)
    for name, last, command in command_lines(options, folder):
        if not is_done(name, last):
            commands.run(*command)
    if not is_done("sentences", "look.json"):
        with commands.timed("sentences"):
            write_examples(folder)
    show(options, folder, commands.seconds)


def collect_text(folder: pathlib.Path, megabytes: float) -> None:
    print("reading the docstrings of the Python installation and its packages ...")
    documents, size = texts.write_corpus(
        texts.package_folders(), folder / "text", megabytes
    )
    note = f"{size:,} characters of docstrings from {documents:,} source files"
    print(f"{short_path(folder / 'text')}: {note}")
    durable_files.write(folder / "corpus.txt", note)


def write_examples(folder: pathlib.Path) -> None:
    """Write outputs for held-out text, before and after training."""
    print("\nreplacing words and detecting them, before and after ...", flush=True)
    import quickstart_model as model

    lines = (folder / "text" / texts.HELD_OUT).read_text("utf-8").splitlines()
    examples = model.make_examples(str(folder / "run"), lines)
    durable_files.write(folder / "look.json", json.dumps(examples))


def read_results(folder: pathlib.Path) -> dict[str, Any]:
    """Return the results of all stages."""
    import quickstart_report as report

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text())

    evaluation = read("evaluation.json")
    scores = {w: read(f"classifier_{w}/results.json")["scores"] for w in WEIGHTS}
    return {
        **read("look.json"),
        "metrics": {name: evaluation[name] for name in METRICS},
        "classifier": {w: s["test_accuracy"]["median"] for w, s in scores.items()},
        "curves": report.read_curves(folder / "run"),
        "corpus": (folder / "corpus.txt").read_text(),
    }


def show(
    options: argparse.Namespace, folder: pathlib.Path, seconds: Mapping[str, float]
) -> None:
    """Write the page, and print a summary."""
    import quickstart_report as report

    results, page = read_results(folder), folder / "report.html"
    durable_files.write(page, report.page(results, seconds))
    checkpoint = short_path(folder / last_checkpoint(options))
    print(f"\n{report.summary(results)}\n")
    print(f"all results as a page:\n  {short_path(page)}")
    print(f"the checkpoint:\n  {checkpoint}")
    python, config = short_path(sys.executable), short_path(CONFIG)
    longer = set_flags({**MODEL, "training.steps": 2 * options.steps})
    commands = report.next_commands(
        python, short_path(folder), checkpoint, config, longer
    )
    print(f"\n{commands}\n\n{report.duration(seconds)}")


def main() -> None:
    """Read the options; print errors as one paragraph."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--output", default="quickstart_run", help="output folder")
    steps = f"training steps; the default takes {MINUTES} minutes on two cores"
    add("--steps", type=int, default=STEPS, help=steps)
    add("--seed", type=int, default=0, help="seed of weights, masks and order")
    add("--text_megabytes", type=float, default=12, help="size of the corpus")
    add("--vocabulary_size", type=int, default=4096, help="number of wordpieces")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="replace", line_buffering=True)
    try:
        run(options)
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        rule, remedy = "Files must be readable and writable", "Check path and disk"
        sys.exit(f"error: {InputError(rule, str(error), remedy)}")
    except KeyboardInterrupt:
        exit_interrupted(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
