"""Build model, data and checkpoints from a config and its vocabulary."""

import dataclasses
import hashlib
import io
import math
import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.text.pipeline import count_tokens, evaluation_batches
from electra_tf.text.record_set import (
    RecordSet,
    identity_of_files,
    open_records,
    reraise_bad_records,
)
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import VOCABULARY
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import (
    CONFIG,
    Checkpoint,
    CheckpointManager,
    saved_steps,
    training_state,
)
from electra_tf.training.evaluation import Evaluation
from electra_tf.training.optimizer import create_optimizer
from electra_tf.training.strategy import check_batch

_COUNTS = "token_counts.npy"  # in a checkpoint, of a unigram generator


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Config and tokenizer, validated against each other."""

    config: PretrainingConfig
    tokenizer: WordPieceTokenizer
    token_counts: np.ndarray | None = None
    """int64 [V]: counts of the tokens in the training records, for a unigram
    generator."""

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "Experiment":
        """Load config and tokenizer of a checkpoint."""
        config = checkpoint.config()
        vocabulary = Vocabulary.read(os.path.join(checkpoint.path, VOCABULARY))
        counts = None
        if config.objective.unigram_generator:
            counts = np.load(os.path.join(checkpoint.path, _COUNTS), allow_pickle=False)
        return cls(config, WordPieceTokenizer(vocabulary, config.tokenization), counts)

    def with_counts(self, record_set: RecordSet) -> "Experiment":
        """Count the tokens of the training records, if a unigram generator needs it."""
        if not self.config.objective.unigram_generator:
            return self
        with reraise_bad_records(record_set):
            return dataclasses.replace(self, token_counts=count_tokens(record_set))

    def files(self) -> dict[str, bytes]:
        """Return the config and vocabulary files of a checkpoint."""
        texts = {CONFIG: config_lib.dump_config(self.config)}
        texts |= self.tokenizer.files(VOCABULARY)
        files = {name: text.encode() for name, text in texts.items()}
        if self.token_counts is not None:
            counts = io.BytesIO()
            np.save(counts, self.token_counts)
            files[_COUNTS] = counts.getvalue()
        return files

    def open(self, data: str) -> RecordSet:
        """Open records; they must have this experiment's length and vocabulary."""
        return open_records(
            data,
            max_length=self.config.records.max_length,
            tokenizer=self.tokenizer,
        )

    def pretrainer(self, strategy: tf.distribute.Strategy | None = None) -> Pretrainer:
        """Create the compiled model with initial weights."""
        strategy = strategy or tf.distribute.get_strategy()
        config, accumulation = self.config, self.config.training.accumulation
        check_batch(strategy, config.input.batch_size, accumulation)
        with strategy.scope():
            pretrainer = Pretrainer(config, self.special_tokens)
            steps, restart = config.training.steps, config.restart
            optimizer = create_optimizer(config.optimizer, steps, restart=restart)
            pretrainer.compile(optimizer)
        return pretrainer

    def save_checkpoint(self, pretrainer: Pretrainer, folder: str) -> str:
        """Save a pretrainer that Keras's `fit` has trained.

        finetune, evaluate, export and `pretrain --init_checkpoint` read the checkpoint.
        A run of pretrain cannot resume from it, because Keras's `fit` does not save its
        position in the records.
        """
        if pretrainer.config != self.config:
            raise InputError(
                "pretrainer has another config than this experiment; call "
                "save_checkpoint of the experiment that created it"
            )
        step = int(pretrainer.optimizer.iterations.numpy())
        if (steps := saved_steps(folder)).get(step):
            raise InputError(
                f"{folder!r} has a checkpoint of step {step:,}: {steps[step]}; choose "
                "another folder, or delete it"
            )
        weights, slots = training_state(pretrainer)
        metadata = {"vocabulary": self.tokenizer.vocabulary.sha256}
        manager = CheckpointManager(folder, keep=sys.maxsize)
        return manager.save(step, weights, slots, self.files(), metadata)

    def evaluation(
        self,
        pretrainer: Pretrainer,
        strategy: tf.distribute.Strategy,
        record_set: RecordSet,
        max_batches: int | None,
    ) -> Evaluation:
        """Create an evaluation on held-out records."""
        size, total = self.config.input.batch_size, record_set.total
        return Evaluation(
            strategy,
            lambda batch, number: pretrainer.test_step(batch, number, False),
            lambda host, hosts: evaluation_batches(
                record_set, size, host=host, hosts=hosts
            ),
            count=min(math.ceil(total / size), max_batches or total),
            stage=lambda: pretrainer.stage,
        )

    def read_evaluation(self, record_set: RecordSet, max_batches: int | None) -> None:
        """Read the batches of an evaluation: damage would end the training later."""
        batches = evaluation_batches(record_set, self.config.input.batch_size)
        for _ in batches.take(max_batches or -1):
            pass

    @property
    def special_tokens(self) -> SpecialTokens:
        """Return special tokens and size of the vocabulary."""
        return SpecialTokens.from_vocabulary(
            self.tokenizer.vocabulary, self.token_counts
        )

    def config_warnings(self) -> list[str]:
        """Return warnings about valid settings that are rarely intended."""
        steps, warmup = self.config.training.steps, self.config.optimizer.warmup_steps
        restart = self.config.restart or 0
        if warmup < min(restart or steps, steps - restart):
            return []
        return [
            "the learning rate never reaches optimizer.learning_rate "
            f"({self.config.optimizer.learning_rate:g}): training.steps is {steps:,}, "
            f"optimizer.warmup_steps is {warmup:,}; lower optimizer.warmup_steps"
        ]


def data_fingerprint(
    record_set: RecordSet, tokenizer: WordPieceTokenizer
) -> dict[str, Any]:
    """Return a fingerprint of the records and vocabulary, independent of paths."""
    digest = hashlib.sha256()
    for path, number in zip(record_set.paths, record_set.counts, strict=True):
        digest.update(f"{os.path.basename(path)} {number}\n".encode())
    if record_set.manifest is not None:
        for shard in record_set.manifest.shards:
            digest.update(shard.sha256.encode())
    fingerprint = {
        "vocabulary": tokenizer.vocabulary.sha256,
        "records": record_set.total,
        "records_sha256": digest.hexdigest(),
    }
    if record_set.manifest is None:
        fingerprint["record_blocks_sha256"] = identity_of_files(record_set.paths)
    return fingerprint
