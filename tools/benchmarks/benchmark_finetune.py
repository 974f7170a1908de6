"""Fine-tune a public encoder by `finetune` and by Hugging Face's Trainer.

    tools/benchmark finetune --encoder=minilm --data=folder --work=work

Both train a classifier on `train.csv` of the folder, each with its own head, with equal
rate, epochs, batch size, warm-up, AdamW and clipping, without layer decay. Tables have
the columns text, label and, of pairs, text_b. Each training is a process of its own,
start included. The table has the median and the range of the seeds' accuracy on
`dev.csv`, and medians of CPU seconds and of the largest memory; matmul is the time of
large matmuls of as many FLOPs. Needs the extra `interop-test`.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

import peers
from peers import LIMIT, OURS

TRAINER, BATCH_SIZE = "Trainer", 32


def read_rows(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run_command(*arguments: str) -> dict[str, float]:
    """Run a Python program; return its CPU seconds and largest memory."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"error: {' '.join(arguments)} did not finish")
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return {"cpu_seconds": cpu_seconds, "gib": usage.ru_maxrss / 2**20}


def run_ours(folder: pathlib.Path, seed: int, options: argparse.Namespace) -> dict:
    settings = {
        "data.max_length": options.length,
        "optimizer.name": "adamw",
        "optimizer.learning_rate": options.rate,
        "optimizer.layer_decay": 1.0,
        "training.batch_size": BATCH_SIZE,
        "training.epochs": options.epochs,
        "training.precision": options.precision,
        "training.seed": seed,
    }
    columns = [n for n in read_rows(options.data / "dev.csv")[0] if n != "label"]
    usage = run_command(
        *("-m", "electra_tf.finetune", "--task=csv", "--label_column=label"),
        *(f"--data={options.data}", f"--checkpoint={options.encoder}"),
        *(f"--output={folder}", f"--text_columns={','.join(columns)}"),
        *(f"--set={name}={value}" for name, value in settings.items()),
    )
    rows = read_rows(folder / "trial_1" / "dev.csv")
    correct = [row["gold"] == row["prediction"] for row in rows]
    return {**usage, "accuracy": statistics.mean(correct)}


def run_trainer(folder: pathlib.Path, seed: int, options: argparse.Namespace) -> dict:
    names = "encoder", "data", "rate", "epochs", "length", "precision"
    job = {name: str(getattr(options, name)) for name in names}
    folder.mkdir()
    job |= {"seed": str(seed), "output": str(folder)}
    usage = run_command(__file__, "--trainer", json.dumps(job))
    return usage | json.loads((folder / "results.json").read_text())


def train(job: dict[str, str]) -> None:
    """Train with the Trainer; write accuracy and FLOPs."""
    import numpy as np
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformers.set_seed(int(job["seed"]))
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["encoder"])
    splits = {
        name: read_rows(pathlib.Path(job["data"], f"{name}.csv"))
        for name in ("train", "dev")
    }
    labels = sorted({row["label"] for row in splits["train"]})
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        job["encoder"], num_labels=len(labels)
    )

    def encode(row: dict[str, str]) -> dict[str, Any]:
        texts = [row[name] for name in ("text", "text_b") if name in row]
        ids = tokenizer(*texts, truncation=True, max_length=int(job["length"]))
        return {**ids, "labels": labels.index(row["label"])}

    train_rows, dev_rows = ([*map(encode, split)] for split in splits.values())
    steps = -(-len(train_rows) // BATCH_SIZE) * int(job["epochs"])
    fit = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=job["output"],
            num_train_epochs=int(job["epochs"]),
            per_device_train_batch_size=BATCH_SIZE,
            per_device_eval_batch_size=BATCH_SIZE,
            learning_rate=float(job["rate"]),
            lr_scheduler_type="linear",
            warmup_steps=round(0.1 * steps),
            weight_decay=0.01,
            adam_epsilon=1e-6,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            bf16=job["precision"] != "float32",
            use_cpu=True,
            seed=int(job["seed"]),
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
    logits, gold, _ = fit.predict(dev_rows)
    accuracy = float(np.mean(np.argmax(logits, -1) == gold))
    results = {"accuracy": accuracy, "flops": fit.state.total_flos}
    pathlib.Path(job["output"], "results.json").write_text(json.dumps(results))


def main() -> None:
    parser = peers.parser(__doc__)
    add = parser.add_argument
    add("--encoder", required=True, help="Folder of a BERT of Hugging Face.")
    add("--data", type=pathlib.Path, required=True, help="Folder of the tables.")
    add("--work", type=pathlib.Path, required=True, help="New folder of the models.")
    add("--seeds", type=int, default=3)
    add("--epochs", type=int, default=3)
    add("--rate", type=float, default=1e-4, help="Learning rate.")
    add("--length", type=int, default=128, help="Tokens of a text, at most.")
    add("--precision", default="float32", choices=["float32", "mixed_bfloat16"])
    options = parser.parse_args()
    options.work.mkdir(parents=True)
    options.threads = len(os.sched_getaffinity(0))
    results: dict[str, list[dict]] = {OURS: [], TRAINER: []}
    for seed in range(options.seeds):
        for name, run in ((OURS, run_ours), (TRAINER, run_trainer)):
            results[name].append(run(options.work / f"{name}-{seed}", seed, options))
    print("| by | accuracy: median (range) | CPU s | GiB |\n|---|---|---|---|")
    for name, rows in results.items():
        keys = "accuracy", "cpu_seconds", "gib"
        scores, cpu, gib = (sorted(row[key] for row in rows) for key in keys)
        print(
            f"| {name} | {statistics.median(scores):.1%} ({scores[0]:.1%} to "
            f"{scores[-1]:.1%}) | {statistics.median(cpu):.0f} | "
            f"{statistics.median(gib):.1f} |"
        )
    seconds = peers.Peer(LIMIT, matmul_seconds, options).ask(results[TRAINER][0])
    print(f"| {LIMIT} | | {seconds:.0f} | |")


def matmul_seconds(name: str, options: argparse.Namespace) -> Any:
    """Return a function from results to the CPU seconds of as many FLOPs in matmuls."""
    measure_peak_flops = peers.peak_flops(options, time.process_time)
    return lambda results: results["flops"] / measure_peak_flops(1e11)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trainer"]:
        train(json.loads(sys.argv[2]))
    else:
        main()
