"""Compare ways to continue an encoder without a generator on text of a domain.

    python tools/adapt_encoder.py --encoder=minilm --output=adapted --data=data
    python tools/adapt_encoder.py --output=adapted --report_only

The domain is the docstrings of the installed packages. Every system is trained with the
executed FLOPs of `--steps` steps of `electra`, then fine-tuned to name the package of a
function by its docstring and, with `--data`, on 2,000 rows of SST-2, which shows what
it has forgotten. Both keep the epoch that is best on dev, and are scored on test. Dev
and test functions are of source files that pre-training does not read. Each system and
seed has a file of rows without text; what exists is kept, so the same command resumes
after a stop.

The defaults are planned for 2.5 hours of two cores that train at 200 GFLOP/s, see
docs/continue.md.
"""

import argparse
import json
import pathlib
import shutil
import signal
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent / "reproduction"))
sys.path.insert(0, str(pathlib.Path(__file__).parent / "quickstart_lib"))
import domain_text
import score_preset
import scores
from quickstart import check_folder

from electra_tf.config.loader import load_config
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.model import cost

MLM = ("objective.name=mlm",)
LOWER_LAYERS = (
    "model.generator_width=1.0",
    "model.generator_depth={lower_share}",
    "model.generator_heads={heads}",
    "model.generator_feed_forward={feed_forward}",
)
ONE_ENCODER = (
    "model.sharing=all",
    "model.generator_width=1.0",
    "model.generator_depth=1.0",
)
# Stages of each system: share of the FLOPs, and settings.
SYSTEMS: dict[str, list[tuple[float, tuple[str, ...]]]] = {
    "none": [],
    "electra": [(1.0, ())],
    "mlm_electra": [(0.5, MLM), (0.5, ())],
    "lower_layers": [(1.0, LOWER_LAYERS)],
    "sharing_all": [(1.0, ONE_ENCODER)],
    "mlm": [(1.0, MLM)],
    "mlm_lower_layers": [(0.5, MLM), (0.5, LOWER_LAYERS)],
}
POSITIONS, SST2_ROWS = 64, 2000
BFLOAT16 = "training.precision=mixed_bfloat16"
# At the config's higher rate some networks hardly begin to learn in these epochs.
FINETUNING = (
    "optimizer.learning_rate=1e-4",
    "training.batch_size=16",
    "training.epochs=5",
    "training.keep=best",
    BFLOAT16,
)
METRICS = "masked_lm_loss", "disc_auc"  # held out


