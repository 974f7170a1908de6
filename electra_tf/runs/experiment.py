"""Build model, data and checkpoints from a config and its vocabulary."""

import dataclasses
import hashlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.model import cost
from electra_tf.pretraining.masking import Masker, SpecialTokens
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.cost_estimate import estimate_cost
from electra_tf.text import records
from electra_tf.text.pipeline import evaluation_batches
from electra_tf.text.record_set import RecordSet, open_records
from electra_tf.text.tokenizer import (
    Tokenizer,
    check_settings,
    settings_path,
    stored_settings,
)
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
from electra_tf.training.peak_flops import runs_on_cpu
from electra_tf.training.strategy import check_batch

_ALIKE = 1.25  # times that differ by less are given as one


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Config with its tokenizer, validated against each other."""

    config: PretrainingConfig
    tokenizer: Tokenizer

    @classmethod
    def resolve(
        cls,
        data: str,
        vocab: str | None,
        settings: Callable[[Mapping | None], PretrainingConfig],
    ) -> "Experiment":
        """Load the vocabulary of the records and complete the config with its size.

        Args:
            data: The records, a folder or globs.
            vocab: The vocabulary's file where it does not lie among the records.
            settings: From what is stored beside the vocabulary to the settings.

        Returns:
            The experiment.

        Raises:
            InputError: No vocabulary, other tokenization settings, another size.
        """
        path = _vocabulary_path(data, vocab)
        vocabulary = Vocabulary.read(path)
        stored = stored_settings(path, vocabulary)
        config = settings(stored)
        check_settings(config.tokenization, stored, path)
        wanted = config.model.vocabulary_size
        if wanted not in (None, len(vocabulary)):
            raise InputError(
                f"The vocabulary has the {wanted} entries of model.vocabulary_size",
                f"{path}: {len(vocabulary)} entries",
                f"Set model.vocabulary_size={len(vocabulary)} or null, or use records "
                "of the other vocabulary",
            )
        model = dataclasses.replace(config.model, vocabulary_size=len(vocabulary))
        config = dataclasses.replace(config, model=model)
        return cls(config, Tokenizer(vocabulary, config.tokenization))

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "Experiment":
        """Load the experiment of a checkpoint.

        Args:
            checkpoint: One that pretrain wrote.

        Returns:
            Its config with the tokenizer that lies in it.
        """
        config = config_lib.parse_config(
            checkpoint.read(CONFIG).decode(), checkpoint.path
        )
        vocabulary = Vocabulary.read(os.path.join(checkpoint.path, records.VOCABULARY))
        return cls(config, Tokenizer(vocabulary, config.tokenization))

    def files(self) -> dict[str, bytes]:
        """Return the config and vocabulary files of a checkpoint."""
        identity = self.tokenizer.identity_text.encode()
        vocabulary = self.tokenizer.vocabulary.text.encode()
        return {
            CONFIG: config_lib.dump_config(self.config).encode(),
            records.VOCABULARY: vocabulary,
            settings_path(records.VOCABULARY).name: identity,
        }

    def open(self, data: str) -> RecordSet:
        """Open records of this experiment's length and vocabulary."""
        return open_records(
            data,
            max_length=self.config.records.max_length,
            tokenizer=self.tokenizer,
        )

    def pretrainer(self, strategy: tf.distribute.Strategy | None = None) -> Pretrainer:
        """Create the compiled model with initial weights.

        Args:
            strategy: On whose replicas; None: on one device, for Keras's `fit`.

        Returns:
            A Keras model with its optimizer.
        """
        strategy = strategy or tf.distribute.get_strategy()
        check_batch(
            strategy, self.config.input.batch_size, self.config.training.accumulation
        )
        with strategy.scope():
            pretrainer = Pretrainer(
                self.config, special_tokens(self.tokenizer.vocabulary)
            )
            pretrainer.compile(
                create_optimizer(self.config.optimizer, self.config.training.steps)
            )
        return pretrainer

    def save_checkpoint(self, pretrainer: Pretrainer, folder: str) -> str:
        """Write what Keras's `fit` has trained as a checkpoint.

        finetune, evaluate, export and `pretrain --init_checkpoint` take it. A run of
        pretrain does not resume from it: Keras's `fit` does not record which records
        it has read.

        Args:
            pretrainer: One that `pretrainer` made, trained or not.
            folder: Gets the checkpoint as a folder `step_...` of its own.

        Returns:
            The checkpoint's folder.

        Raises:
            InputError: A checkpoint of this step exists, the pretrainer is another
                experiment's, or the folder cannot be written.
        """
        if pretrainer.config != self.config:
            raise InputError(
                "A pretrainer must be saved by the experiment that made it",
                "a pretrainer with another config",
                "Call save_checkpoint of its own experiment",
            )
        step = int(pretrainer.optimizer.iterations.numpy())
        if step in saved_steps(folder):
            raise InputError(
                f"{folder!r} must not have a checkpoint of step {step:,}",
                saved_steps(folder)[step],
                "Choose another folder, or delete that checkpoint",
            )
        weights, slots = training_state(pretrainer)
        metadata = {"vocabulary": self.tokenizer.vocabulary.sha256}
        every = CheckpointManager(folder, keep=sys.maxsize, keep_at=(), steps=step)
        return every.save(step, weights, slots, self.files(), metadata)

    def evaluation(
        self,
        pretrainer: Pretrainer,
        strategy: tf.distribute.Strategy,
        found: RecordSet,
        batches: int | None,
    ) -> Evaluation:
        """Create an evaluation on held-out records.

        Args:
            pretrainer: What is measured.
            strategy: Its replicas.
            found: The records.
            batches: How many at most; None: all.

        Returns:
            Something to call.
        """
        size = self.config.input.batch_size
        count = min(math.ceil(found.total / size), batches or found.total)
        return Evaluation(
            strategy,
            lambda batch, number: pretrainer.test_step(batch, number, as_ratios=False),
            lambda host, hosts: evaluation_batches(found, size, host=host, hosts=hosts),
            count,
        )

    @property
    def work(self) -> cost.BatchShape:
        """What one step works on."""
        size, length = self.config.input.batch_size, self.config.records.max_length
        tokens = special_tokens(self.tokenizer.vocabulary)
        slots = Masker(self.config.masking, tokens, length).max_predictions_per_seq
        return cost.BatchShape(rows=size, length=length, slots=slots)

    @property
    def flops(self) -> int:
        """FLOPs of a step's products."""
        objective = self.config.objective
        has_generator = not objective.uniform_generator
        return cost.step_flops(
            self.config.model, objective.name, has_generator, self.work
        )

    def describe(self, pretrainer: Pretrainer, strategy: tf.distribute.Strategy) -> str:
        """The resolved config, sizes, cost and time, for people.

        Args:
            pretrainer: The model.
            strategy: Its replicas.

        Returns:
            Lines.
        """
        config, replicas = self.config, strategy.num_replicas_in_sync
        total = num_parameters(pretrainer.trainable_variables)
        found = estimate_cost(config, strategy, total, self.work)
        lines = [config_lib.dump_config(config).rstrip(), "", *self._towers()]
        lines += [
            f"{name}: {n:,} parameters"
            for name, n in parameter_counts(pretrainer).items()
        ]
        where = (
            "this process" if runs_on_cpu(strategy) else f"each of {replicas} devices"
        )
        steps, wait = config.training.steps, found.traffic / found.bandwidth.best
        fast, slow = found.seconds, found.disturbed
        until = f" to {slow:.3g} s" if slow > _ALIKE * fast else " s"
        lines += [
            f"all: {total:,} parameters, {len(pretrainer.trainable_variables)} weights",
            f"{self.flops:.4g} FLOPs a step, {self.flops * steps:.4g} in {steps:,} "
            "steps",
            f"memory: about {found.memory / 2**30:.2f} GiB of {where}",
            f"step: about {fast:.3g}{until}, of which {wait / fast:.0%} "
            f"between the products ({found.traffic / 1e9:.3g} GB at "
            f"{found.bandwidth.best / 1e9:.3g} GB/s); a layer's products reach "
            f"{found.peak.best:.3g} FLOP/s here",
            f"time to train: about {_span(steps * fast, steps * slow)}, besides "
            "starting and evaluating",
            *_disturbed(fast, slow),
            *self.config_warnings(),
        ]
        return "\n".join(lines)

    def config_warnings(self) -> list[str]:
        """Return warnings about valid settings that are rarely intended."""
        steps, warmup = self.config.training.steps, self.config.optimizer.warmup_steps
        if warmup < steps:
            return []
        return [
            f"the learning rate never gets to {self.config.optimizer.learning_rate:g}: "
            f"of {warmup:,} steps of warm-up there are {steps:,}; "
            "lower optimizer.warmup_steps"
        ]

    def _towers(self) -> list[str]:
        """Each tower's shape, where the config says null too."""
        objective = self.config.objective
        main = "encoder" if objective.name == "mlm" else "discriminator"
        kind = self.config.model, objective.name, not objective.uniform_generator
        towers = dict(
            zip((main, "generator"), cost.encoder_configs(*kind), strict=False)
        )
        return [
            f"{name}: {shape.depth} layers {shape.width} wide, heads: {shape.heads}, "
            f"feed-forward: {shape.feed_forward}, embeddings: {shape.embedding}"
            for name, shape in towers.items()
        ]


