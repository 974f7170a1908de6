"""Fine-tune a public encoder by `finetune` and by Hugging Face's Trainer.

    tools/benchmark finetune --encoder=minilm --data=glue --work=work
    tools/benchmark finetune --work=work --report_only

Both train a classifier with BERT's pooler on the same rows, with equal rate, epochs,
batch size, warm-up, AdamW and clipping, without layer decay. Each training is a process
of its own, start included. The table has the median and the range of the seeds on
dev, and medians of CPU seconds and of the largest memory. Results and models stay in
`work`, so the same command resumes after a stop. Needs the extra `interop-test`.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

TASKS = "mrpc", "rte", "cola", "stsb"
OURS, TRAINER = "electra_tf", "Trainer"
BATCH_SIZE = 32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--encoder", type=pathlib.Path, help="Folder of a BERT of Hugging Face.")
    add("--data", type=pathlib.Path, help="Folder of GLUE.")
    add("--work", type=pathlib.Path, required=True, help="Folder of the results.")
    add("--tasks", nargs="*", default=TASKS, choices=TASKS)
    add("--seeds", type=int, default=3)
    add("--epochs", type=int, default=3)
    add("--rate", type=float, default=1e-4, help="Learning rate.")
    add("--length", type=int, default=128, help="Positions of a text, at most.")
    add("--precision", default="float32", choices=["float32", "mixed_bfloat16"])
    add("--report_only", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if not options.report_only:
        if not (options.encoder and options.data):
            parser.error("--encoder and --data must be set to train")
        for seed in range(options.seeds):
            for task in options.tasks:
                train(task, seed, options)
    print(table(options.work))


def train(task: str, seed: int, options: argparse.Namespace) -> None:
    from electra_tf.config.finetuning import DataConfig
    from electra_tf.tasks.registry import named
    from electra_tf.tasks.task_data import Reading

    reading = Reading(DataConfig(), print)
    data = named(task).training_data(task, str(options.data), reading)
    dev = data.splits["dev"]
    runs = {OURS: run_ours, TRAINER: run_trainer}
    for peer, run in runs.items():
        path = options.work / f"{task}-{seed}-{peer}.json"
        if path.exists():
            continue
        folder = path.with_suffix("")
        shutil.rmtree(folder, ignore_errors=True)  # of a training that was stopped
        predicted, usage = run(folder, data, seed, options)
        scores = data.scorer.score(dev, data.scorer.parse(predicted, predicted))
        content = {
            "score": scores[data.scorer.metric],
            "metric": data.scorer.metric,
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime),
            "gib": round(usage.ru_maxrss / 2**20, 2),
        }
        path.write_text(json.dumps(content))
        print(path.stem, content, flush=True)


def run_ours(
    folder: pathlib.Path, data: Any, seed: int, options: argparse.Namespace
) -> tuple[list[str], Any]:
    """Return predictions for dev, and the usage of the process, of `finetune`."""
    settings = {
        "data.max_length": options.length,
        "data.double_unordered": False,
        "model.pooler": "tanh",
        "optimizer.name": "adamw",
        "optimizer.learning_rate": options.rate,
        "optimizer.layer_decay": 1.0,
        "training.batch_size": BATCH_SIZE,
        "training.epochs": options.epochs,
        "training.precision": options.precision,
        "training.seed": seed,
    }
    usage = run_command(
        *("-m", "electra_tf.finetune", f"--task={data.name}"),
        *(f"--data={options.data}", f"--checkpoint={options.encoder}"),
        f"--output={folder}",
        *(f"--set={name}={value}" for name, value in settings.items()),
    )
    lines = (folder / "trial_1" / "dev.tsv").read_text("utf-8").splitlines()[1:]
    return [line.split("\t")[1] for line in lines], usage


def run_trainer(
    folder: pathlib.Path, data: Any, seed: int, options: argparse.Namespace
) -> tuple[list[str], Any]:
    """Return predictions for dev, and the usage of the process, of the Trainer."""
    from electra_tf.tasks.data import glue

    labels, highest = data.scorer.labels, glue.TASKS[data.name].range[1]
    splits = {}
    for name in ("train", "dev"):
        split = data.splits[name]
        # Scores from 0 to 1, as `finetune` has them.
        targets = [labels.index(t) if labels else t / highest for t in split.targets]
        texts = [[t] if isinstance(t, str) else list(t) for t in split.items]
        splits[name] = {"texts": texts, "targets": targets}
    names = "rate", "epochs", "length", "precision"
    job = {name: getattr(options, name) for name in names} | splits
    job |= {"encoder": str(options.encoder), "seed": seed}
    job["outputs"] = len(labels) if labels else 1
    folder.mkdir()
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    usage = run_command(__file__, "--trainer", str(path))
    predicted = json.loads((folder / "predicted.json").read_text())
    return [labels[p] if labels else str(highest * p) for p in predicted], usage


def run_command(*arguments: str) -> Any:
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"error: {' '.join(arguments)} did not finish")
    return usage


def trainer(path: pathlib.Path) -> None:
    import numpy as np
    import torch
    import transformers

    job = json.loads(path.read_text())
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformers.set_seed(job["seed"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["encoder"])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        job["encoder"], num_labels=job["outputs"]
    )

    def rows(split: dict[str, Sequence]) -> list[dict[str, Any]]:
        sides = map(list, zip(*split["texts"], strict=True))
        encoded = tokenizer(*sides, truncation=True, max_length=job["length"])
        columns = {**encoded, "labels": split["targets"]}
        values = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]

    train_rows = rows(job["train"])
    steps = -(-len(train_rows) // BATCH_SIZE) * job["epochs"]
    fit = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(path.parent / "trainer"),
            num_train_epochs=job["epochs"],
            per_device_train_batch_size=BATCH_SIZE,
            per_device_eval_batch_size=BATCH_SIZE,
            learning_rate=job["rate"],
            lr_scheduler_type="linear",
            warmup_steps=round(0.1 * steps),
            weight_decay=0.01,
            adam_epsilon=1e-6,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            bf16=job["precision"] != "float32",
            use_cpu=True,
            seed=job["seed"],
            dataloader_pin_memory=False,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=train_rows,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    fit.train()
    fit.args.train_sampling_strategy = "random"  # else dev is ordered by length too
    logits, gold, _ = fit.predict(rows(job["dev"]))
    np.testing.assert_allclose(gold, job["dev"]["targets"], rtol=1e-5)
    is_score = job["outputs"] == 1
    predicted = logits[:, 0] if is_score else np.argmax(logits, -1)
    (path.parent / "predicted.json").write_text(json.dumps(predicted.tolist()))


def table(work: pathlib.Path) -> str:
    lines = ["| task | score | by | median (range) | CPU s | GiB |", "|---" * 6 + "|"]
    for task in TASKS:
        for peer in (OURS, TRAINER):
            paths = sorted(work.glob(f"{task}-*-{peer}.json"))
            if found := [json.loads(path.read_text()) for path in paths]:
                names = "score", "cpu_seconds", "gib"
                scores, *costs = (sorted(one[name] for one in found) for name in names)
                middle, cpu, gib = map(statistics.median, (scores, *costs))
                lines.append(
                    f"| {task} | {found[0]['metric']} | {peer} | {middle:.1f} "
                    f"({scores[0]:.1f} to {scores[-1]:.1f}) | {cpu:.0f} | {gib:.1f} |"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trainer"]:
        trainer(pathlib.Path(sys.argv[2]))
    else:
        main()
