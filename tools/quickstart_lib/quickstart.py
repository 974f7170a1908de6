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
from collections.abc import Callable, Mapping
from typing import Any

import quickstart_text as texts
from quickstart_commands import (
    ROOT,
    Commands,
    check_folder,
    exit_interrupted,
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
METRICS = ("masked_lm_loss", "masked_lm_accuracy", "disc_loss", "disc_auc")


def set_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as --set flags."""
    return [word for n, v in settings.items() for word in ("--set", f"{n}={v}")]


class QuickStart:
    """Stages of a quick start in its folder; each is skipped if it was completed."""

    def __init__(self, options: argparse.Namespace):
        self._options, self.folder = options, pathlib.Path(options.output)
        values = {k: v for k, v in vars(options).items() if k != "output"}
        check_folder(self.folder, values)
        self.commands = Commands(self.folder)

    def path(self, *names: str) -> str:
        """Return a path below the folder, as it is printed."""
        return short_path(self.folder.joinpath(*names))

    def stage(
        self, name: str, last: str, run: Callable[..., None], *arguments: str
    ) -> None:
        """Run a stage unless its last file exists."""
        if (self.folder / last).exists():
            print(f"{name}: done before, {self.path(last)}")
        else:
            run(*arguments)

    def text(self) -> None:
        """Collect the corpus."""
        print("reading the docstrings of the Python installation and its packages ...")
        begin = time.perf_counter()
        documents, size = texts.write_corpus(
            texts.package_folders(), self.folder / "text", self._options.text_megabytes
        )
        note = f"{size:,} characters of docstrings from {documents:,} source files"
        print(f"{self.path('text')}: {note}")
        texts.write_atomically(self.folder / "corpus.txt", note)
        self.commands.add("text", begin)

    def vocabulary(self) -> None:
        """Build the vocabulary."""
        # Its settings are written last.
        (self.folder / "vocab.txt").unlink(missing_ok=True)
        self.commands.run(
            "build_vocab", f"--input={self.path('text', texts.TRAIN)}",
            f"--output={self.path('vocab.txt')}",
            f"--size={self._options.vocabulary_size}",
            f"--heldout={self.path('text', texts.HELD_OUT)}",
        )  # fmt: skip

    def records(self, name: str, source: str) -> None:
        """Build the records for training or evaluation."""
        self.commands.run(
            "build_records", f"--input={self.path('text', source)}",
            f"--vocab={self.path('vocab.txt')}", f"--output={self.path(name)}",
            f"--config={short_path(CONFIG)}",
            *(["--overwrite"] if (self.folder / name).exists() else []),
        )  # fmt: skip

    def train(self) -> None:
        """Train from the beginning or from the last checkpoint."""
        steps, seed = self._options.steps, self._options.seed
        settings = {"training.steps": steps, "training.seed": seed, **MODEL, **TRAINING}
        self.commands.run(
            "pretrain", f"--config={short_path(CONFIG)}",
            f"--data={self.path('records')}",
            f"--evaluation_data={self.path('heldout')}",
            f"--model_dir={self.path('run')}", *set_flags(settings),
        )  # fmt: skip

    def evaluate(self) -> None:
        """Evaluate the checkpoint on all held-out records."""
        self.commands.run(
            "evaluate", f"--checkpoint={self.path('run')}",
            f"--data={self.path('heldout')}",
            f"--output={self.path('evaluation.json')}",
        )  # fmt: skip

    def examples(self) -> None:
        """Write outputs for held-out text, before and after training."""
        print("\nreplacing words and detecting them, before and after ...", flush=True)
        begin = time.perf_counter()
        import quickstart_model as model

        lines = (self.folder / "text" / texts.HELD_OUT).read_text("utf-8").splitlines()
        examples = model.make_examples(str(self.folder / "run"), lines)
        texts.write_atomically(self.folder / "look.json", json.dumps(examples))
        self.commands.add("sentences", begin)

    def classify(self, weights: str) -> None:
        """Fine-tune from the checkpoint or from random weights."""
        seed = self._options.seed
        settings = {"model.weights": weights, "training.seed": seed, **FINETUNING}
        self.commands.run(
            "finetune", "--task=csv", f"--data={self.path('text', texts.CLASSES)}",
            f"--checkpoint={self.path('run')}",
            f"--output={self.path(f'classifier_{weights}')}",
            "--text_columns=sentence", "--label_column=label", *set_flags(settings),
        )  # fmt: skip

    def read(self, *names: str) -> Any:
        """Return the JSON of a file of the folder."""
        return json.loads(self.folder.joinpath(*names).read_text())

    def results(self) -> dict[str, Any]:
        """Return the results of all stages."""
        import quickstart_report as report

        evaluation = self.read("evaluation.json")
        scores = {
            weights: self.read(f"classifier_{weights}", "results.json")["scores"]
            for weights in ("pretrained", "random")
        }
        return {
            **self.read("look.json"),
            "metrics": {name: evaluation[name] for name in METRICS},
            "classifier": {n: s["test_accuracy"]["median"] for n, s in scores.items()},
            "curves": report.read_curves(self.folder / "run"),
            "corpus": (self.folder / "corpus.txt").read_text(),
        }

    def show(self) -> None:
        """Write the page, and print a summary."""
        import quickstart_report as report

        results, seconds = self.results(), self.commands.seconds
        page = report.page(results, seconds)
        texts.write_atomically(self.folder / "report.html", page)
        steps = saved_steps(str(self.folder / "run" / CHECKPOINTS))
        checkpoint = steps[self._options.steps]
        print(f"\n{report.summary(results)}\n")
        print(f"all results as a page:\n  {self.path('report.html')}")
        print(f"the checkpoint:\n  {short_path(checkpoint)}")
        paths = map(short_path, (sys.executable, self.folder, checkpoint, CONFIG))
        longer = set_flags({**MODEL, "training.steps": 2 * self._options.steps})
        print(f"\n{report.next_commands(*paths, longer)}\n")
        print(report.duration(seconds))


def run(options: argparse.Namespace) -> None:
    """Run all stages, then show the results."""
    start = QuickStart(options)
    last = f"run/{CHECKPOINTS}/step_{options.steps:08d}/checkpoint.json"
    start.stage("text", f"text/{texts.TRAIN}", start.text)
    start.stage("vocabulary", settings_path("vocab.txt").name, start.vocabulary)
    for name, source in (("records", texts.TRAIN), ("heldout", texts.HELD_OUT)):
        start.stage(name, f"{name}/{MANIFEST}", start.records, name, source)
    start.stage("training", last, start.train)
    start.stage("evaluation", "evaluation.json", start.evaluate)
    start.stage("sentences", "look.json", start.examples)
    for weights in ("pretrained", "random"):
        name = f"classifier_{weights}"
        start.stage(name, f"{name}/results.json", start.classify, weights)
    start.show()


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
