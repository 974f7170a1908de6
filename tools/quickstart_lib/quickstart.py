"""Train a small ELECTRA on text of this machine, and show its results.

    tools/quickstart [--output=quickstart_run] [--seed=0]

Ctrl-C stops it. Run the same command again to continue.
"""

import argparse
import json
import pathlib
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

import quickstart_text as texts
from quickstart_commands import (
    ROOT,
    Commands,
    check_folder,
    exit_interrupted,
    is_done,
    short_path,
)

from electra_tf.errors import InputError
from electra_tf.text.records import MANIFEST
from electra_tf.text.tokenizer import settings_path
from electra_tf.training.checkpoint import CHECKPOINTS, saved_steps

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
EXAMPLES, CORPUS, PAGE = "look.json", "corpus.txt", "report.html"


def make_text(
    commands: Commands, folder: pathlib.Path, megabytes: float
) -> pathlib.Path:
    """Collect the corpus if it does not exist."""
    text = folder / "text"
    if not is_done(text / texts.TRAIN, "text"):
        print("reading the docstrings of the Python installation and its packages ...")
        begin = time.perf_counter()
        documents, size = texts.write_corpus(texts.package_folders(), text, megabytes)
        print(f"{short_path(text)}: {size:,} characters in {documents:,} documents")
        note = f"{size:,} characters of docstrings from {documents:,} source files"
        texts.write_atomically(folder / CORPUS, note)
        commands.add("text", begin)
    return text


def make_records(
    commands: Commands, folder: pathlib.Path, text: pathlib.Path, size: int
) -> None:
    """Build the vocabulary, and the records for training and evaluation."""
    vocab = folder / "vocab.txt"
    if not is_done(settings_path(vocab), "vocabulary"):
        vocab.unlink(missing_ok=True)  # the settings are written last
        commands.run(
            "build_vocab", f"--input={short_path(text / texts.TRAIN)}",
            f"--output={short_path(vocab)}", f"--size={size}",
            f"--heldout={short_path(text / texts.HELD_OUT)}",
        )  # fmt: skip
    for name, source in (("records", texts.TRAIN), ("heldout", texts.HELD_OUT)):
        records = folder / name
        if not is_done(records / MANIFEST, name):
            commands.run(
                "build_records", f"--input={short_path(text / source)}",
                f"--vocab={short_path(vocab)}", f"--output={short_path(records)}",
                f"--config={short_path(CONFIG)}",
                *(["--overwrite"] if records.exists() else []),
            )  # fmt: skip


def set_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as --set flags."""
    return [
        argument
        for name, value in settings.items()
        for argument in ("--set", f"{name}={value}")
    ]


def train(
    commands: Commands, folder: pathlib.Path, steps: int, seed: int
) -> pathlib.Path:
    """Train from the beginning or from the last checkpoint."""
    run = folder / "run"
    saved = saved_steps(str(run / CHECKPOINTS))
    if steps not in saved:
        settings = {"training.steps": steps, "training.seed": seed, **MODEL, **TRAINING}
        commands.run(
            "pretrain", f"--config={short_path(CONFIG)}",
            f"--data={short_path(folder / 'records')}",
            f"--evaluation_data={short_path(folder / 'heldout')}",
            f"--model_dir={short_path(run)}", *set_flags(settings),
        )  # fmt: skip
        return pathlib.Path(saved_steps(str(run / CHECKPOINTS))[steps])
    print(f"training: done before, {short_path(saved[steps])}")
    return pathlib.Path(saved[steps])


def evaluate(
    commands: Commands, folder: pathlib.Path, checkpoint: pathlib.Path
) -> dict[str, float]:
    """Evaluate the checkpoint on all held-out records."""
    output = folder / "evaluation.json"
    if not is_done(output, "evaluation"):
        commands.run(
            "evaluate", f"--checkpoint={short_path(checkpoint)}",
            f"--data={short_path(folder / 'heldout')}",
            f"--output={short_path(output)}",
        )  # fmt: skip
    return json.loads(output.read_text())


def classify(
    commands: Commands, folder: pathlib.Path, checkpoint: pathlib.Path, seed: int
) -> dict[str, float]:
    """Fine-tune from the checkpoint and from random weights; return both scores."""
    scores = {}
    for weights in ("pretrained", "random"):
        name = f"classifier_{weights}"
        output = folder / name
        if not is_done(output / "results.json", name):
            settings = {"model.weights": weights, "training.seed": seed, **FINETUNING}
            commands.run(
                "finetune", "--task=csv",
                f"--data={short_path(folder / 'text' / texts.CLASSES)}",
                f"--checkpoint={short_path(checkpoint)}",
                f"--output={short_path(output)}",
                "--text_columns=sentence", "--label_column=label", *set_flags(settings),
            )  # fmt: skip
        results = json.loads((output / "results.json").read_text())
        scores[weights] = results["scores"]["test_accuracy"]["median"]
    return scores


def make_examples(
    commands: Commands, folder: pathlib.Path, checkpoint: pathlib.Path
) -> dict[str, Any]:
    """Return outputs for held-out text, before and after training."""
    output = folder / EXAMPLES
    if not is_done(output, "sentences"):
        print("\nreplacing words and detecting them, before and after ...", flush=True)
        begin = time.perf_counter()
        import quickstart_model as model

        lines = (folder / "text" / texts.HELD_OUT).read_text("utf-8").splitlines()
        examples = model.make_examples(str(checkpoint), str(folder / "heldout"), lines)
        texts.write_atomically(output, json.dumps(examples))
        commands.add("sentences", begin)
    return json.loads(output.read_text())


def show(
    options: argparse.Namespace,
    results: dict[str, Any],
    checkpoint: pathlib.Path,
    commands: Commands,
) -> None:
    """Write the page, and print a summary."""
    import quickstart_pictures as pictures
    import quickstart_report as report

    folder = pathlib.Path(options.output)
    results |= {
        "curves": pictures.read_curves(folder / "run"),
        "corpus": (folder / CORPUS).read_text(),
    }
    texts.write_atomically(folder / PAGE, report.page(results, commands.seconds))
    print(f"\n{report.summary(results, sys.stdout.isatty())}\n")
    print(f"all results as a page:\n  {short_path(folder / PAGE)}")
    print(f"the checkpoint:\n  {short_path(checkpoint)}")
    paths = map(short_path, (sys.executable, folder, checkpoint, CONFIG))
    print(f"\n{report.next_commands(*paths, 2 * options.steps, set_flags(MODEL))}\n")
    print(report.duration(commands.seconds))


def run(options: argparse.Namespace) -> None:
    """Run all stages, then show the results."""
    folder = pathlib.Path(options.output)
    check_folder(folder, {k: v for k, v in vars(options).items() if k != "output"})
    commands = Commands(folder)
    text = make_text(commands, folder, options.text_megabytes)
    make_records(commands, folder, text, options.vocabulary_size)
    checkpoint = train(commands, folder, options.steps, options.seed)
    results = {
        "metrics": evaluate(commands, folder, checkpoint),
        **make_examples(commands, folder, checkpoint),
        "classifier": classify(commands, folder, checkpoint, options.seed),
    }
    show(options, results, checkpoint, commands)


def main() -> None:
    """Read the options; print errors as one paragraph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", default="quickstart_run", help="output folder; default: %(default)s"
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS,
        help=f"training steps; default: %(default)s, {MINUTES} minutes on two cores",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0,
        help="seed of weights, masks and order; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--text_megabytes", type=float, default=12, help="default: %(default)s"
    )
    parser.add_argument(
        "--vocabulary_size", type=int, default=4096, help="default: %(default)s"
    )
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
