"""From text that lies on this machine to a small ELECTRA that has learnt from it.

    tools/quickstart [--output=quickstart_run] [--seed=0]

Ctrl-C stops it at any time; the same command continues.
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
    claim,
    done,
    interrupted,
    near,
)

from electra_tf.errors import InputError
from electra_tf.text.records import MANIFEST
from electra_tf.text.tokenizer import settings_path
from electra_tf.training.checkpoint import CHECKPOINTS, saved_steps

CONFIG = ROOT / "configs" / "tiny.yaml"
STEPS, MINUTES = 8000, 8
# Over configs/tiny.yaml, which is made for hours: what learns most within minutes.
MODEL = {"input.batch_size": 64, "model.generator_width": 0.125}
TRAINING = {
    "optimizer.learning_rate": "5e-4",
    "optimizer.decay_power": 0.6,
    "training.log_every": 100,
    "training.save_every": 1000,
    "training.evaluate_every": 1000,
    "training.evaluation_batches": 20,
}
# The classifier's, for a small encoder and a table of short sentences.
FINETUNING = {
    "data.max_length": 32,
    "optimizer.learning_rate": "5e-4",
    "optimizer.layer_decay": 1.0,
    "training.epochs": 4,
}
LOOK, CORPUS, PAGE = "look.json", "corpus.txt", "report.html"


def make_text(
    commands: Commands, folder: pathlib.Path, megabytes: float
) -> pathlib.Path:
    """Gather the corpus if it is not there."""
    text = folder / "text"
    if not done(text / texts.TRAIN, "text"):
        print("reading the docstrings of the Python installation and its packages ...")
        begin = time.perf_counter()
        documents, size = texts.gather(texts.installed(), text, megabytes)
        print(f"{near(text)}: {size:,} characters in {documents:,} documents")
        note = f"{size:,} characters of docstrings from {documents:,} source files"
        texts.whole(folder / CORPUS, note)
        commands.add("text", begin)
    return text


def make_records(
    commands: Commands, folder: pathlib.Path, text: pathlib.Path, size: int
) -> None:
    """Build the vocabulary, and the records to learn from and to measure on."""
    vocab = folder / "vocab.txt"
    if not done(settings_path(vocab), "vocabulary"):
        vocab.unlink(missing_ok=True)  # the settings are written last
        commands.run(
            "build_vocab", f"--input={near(text / texts.TRAIN)}",
            f"--output={near(vocab)}", f"--size={size}",
            f"--heldout={near(text / texts.HELD_OUT)}",
        )  # fmt: skip
    for name, source in (("records", texts.TRAIN), ("heldout", texts.HELD_OUT)):
        records = folder / name
        if not done(records / MANIFEST, name):
            commands.run(
                "build_records", f"--input={near(text / source)}",
                f"--vocab={near(vocab)}", f"--output={near(records)}",
                f"--config={near(CONFIG)}",
                *(["--overwrite"] if records.exists() else []),
            )  # fmt: skip


def sets(values: Mapping[str, Any]) -> list[str]:
    """Return settings as arguments."""
    return [part for name, v in values.items() for part in ("--set", f"{name}={v}")]


def train(
    commands: Commands, folder: pathlib.Path, steps: int, seed: int
) -> pathlib.Path:
    """Train, from the beginning or from where it was stopped."""
    run = folder / "run"
    saved = saved_steps(str(run / CHECKPOINTS))
    if steps not in saved:
        settings = {"training.steps": steps, "training.seed": seed, **MODEL, **TRAINING}
        commands.run(
            "pretrain", f"--config={near(CONFIG)}",
            f"--data={near(folder / 'records')}",
            f"--evaluation_data={near(folder / 'heldout')}",
            f"--model_dir={near(run)}", *sets(settings),
        )  # fmt: skip
        return pathlib.Path(saved_steps(str(run / CHECKPOINTS))[steps])
    print(f"training: done before, {near(saved[steps])}")
    return pathlib.Path(saved[steps])


def measure(
    commands: Commands, folder: pathlib.Path, checkpoint: pathlib.Path
) -> dict[str, float]:
    """Measure the checkpoint on all that is held out."""
    output = folder / "evaluation.json"
    if not done(output, "evaluation"):
        commands.run(
            "evaluate", f"--checkpoint={near(checkpoint)}",
            f"--data={near(folder / 'heldout')}", f"--output={near(output)}",
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
        if not done(output / "results.json", name):
            settings = {"model.weights": weights, "training.seed": seed, **FINETUNING}
            commands.run(
                "finetune", "--task=csv",
                f"--data={near(folder / 'text' / texts.CLASSES)}",
                f"--checkpoint={near(checkpoint)}", f"--output={near(output)}",
                "--text_columns=sentence", "--label_column=label", *sets(settings),
            )  # fmt: skip
        results = json.loads((output / "results.json").read_text())
        scores[weights] = results["scores"]["test_accuracy"]["median"]
    return scores


def look(
    commands: Commands, folder: pathlib.Path, checkpoint: pathlib.Path
) -> dict[str, Any]:
    """Return what the checkpoint makes of held-out text, before and after training."""
    output = folder / LOOK
    if not done(output, "sentences"):
        print("\nreplacing words and judging them, before and after ...", flush=True)
        begin = time.perf_counter()
        import quickstart_model as model

        lines = (folder / "text" / texts.HELD_OUT).read_text("utf-8").splitlines()
        found = model.look(str(checkpoint), str(folder / "heldout"), lines)
        texts.whole(output, json.dumps(found))
        commands.add("sentences", begin)
    return json.loads(output.read_text())


def show(
    options: argparse.Namespace,
    found: dict[str, Any],
    checkpoint: pathlib.Path,
    commands: Commands,
) -> None:
    """Write the page and print the essentials."""
    import quickstart_pictures as pictures
    import quickstart_report as report

    folder = pathlib.Path(options.output)
    found |= {
        "curves": pictures.curves(folder / "run"),
        "corpus": (folder / CORPUS).read_text(),
    }
    texts.whole(folder / PAGE, report.page(found, commands.seconds))
    print(f"\n{report.told(found, sys.stdout.isatty())}\n")
    print(f"all of it as a page:\n  {near(folder / PAGE)}")
    print(f"the checkpoint, which needs nothing beside it:\n  {near(checkpoint)}")
    paths = map(near, (sys.executable, folder, checkpoint, CONFIG))
    print(f"\n{report.next_commands(*paths, 2 * options.steps, sets(MODEL))}\n")
    print(report.duration(commands.seconds))


def start(options: argparse.Namespace) -> None:
    """Run all stages, then show the results."""
    folder = pathlib.Path(options.output)
    claim(folder, {k: v for k, v in vars(options).items() if k != "output"})
    commands = Commands(folder)
    text = make_text(commands, folder, options.text_megabytes)
    make_records(commands, folder, text, options.vocabulary_size)
    checkpoint = train(commands, folder, options.steps, options.seed)
    found = {
        "metrics": measure(commands, folder, checkpoint),
        **look(commands, folder, checkpoint),
        "classifier": classify(commands, folder, checkpoint, options.seed),
    }
    show(options, found, checkpoint, commands)


def main() -> None:
    """Read the options; print errors as one paragraph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", default="quickstart_run", help="a folder; default: %(default)s"
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS,
        help=f"of training; default: %(default)s, about {MINUTES} minutes on two cores",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0,
        help="of the weights, the masks and the order; default: %(default)s",
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
        start(options)
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        rule, remedy = "Files must be readable and writable", "Check the path and disk"
        sys.exit(f"error: {InputError(rule, str(error), remedy)}")
    except KeyboardInterrupt:
        interrupted(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
