"""Measure whether pre-training continues from a converted model.

    python tools/continue_pretraining.py --general=wiki.txt --domain=plays.txt \
        --output=continued

For each seed: trains a small pair on general text, converts it to Hugging Face, loads
that folder with `pretrain --init_checkpoint`, and trains on text of another domain.
Prints the losses on held-out text of that domain beside those of the converted model
without further training, and of a new model with as many steps.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

LENGTH = 32
SETS = (
    f"records.max_length={LENGTH}",
    f"model.max_positions={LENGTH}",
    "input.batch_size=128",
    "training.log_every=100",
    "training.evaluate_every=1000000",
    "training.save_every=1000000",
)
LOSSES = "masked_lm_loss", "disc_loss"


def main() -> None:
    """Build the records, train, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("general", "domain", "output"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000, help="on general text")
    parser.add_argument("--further_steps", type=int, default=200)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    build_data(given)
    print(f"seed | model | {' | '.join(('loss', *LOSSES))}")
    for seed in range(given.seeds):
        for name, folder in train(given, seed).items():
            losses = evaluate(folder, given.output / "heldout")
            numbers = " | ".join(f"{number:.3f}" for number in losses)
            print(f"{seed} | {name} | {numbers}", flush=True)


def build_data(given: argparse.Namespace) -> None:
    """Build the general text's vocabulary and all records; every tenth is held out."""
    output = given.output
    vocab = output / "vocab.txt"
    if not vocab.exists():
        run("build_vocab", input=given.general, output=vocab, size=4000)
    blocks = given.domain.read_text(encoding="utf-8").split("\n\n")
    for name, kept in (("domain", range(1, 10)), ("heldout", range(1))):
        chosen = [b for i, b in enumerate(blocks) if i // 50 % 10 in kept]
        (output / f"{name}.txt").write_text("\n\n".join(chosen), encoding="utf-8")
    texts = {name: output / f"{name}.txt" for name in ("domain", "heldout")}
    for name, text in {"general": given.general, **texts}.items():
        if not (output / name).exists():
            flags = {"config": "tiny", "max_length": LENGTH, "vocab": vocab}
            run("build_records", input=text, output=output / name, **flags)


def train(given: argparse.Namespace, seed: int) -> dict[str, pathlib.Path]:
    """Train one seed's models.

    Args:
        given: The flags.
        seed: Of the initial weights and of the order of the records.

    Returns:
        Checkpoints or runs by a description.
    """
    folder, steps = given.output / f"seed_{seed}", given.further_steps
    public, back = folder / "huggingface", folder / "back"
    pretrain(given.output / "general", folder / "general", seed, given.steps)
    for source, target, form in (
        (folder / "general", public, "huggingface"),
        (public, back, "electra_tf"),
    ):
        shutil.rmtree(target, ignore_errors=True)
        run("convert", **{"from": source, "to": target, "format": form})
    data = given.output / "domain"
    pretrain(data, folder / "continued", seed, steps, init_checkpoint=public)
    pretrain(data, folder / "new", seed, steps)
    return {
        f"converted, {steps} steps more": folder / "continued",
        "converted, no steps more": back,
        f"new, {steps} steps": folder / "new",
    }


def pretrain(
    data: pathlib.Path, folder: pathlib.Path, seed: int, steps: int, **flags: object
) -> None:
    """Train, or do nothing if the run is complete."""
    sets = (
        *SETS,
        f"training.steps={steps}",
        f"optimizer.warmup_steps={steps // 10}",
        f"training.seed={seed}",
        f"input.seed={seed}",
    )
    run("pretrain", *sets, config="tiny", data=data, model_dir=folder, **flags)


def evaluate(checkpoint: pathlib.Path, data: pathlib.Path) -> list[float]:
    """Return the total loss and its parts on records."""
    table = run("evaluate", checkpoint=checkpoint, data=data)
    parts = [
        float(re.search(rf"^  {name} +(\S+)$", table, re.MULTILINE)[1])
        for name in LOSSES
    ]
    return [parts[0] + 50 * parts[1], *parts]


def run(command: str, *sets: str, **flags: object) -> str:
    """Run a command and return its output."""
    given = [f"--{name}={value}" for name, value in flags.items()]
    given += [f"--set={item}" for item in sets]
    process = [sys.executable, "-m", f"electra_tf.{command}", *given]
    done = subprocess.run(process, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{command} failed: {' '.join(process)}")
    return done.stdout


if __name__ == "__main__":
    main()
