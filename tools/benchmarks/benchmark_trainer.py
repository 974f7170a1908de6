"""Peer of `benchmark finetune`: Hugging Face's Trainer."""

import argparse
import tempfile
from typing import Any

import tokenizers
import torch
import transformers
from benchmark_finetune import EpochServer, Examples
from benchmark_torch import make_config


class TorchDataset(torch.utils.data.Dataset):
    """Examples in the form of a tokenizer's result, without padding."""

    def __init__(self, examples: Examples):
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples.ids)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {
            "input_ids": self._examples.ids[row],
            "token_type_ids": self._examples.segments[row],
            "labels": self._examples.targets[row],
        }


class EpochCallback(transformers.TrainerCallback):
    """Callback that starts epochs on request and reports their time."""

    def __init__(self, server: EpochServer):
        self._server = server

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """Wait for a request."""
        self._server.begin()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        """Report the time."""
        self._server.end()


def arguments(
    options: argparse.Namespace, examples: Examples, output: str
) -> transformers.TrainingArguments:
    """Return the arguments that correspond to the settings of electra_tf."""
    from electra_tf.config.finetuning import TaskOptimizerConfig

    settings = TaskOptimizerConfig()
    steps = -(-len(examples.ids) // options.batch_size) * examples.epochs
    sampling = "random" if options.peer == "torch" else "group_by_length"
    return transformers.TrainingArguments(
        output_dir=output,
        num_train_epochs=examples.epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=round(settings.warmup_share * steps),
        weight_decay=settings.weight_decay,
        adam_epsilon=settings.epsilon,
        max_grad_norm=settings.clip_norm,
        optim="adamw_torch_fused",
        bf16=options.precision == "mixed_bfloat16",
        train_sampling_strategy=sampling,
        torch_compile=options.peer == "torch.compile",
        use_cpu=True,
        dataloader_pin_memory=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def train(options: argparse.Namespace, examples: Examples, server: EpochServer) -> None:
    """Train with the Trainer's defaults, without logs and checkpoints."""
    torch.set_num_threads(options.threads)
    transformers.set_seed(0)
    config = make_config(examples.shape)
    config.num_labels = examples.num_classes
    model = transformers.ElectraForSequenceClassification(config)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[PAD]": 0}))
    # The collator uses it only for padding.
    padder = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]"
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = transformers.Trainer(
            model=model,
            args=arguments(options, examples, output),
            train_dataset=TorchDataset(examples),
            data_collator=transformers.DataCollatorWithPadding(padder),
            callbacks=[EpochCallback(server)],
        )
        trainer.train()
