"""Train a small ELECTRA on text of this machine, and show its results.

    tools/quickstart [--output=quickstart_run] [--seed=0]

Ctrl-C stops it. Run the same command again to continue.
"""

import argparse
import json
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import quickstart_text as texts

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.text.records import MANIFEST
from electra_tf.text.tokenizer import settings_path
from electra_tf.training.bfloat16 import multiplies_bfloat16
from electra_tf.training.checkpoint import CHECKPOINTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = "quickstart.json"
CONFIG = ROOT / "configs" / "tiny.yaml"
STEPS, MINUTES = 4000, 5
# Changes of configs/tiny.yaml, which is tuned for hours, for training within minutes.
MODEL = {"input.batch_size": 64, "model.generator_width": 0.125}
TRAINING = {
    "training.token_embeddings": "counts",
    "optimizer.name": "muon",
    "optimizer.learning_rate": "1e-3",
    "optimizer.decay_power": 0.6,
    "training.log_every": 100,
    "training.save_every": 1000,
    "training.evaluate_every": 500,
    "training.evaluation_batches": 20,
}
# Settings of the classifier, for a small encoder and short sentences.
FINETUNING = {
    "data.max_length": 32,
    "optimizer.learning_rate": "5e-4",
    "optimizer.layer_decay": 1.0,
    "training.epochs": 4,
}
WEIGHTS = {
    "pretrained": "It should score well above 50, which is chance.",
    "random": "It should stay near 50: the difference is what pre-training was worth.",
}
METRICS = {
    "disc_auc": "discriminator: AUC of replaced tokens (chance: 0.5)",
    "disc_loss": "discriminator: loss",
    "masked_lm_accuracy": "generator: accuracy on masked tokens",
    "masked_lm_loss": "generator: loss",
}
QUESTION = "Is a sentence as written, or were two adjacent words exchanged?"
PROPOSALS = ("sentence", "original word", "proposals")
_SENTENCES, _TOKENS = 5, range(16, 31)  # of the proposals
_SIGNALS = signal.SIGINT, signal.SIGTERM


class Stage(NamedTuple):
    """A command, the file that it writes last, and what a person should know of it."""

    title: str
    duration: str  # on two free cores
    last: str
    command: list[str]
    note: str = ""


def run_command(name: str, *arguments: str) -> None:
    command = [short_path(sys.executable), "-m", f"electra_tf.{name}", *arguments]
    print(f"$ {shlex.join(command)}", flush=True)
    process = subprocess.Popen([sys.executable, *command[1:]])
    received: list[int] = []

    def handle(number: int, _: Any) -> None:
        received.append(number)
        if number == signal.SIGTERM:  # Ctrl-C reaches both processes
            process.terminate()

    # The command saves while this process waits.
    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    code = process.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    if received:
        exit_interrupted(received[0])
    if code:
        sys.exit(code)


def exit_interrupted(number: int = signal.SIGINT) -> None:
    command = shlex.join([short_path(ROOT / "tools" / "quickstart"), *sys.argv[1:]])
    print(f"\nstopped; nothing is lost, continue with\n  {command}")
    sys.exit(128 + number)


def short_path(path: str | os.PathLike) -> str:
    """Return a path relative to the working directory if it is below."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def check_folder(folder: pathlib.Path, options: Mapping[str, Any], name: str) -> None:
    path = folder / name
    if path.exists():
        previous = json.loads(path.read_text())
        if previous != options:
            raise InputError(
                f"{folder} was begun with {previous}, not {options}; pass the first "
                "options, or another --output"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"--output={folder} has other files; pass another --output")
    folder.mkdir(parents=True, exist_ok=True)
    durable_files.write(path, json.dumps(options))


def set_flags(settings: Mapping[str, Any]) -> list[str]:
    return [word for n, v in settings.items() for word in ("--set", f"{n}={v}")]


def command_stages(
    options: argparse.Namespace, folder: pathlib.Path
) -> Iterator[Stage]:
    """Yield the stages that are commands."""

    def path(*names: str) -> str:
        return short_path(folder.joinpath(*names))

    vocab, config = path("vocab.txt"), f"--config={short_path(CONFIG)}"
    train, held_out = (path("text", name) for name in (texts.TRAIN, texts.HELD_OUT))
    command = [
        "build_vocab", f"--input={train}", f"--output={vocab}",
        f"--size={options.vocabulary_size}", f"--heldout={held_out}", "--overwrite",
    ]  # fmt: skip
    last = settings_path("vocab.txt").name
    yield Stage("Learn a vocabulary of wordpieces", "10 seconds", last, command)
    sources = ("records", train, "training"), ("heldout", held_out, "held-out")
    for name, source, what in sources:
        command = [
            "build_records", f"--input={source}", f"--vocab={vocab}",
            f"--output={path(name)}", config, "--overwrite",
        ]  # fmt: skip
        title = f"Turn the {what} text into token ids"
        yield Stage(title, "10 seconds", f"{name}/{MANIFEST}", command)
    run, shared = path("run"), {"training.seed": options.seed}
    if multiplies_bfloat16():
        shared["training.precision"] = "mixed_bfloat16"
    settings = {"training.steps": options.steps, **shared, **MODEL, **TRAINING}
    command = [
        "pretrain", config, f"--data={path('records')}",
        f"--evaluation_data={path('heldout')}", f"--model_dir={run}",
        *set_flags(settings),
    ]  # fmt: skip
    yield Stage(
        "Pre-train: a generator replaces tokens, a discriminator finds them",
        f"{MINUTES} minutes for {STEPS:,} steps",
        f"{last_step(options)}/checkpoint.json",
        command,
        "disc_auc should rise from 0.5, which is chance, to more than 0.8.",
    )
    command = [
        "evaluate", f"--checkpoint={run}", f"--data={path('heldout')}",
        f"--output={path('evaluation.json')}",
    ]  # fmt: skip
    title = "Measure both networks on all held-out text"
    yield Stage(title, "20 seconds", "evaluation.json", command)
    for weights, note in WEIGHTS.items():
        name = f"classifier_{weights}"
        command = [
            "finetune", "--task=csv", f"--data={path('text', texts.CLASSES)}",
            f"--checkpoint={run}", f"--output={path(name)}",
            "--text_columns=sentence", "--label_column=label",
            *set_flags({"model.weights": weights, **shared, **FINETUNING}),
        ]  # fmt: skip
        title = f"Fine-tune a classifier from {weights} weights"
        yield Stage(
            title, "a minute", f"{name}/results.json", command, f"{QUESTION} {note}"
        )


def last_step(options: argparse.Namespace) -> str:
    return f"run/{CHECKPOINTS}/step_{options.steps:08d}"


def run(options: argparse.Namespace) -> None:
    """Run the stages that were not completed before, and show the results."""
    folder = pathlib.Path(options.output)
    fixed = {k: v for k, v in vars(options).items() if k != "output"}
    check_folder(folder, fixed, OPTIONS)
    stages = list(command_stages(options, folder))
    title = "Collect English text from the docstrings of the Python installation"
    stages.insert(0, Stage(title, "20 seconds", f"text/{texts.TRAIN}", []))
    for number, stage in enumerate(stages, 1):
        print(f"\n[{number}/{len(stages)}] {stage.title} ({stage.duration})")
        if (folder / stage.last).exists():
            print(f"done before: {short_path(folder / stage.last)}")
            continue
        if stage.note:
            print(stage.note)
        start = time.monotonic()
        if stage.command:
            run_command(*stage.command)
        else:
            collect(options, folder)
        minutes, seconds = divmod(round(time.monotonic() - start), 60)
        print(f"done in {minutes} min {seconds} s")
    show(options, folder)


def collect(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Write the texts and tables."""
    megabytes, roots = options.text_megabytes, texts.package_folders()
    documents, size = texts.write_corpus(roots, folder / "text", megabytes)
    note = f"{size:,} characters of docstrings from {documents:,} source files"
    print(f"{short_path(folder / 'text')}: {note}")