def main() -> None:
    options = parse()
    if not options.report_only:
        fixed = "encoder", "data", "steps", "rate", "functions", "megabytes"
        texts = {name: str(getattr(options, name)) for name in fixed}
        try:
            check_folder(options.output, texts, "adapt_encoder.json")
            prepare(options)
            # The processes that read the corpus would inherit it.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))
            for seed in range(options.seeds):
                for system in options.systems:
                    fill(system, seed, options)
        except InputError as error:
            raise SystemExit(f"error: {error}") from None
    print(table(options.rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--encoder", help="A model that `convert` reads.")
    add("--output", type=pathlib.Path, required=True, help="Texts, runs, and rows.")
    add("--data", type=pathlib.Path, help="With glue/SST-2; without it no SST-2.")
    add("--report_only", action="store_true", help="Print the table of OUTPUT/rows.")
    add("--systems", nargs="+", default=tuple(SYSTEMS)[:-1], choices=SYSTEMS)
    add("--seeds", type=int, default=3)
    add("--steps", type=int, default=150, help="Of `electra`, with 64 x 64 positions.")
    add("--rate", default="1e-4", help="Learning rate of pre-training.")
    add("--functions", type=int, default=2000, help="Rows of the table.")
    add("--megabytes", type=float, default=12, help="Size of the corpus, at most.")
    options = parser.parse_args()
    if not (options.encoder or options.report_only):
        parser.error("--encoder must be set")
    options.rows = options.output / "rows"
    return options


def prepare(options: argparse.Namespace) -> None:
    """Write texts, tables, the encoder's checkpoint and records, unless they exist.

    Adds the facts that they give to the options.
    """
    folder, log = options.output, options.output / "log.txt"
    options.rows.mkdir(parents=True, exist_ok=True)
    options.tasks = ["functions", *(["sst2"] if options.data else [])]
    if not (folder / "functions" / "test.tsv").exists():
        domain_text.collect(folder, options.functions, options.megabytes)
    if options.data and not (folder / "sst2" / "test.tsv").exists():
        write_sst2(folder / "sst2", options.data)
    options.encoder_run = folder / "encoder"
    if not options.encoder_run.exists():
        flags = f"--from={options.encoder}", f"--to={options.encoder_run}"
        scores.run_command("convert", *flags, log=log)
    options.config = next(options.encoder_run.rglob("config.yaml"))
    options.shape = load_config(options.config, root=PretrainingConfig).model.encoder
    options.length = min(POSITIONS, options.shape.max_positions)
    for name in ("train", "heldout"):
        if not (folder / "records" / name / "manifest.json").exists():
            scores.run_command(
                "build_records",
                f"--input={folder / name}.txt",
                f"--vocab={options.config.with_name('vocab.txt')}",
                f"--output={folder / 'records' / name}",
                f"--max_length={options.length}",
                *("--order=document", "--overwrite"),
                log=log,
            )


def write_sst2(folder: pathlib.Path, data: pathlib.Path) -> None:
    """Write 2,000 rows as train and dev, and the published dev split as test."""
    whole = folder.with_name("sst2_whole")
    scores.prepare("sst2", data, whole)
    train, test = (
        (whole / f"{name}.tsv").read_text("utf-8").rstrip("\n").split("\n")[1:]
        for name in ("train", "dev")
    )
    cut = SST2_ROWS * 9 // 10
    parts = {"train": train[:cut], "dev": train[cut:SST2_ROWS], "test": test}
    for name, lines in parts.items():
        domain_text.write_table(folder / f"{name}.tsv", [f"{x}\n" for x in lines])


def stages(system: str, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return settings, steps and executed FLOPs of each stage of a system."""
    shape = options.shape
    base = [
        f"records.max_length={options.length}",
        "input.batch_size=64",
        f"optimizer.learning_rate={options.rate}",
        f"training.seed={seed}",
        BFLOAT16,
    ]

    def flops(sets: list[str], steps: int) -> int:
        sets = [*sets, f"training.steps={steps}"]
        return cost.training_flops(
            load_config(options.config, sets, root=PretrainingConfig)
        )

    budget, result = flops(base, options.steps), []
    sizes = {"heads": shape.heads, "feed_forward": shape.feed_forward}
    sizes["lower_share"] = max(1, shape.depth // 2) / shape.depth
    for number, (share, changes) in enumerate(SYSTEMS[system]):
        # A second stage reads the records in another order.
        sets = [*base, f"input.seed={seed + 1000 * number}"]
        sets += [text.format(**sizes) for text in changes]
        steps = max(1, round(share * budget / flops(sets, 1)))
        sets += [
            f"optimizer.warmup_steps={max(1, steps // 10)}",
            f"training.steps={steps}",
        ]
        result.append({"sets": sets, "steps": steps, "flops": flops(sets, steps)})
    return result


def fill(system: str, seed: int, options: argparse.Namespace) -> None:
    path = options.rows / f"{system}-seed{seed}.rows.json.xz"
    if path.exists():
        return
    print(f"{system}, seed {seed}", flush=True)
    records, folder = options.output / "records", options.output / f"{system}-{seed}"
    folder.mkdir(exist_ok=True)
    log, checkpoint = folder / "log.txt", options.encoder_run
    rows: dict[str, Any] = {"stages": stages(system, seed, options)}
    for number, stage in enumerate(rows["stages"], 1):
        scores.run_command(
            "pretrain",
            f"--config={options.config}",
            f"--data={records / 'train'}",
            f"--model_dir={folder / f'stage{number}'}",
            f"--init_checkpoint={checkpoint}",
            *(f"--set={item}" for item in stage["sets"]),
            log=log,
        )
        checkpoint = folder / f"stage{number}"
    rows["heldout"] = {}
    if rows["stages"]:
        flags = f"--checkpoint={checkpoint}", f"--data={records / 'heldout'}"
        printed = scores.run_command("evaluate", *flags, log=log)
        report = json.loads(printed.strip().splitlines()[-1])
        found = {name: report.get(name) for name in METRICS}
        rows["heldout"] = {n: v for n, v in found.items() if v is not None}
    for task in options.tasks:
        rows[task] = finetune(task, checkpoint, seed, folder, options)
    scores.write_rows(path, rows)
    shutil.rmtree(folder)


def finetune(
    task: str, checkpoint: pathlib.Path, seed: int, folder: pathlib.Path, options: Any
) -> dict[str, Any]:
    data, output = options.output / task, folder / task
    scores.run_command(
        "finetune",
        *("--task=csv", "--text_columns=sentence", "--label_column=label"),
        *(f"--data={data}", f"--checkpoint={checkpoint}", f"--output={output}"),
        "--config=finetune_small",
        *(f"--set={item}" for item in FINETUNING),
        f"--set=data.max_length={options.length}",
        f"--set=training.seed={seed}",
        log=folder / "log.txt",
    )
    test, predicted = (
        (path / "test.tsv").read_text("utf-8") for path in (data, output / "trial_1")
    )
    return scores.rows_of("sst2", test, [predicted])


def table(folder: pathlib.Path) -> str:
    """Return a Markdown table of all rows: means, and the ranges of the seeds."""
    names = "functions", "sst2", *METRICS
    lines = [f"| system | seeds | steps | FLOPs | {' | '.join(names)} |"]
    lines.append("|---" * (4 + len(names)) + "|")
    for system in SYSTEMS:
        paths = sorted(folder.glob(f"{system}-seed*.rows.json.xz"))
        if seeds := [scores.read_rows(path) for path in paths]:
            parts = seeds[0]["stages"]
            steps = " + ".join(str(stage["steps"]) for stage in parts)
            flops = f"{sum(stage['flops'] for stage in parts):.2e}"
            cells = " | ".join(cell(name, seeds) for name in names)
            lines.append(f"| {system} | {len(seeds)} | {steps} | {flops} | {cells} |")
    return "\n".join(lines)


def cell(name: str, seeds: list[dict[str, Any]]) -> str:
    """Return mean and range of an accuracy in percent, or of a held-out metric."""
    if name in METRICS:
        values = [rows["heldout"][name] for rows in seeds if name in rows["heldout"]]
    else:
        found = [rows[name] for rows in seeds if name in rows]
        values = [value for rows in found for value in scores.each("sst2", rows)]
    return score_preset.cell(values, 3 if name in METRICS else 1) if values else ""


if __name__ == "__main__":
    main()