def special_tokens(vocabulary: Vocabulary) -> SpecialTokens:
    """Return the special tokens of a vocabulary.

    Args:
        vocabulary: The pieces.

    Returns:
        Special ids and continuation pieces.
    """
    return SpecialTokens.from_vocabulary(vocabulary)


def data_fingerprint(found: RecordSet, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a fingerprint of the records and vocabulary, independent of paths.

    Args:
        found: The records.
        tokenizer: Whose ids they hold.

    Returns:
        Values that JSON knows.
    """
    digest = hashlib.sha256()
    for path, number in zip(found.paths, found.counts, strict=True):
        digest.update(f"{os.path.basename(path)} {number}\n".encode())
    if found.manifest is not None:
        for shard in found.manifest.shards:
            digest.update(shard.sha256.encode())
    return {
        "vocabulary": tokenizer.vocabulary.sha256,
        "records": found.total,
        "records_sha256": digest.hexdigest(),
    }


def parameter_counts(pretrainer: Pretrainer) -> dict[str, int]:
    """Parameters by part; shared ones count with the part that made them.

    Args:
        pretrainer: The model.

    Returns:
        Numbers by the part's path.
    """
    found: dict[str, int] = {}
    for variable in pretrainer.trainable_variables:
        names = variable.path.split("/")
        depth = 1 + min(names.index(n) for n in ("encoder", "head") if n in names)
        name = "/".join(names[: depth + (names[depth] == "embeddings")])
        found[name] = found.get(name, 0) + num_parameters([variable])
    return found


def num_parameters(variables: list[Any]) -> int:
    """Numbers in all variables.

    Args:
        variables: Any.

    Returns:
        How many.
    """
    return sum(math.prod(variable.shape) for variable in variables)


def _vocabulary_path(data: str, vocab: str | None) -> str:
    beside = os.path.join(data, records.VOCABULARY)
    if vocab or os.path.exists(beside):
        return vocab or beside
    places = (data, "*tfrecord*"), (data, "pretrain_tfrecords", "*tfrecord*")
    globs = [os.path.join(*place) for place in places]
    if not tf.io.gfile.glob(globs if os.path.isdir(data) else data.split(",")[0]):
        raise InputError(
            "--data is a folder of records, or globs of record files",
            f"{data!r}, where none are",
            "Build records with electra_tf.build_records, or check the path",
        )
    raise InputError(
        "Records are read with the vocabulary they were made with",
        f"{data!r}, without a {records.VOCABULARY}",
        "Name the vocabulary's file with --vocab",
    )


def _span(fast: float, slow: float) -> str:
    return _days(fast) if slow <= _ALIKE * fast else f"{_days(fast)} to {_days(slow)}"


def _disturbed(fast: float, slow: float) -> list[str]:
    """What a range of times means."""
    if slow <= _ALIKE * fast:
        return []
    return [
        "other work disturbed the measurement: the lower times are of its fastest "
        "tries, near those of a machine that does nothing else; nine tries of ten kept "
        "to the higher ones"
    ]


def _days(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
