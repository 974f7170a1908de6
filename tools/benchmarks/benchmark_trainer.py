"""The peer of `benchmark finetune`: Hugging Face's Trainer."""

import argparse
import tempfile
from typing import Any

import tokenizers
import torch
import transformers
from benchmark_finetune import Turns, Work
from benchmark_torch import _shape


class Rows(torch.utils.data.Dataset):
    """Examples as a tokenizer returns them, not yet padded."""

    def __init__(self, work: Work):
        self._work = work

    def __len__(self) -> int:
        return len(self._work.ids)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {
            "input_ids": self._work.ids[row],
            "token_type_ids": self._work.segments[row],
            "labels": self._work.targets[row],
        }


class Each(transformers.TrainerCallback):
    """Begins and ends epochs when it is told to."""

    def __init__(self, turns: Turns):
        self._turns = turns

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """Waits."""
        self._turns.begin()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        """Answers."""
        self._turns.end()


def arguments(
    options: argparse.Namespace, work: Work, output: str
) -> transformers.TrainingArguments:
    """As ours: rate, warm-up, decay of weights, epsilon and clipping."""
    from electra_tf.config.finetuning import TaskOptimizerConfig

    settings = TaskOptimizerConfig()
    steps = -(-len(work.ids) // options.batch_size) * work.epochs
    lengths = "random" if options.peer == "torch" else "group_by_length"
    return transformers.TrainingArguments(
        output_dir=output,
        num_train_epochs=work.epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=round(settings.warmup_share * steps),
        weight_decay=settings.weight_decay,
        adam_epsilon=settings.epsilon,
        max_grad_norm=settings.clip_norm,
        optim="adamw_torch_fused",
        bf16=options.precision == "mixed_bfloat16",
        train_sampling_strategy=lengths,
        torch_compile=options.peer == "torch.compile",
        use_cpu=True,
        dataloader_pin_memory=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def train(options: argparse.Namespace, work: Work, turns: Turns) -> None:
    """Trains as the Trainer does by default, without logs and checkpoints."""
    torch.set_num_threads(options.threads)
    transformers.set_seed(0)
    shape = _shape(work.shape)
    shape.num_labels = work.classes
    model = transformers.ElectraForSequenceClassification(shape)
    words = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[PAD]": 0}))
    # The collator asks it for nothing but padding.
    padder = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]"
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = transformers.Trainer(
            model=model,
            args=arguments(options, work, output),
            train_dataset=Rows(work),
            data_collator=transformers.DataCollatorWithPadding(padder),
            callbacks=[Each(turns)],
        )
        trainer.train()