def show(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Write the page, and print a summary."""
    from electra_tf.runs.html_report import table
    from electra_tf.runs.pretraining_report import write_pretraining_report
    from electra_tf.text.record_set import open_records, record_length

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text())

    results = [read(f"classifier_{weights}/results.json") for weights in WEIGHTS]
    medians = [result["scores"]["test_accuracy"]["median"] for result in results]
    names = (f"from {weights} weights" for weights in WEIGHTS)
    accuracies = [*zip(names, medians, strict=True), ("by chance", 50.0)]
    classes = [(name, f"{value:.1f} %") for name, value in accuracies]
    lines = (folder / "text" / texts.HELD_OUT).read_text("utf-8").splitlines()
    data, page = str(folder / "heldout"), folder / "report.html"
    records = open_records(data, max_length=record_length(data), tokenizer=None)
    parts = [
        "<h2>Proposals of the generator for the [MASK]</h2>",
        table(PROPOSALS, proposals(str(folder / "run"), lines), ["text"]),
        f"<h2>Fine-tuned classifier</h2><p>{QUESTION} Accuracy on sentences from "
        "held-out files:</p>",
        table(["fine-tuned", "accuracy"], classes),
    ]
    write_pretraining_report(str(page), str(folder / "run"), records, parts)
    metrics = read("evaluation.json")
    print("\nWhat came out, on text that was held out:")
    lines = [(text, f"{metrics[name]:.3f}") for name, text in METRICS.items()]
    print("\n".join(f"  {text:<54}{value:>8}" for text, value in lines))
    print(f"\nAccuracy of the classifiers. {QUESTION}")
    print("\n".join(f"  {name:<54}{value:>8}" for name, value in classes))
    python, place = (shlex.quote(short_path(p)) for p in (sys.executable, folder))
    print(f"\nAll of it as a page, for a browser:\n  {short_path(page)}")
    print(f"The pre-trained model:\n  {short_path(folder / last_step(options))}")
    print("The classifier on your sentences, one to a line:")
    model = f"--model={place}/classifier_pretrained"
    print(f"  {python} -m electra_tf.predict {model} --input=my.txt")
    print("Next, a model of your own text:\n  docs/tutorials/own_text.md")


def proposals(run: str, lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield held-out sentences with a masked word, the word, and what replaces it."""
    import electra_tf

    generator, rng = electra_tf.Electra.from_preset(run).generator, random.Random(0)
    encode = generator.encoder.tokenizer.encode
    lines = [line for line in lines if any(map(str.isalpha, line.split()))]
    fitting = [line for line in lines if len(encode(line)) in _TOKENS]
    for line in fitting[:: max(1, len(fitting) // _SENTENCES)][:_SENTENCES]:
        words = line.split()
        number = rng.choice([n for n, word in enumerate(words) if word.isalpha()])
        masked = " ".join([*words[:number], "[MASK]", *words[number + 1 :]])
        found = generator.fill_mask(masked)
        shown = ", ".join(f"{p.token} {p.probability:.2f}" for p in found)
        yield [masked, words[number], shown]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
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
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        run(options)
    except (InputError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        exit_interrupted()


if __name__ == "__main__":
    main()
