"""Keras model that runs the pre-training step.

`Pretrainer.train_step` masks a batch, computes losses and gradients and updates the
weights. The forward pass of ELECTRA (generator, sampled replacements, discriminator) is
`ElectraObjective.losses` in `objectives/electra.py`.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch, MaskedBatch
from electra_tf.config import loader
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError, check_type
from electra_tf.kernels.rng import EVALUATION, TRAINING, RngStream, make_rng
from electra_tf.pretraining import metrics as metrics_lib
from electra_tf.pretraining.losses import WeightedSum
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.objectives import OBJECTIVES
from electra_tf.pretraining.objectives.common import uses_jit

Counts = dict[str, tf.Tensor]
Gradients = list[tf.Tensor | None]


@keras.saving.register_keras_serializable("electra_tf")
class Pretrainer(keras.Model):
    """Model that pre-trains with one objective, on one replica or several.

    Random numbers depend only on the seed, the step and the row of the global batch.
    Each sum is divided by its weight over all replicas. So a global batch gives the
    same update on any number of replicas.

    Args:
        config: Configuration of the run, with a vocabulary size.
        tokens: Special tokens and size of the vocabulary.
        name: Name of the model.

    Example:
        import electra_tf

        vocabulary = electra_tf.Vocabulary.read("records/vocab.txt")
        sets = ["records.max_length=32", "input.batch_size=8", "model.depth=2"]
        config = electra_tf.load_config("tiny", sets)
        pretrainer = electra_tf.Pretrainer.from_vocabulary(config, vocabulary)
        pretrainer.compile(electra_tf.create_optimizer(config.optimizer, steps=1000))
        tokenizer = electra_tf.Tokenizer(vocabulary)
        records = electra_tf.open_records("records", max_length=32, tokenizer=tokenizer)
        batches = electra_tf.training_batches(records, config.input)
        pretrainer.fit(batches, steps_per_epoch=2, shuffle=False)

        # A checkpoint, which from_preset and the commands read.
        from electra_tf.runs.experiment import Experiment

        folder = Experiment(pretrainer.config, tokenizer).save_checkpoint(
            pretrainer, "fitted"
        )
        electra_tf.Encoder.from_preset(folder)
    """

    def __init__(
        self, config: PretrainingConfig, tokens: SpecialTokens, name: str = "pretrainer"
    ):
        super().__init__(name=name, dtype="float32")
        self.config, self.tokens = config, tokens
        self.objective = OBJECTIVES[config.objective.name](config, tokens)
        self.core = self.objective.model
        self.core.build((None, None))
        self.built = True

    @classmethod
    def from_vocabulary(
        cls,
        config: PretrainingConfig,
        vocabulary: Any,
        token_counts: np.ndarray | None = None,
    ) -> "Pretrainer":
        """Make a pretrainer with initial weights, for `compile` and `fit`.

        Args:
            config: The experiment; its vocabulary size may be None.
            vocabulary: An `electra_tf.Vocabulary`.
            token_counts: int64 [V], occurrences of the tokens in the training records,
                for `objective.unigram_generator`.

        Returns:
            A pretrainer whose `config` has the size of the vocabulary.

        Raises:
            InputError: The config has another vocabulary size.
        """
        remedy = 'pass for example load_config("small")'
        check_type("config", config, PretrainingConfig, remedy)
        tokens = SpecialTokens.from_vocabulary(vocabulary, token_counts)
        model = config.model.of_vocabulary(tokens.vocabulary_size, "the vocabulary")
        return cls(dataclasses.replace(config, model=model), tokens)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of an equal pretrainer, as JSON."""
        tokens = dataclasses.asdict(self.tokens)
        for name in ("is_continuation_V", "counts_V"):
            if tokens[name] is not None:
                tokens[name] = tokens[name].tolist()
        own = {"config": loader.dump_config(self.config), "tokens": tokens}
        return super().get_config() | own

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Pretrainer":
        """Make a pretrainer of the same shapes and initial values."""
        settings = loader.parse_config(config["config"], "the saved pretrainer")
        values = dict(config["tokens"])
        values["is_continuation_V"] = np.array(values["is_continuation_V"], bool)
        if values["counts_V"] is not None:
            values["counts_V"] = np.array(values["counts_V"], np.int64)
        pretrainer = cls(settings, SpecialTokens(**values), config["name"])
        pretrainer.trainable = config.get("trainable", True)
        return pretrainer

    def compile(self, optimizer: Any = None, *others: Any, **named: Any) -> None:
        """Set the optimizer of `create_optimizer`; other arguments are errors.

        `training.xla`, not Keras, selects what XLA compiles: on one replica the whole
        step, on several forward and backward pass.
        """
        if others or named or not hasattr(optimizer, "slots"):
            raise InputError(
                "compile of a pretrainer must get the optimizer of create_optimizer "
                f"and nothing else, not {optimizer!r:.60}"
                + "".join(f", {name}" for name in (*map(repr, others), *named))
            )
        is_whole = uses_jit(self.config.training.xla) and _replicas() == 1
        super().compile(optimizer=optimizer, jit_compile=is_whole)
        optimizer.build(self.trainable_variables)

    @property
    def stage(self) -> int:
        """Return the number of the objective's stage, on which the steps depend."""
        return self.objective.stage

    @property
    def stages(self) -> list[int]:
        """Return the last step of each stage; `begin` must be called between two."""
        steps = self.config.training.steps
        return [steps] if self.config.restart is None else [self.config.restart, steps]

    def begin(self, step: int) -> None:
        """Prepare for the update that follows `step` completed ones."""
        self.objective.begin(step)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Train with Keras's loop; the objective must have one stage."""
        if len(self.stages) > 1:
            raise InputError(
                "Keras's fit must train an objective of one stage, not objective.name: "
                f"{self.config.objective.name}; run electra-tf pretrain"
            )
        return super().fit(*args, **kwargs)

    def call(self, inputs: Any) -> tf.Tensor:
        """Call the trained model on `token_ids`, `segment_ids` and `padding_mask`."""
        return self.core(**inputs)

    def train_step(self, batch: Batch, as_ratios: bool = True) -> dict[str, Any]:
        """Run one pre-training step: mask, compute gradients, update the weights.

        Args:
            batch: This replica's rows of the global batch.
            as_ratios: Return ratios, as Keras's `fit` needs them, instead of sums.
                Ratios are correct on one replica only.

        Returns:
            Metrics by name, each a float32 scalar or a `WeightedSum` of this replica.
        """
        step = self.optimizer.iterations
        # All random numbers of the step: masked positions, samples, dropout.
        rng = make_rng(self.config.training.seed, TRAINING, step, _first_row(batch))
        masked = self.objective.mask(batch, rng)
        # The denominators of the losses, over the global batch.
        counts = _sum_over_replicas(self.objective.counts(masked))
        # Generator, sampling and discriminator run in here: `ElectraObjective.losses`.
        loss, gradients, metrics = self._accumulate_gradients(
            masked, counts, rng, self._progress()
        )
        rate = self.optimizer.learning_rate
        # Sums the gradients over replicas, clips them and applies them.
        norm = self.optimizer.update(gradients, self.trainable_variables)
        weight = 1.0 / _replicas()  # the weights of all replicas sum to 1
        tokens = tf.cast(tf.reduce_sum(batch.input_mask_BL), tf.float32)
        metrics |= {
            "loss": WeightedSum(loss, weight),
            "tokens": WeightedSum(tokens, weight),
            "gradient_norm": WeightedSum(norm * weight, weight),
        }
        if not as_ratios:
            return metrics
        return {**metrics_lib.metric_ratios(metrics), "learning_rate": rate}

    def test_step(
        self,
        batch: Batch,
        number: tf.Tensor | int = 0,
        as_ratios: bool = True,
    ) -> dict[str, Any]:
        """Compute the metrics of one batch, without dropout and without an update.

        Args:
            batch: This replica's rows of the global batch.
            number: Index of the batch in the evaluation. With `evaluation.seed` it
                selects the random numbers, so every evaluation masks a batch alike.
            as_ratios: See `train_step`.

        Returns:
            Metrics by name as `train_step` returns them, without those of the update.
        """
        seed = self.config.evaluation.seed
        rng = make_rng(seed, EVALUATION, number, _first_row(batch))
        masked = self.objective.mask(batch, rng)
        context = self.objective.context(rng, False, self._progress())
        metrics = self.objective.losses(masked, context).metrics
        return metrics_lib.metric_ratios(metrics) if as_ratios else metrics

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Raise an error: finetune, evaluate and pretrain read checkpoints instead."""
        raise InputError(
            f"save({str(filepath)!r}) would lose config and vocabulary; call "
            "experiment.save_checkpoint(pretrainer, folder) of the experiment that "
            "created it, or save_weights to write the weights alone"
        )

    def _progress(self) -> tf.Tensor | float:
        """Return the completed share of training; 0 without an optimizer."""
        if self.optimizer is None:
            return 0.0
        step = tf.cast(self.optimizer.iterations, tf.float32)
        return step / self.config.training.steps

    def _accumulate_gradients(
        self, masked: MaskedBatch, counts: Counts, rng: RngStream, progress: tf.Tensor
    ) -> tuple[tf.Tensor, Gradients, dict[str, WeightedSum]]:
        """Sum loss, gradients and metrics over `training.accumulation` micro-batches.

        Each micro-batch draws the random numbers of its rows of the global batch, so
        the sums equal those of one pass over all rows.
        """
        settings, compute_gradients = self.config.training, self._loss_and_gradients
        count = settings.accumulation
        if uses_jit(settings.xla):
            compute_gradients = tf.function(compute_gradients, jit_compile=True)
        if count == 1:
            return compute_gradients(masked, counts, rng, progress)
        rows = masked.input_ids_BL.shape[0] // count
        micro_batches = tf.nest.map_structure(
            lambda t: tf.reshape(t, [count, rows, *t.shape[1:]]), masked
        )

        def compute(index):
            micro_batch = tf.nest.map_structure(lambda t: t[index], micro_batches)
            micro_rng = RngStream(rng.seed, rng.first_row + index * rows)
            loss, gradients, metrics = compute_gradients(
                micro_batch, counts, micro_rng, progress
            )
            # Weights that are not trained have no gradient, which cannot be summed.
            present = {i: g for i, g in enumerate(gradients) if g is not None}
            return loss, present, metrics

        def add(index, sums):
            sums = tf.nest.map_structure(tf.add, sums, compute(index))
            return index + 1, sums

        _, (loss, present, metrics) = tf.while_loop(
            lambda index, _: index < count, add, (1, compute(0)), parallel_iterations=1
        )
        gradients = [present.get(i) for i in range(len(self.trainable_variables))]
        return loss, gradients, metrics

    def _loss_and_gradients(
        self, masked: MaskedBatch, counts: Counts, rng: RngStream, progress: tf.Tensor
    ) -> tuple[tf.Tensor, Gradients, dict[str, WeightedSum]]:
        """Run forward and backward pass on these rows.

        `counts` are those of the global batch, so the losses and gradients of all
        micro-batches and replicas add up to those of the global batch.
        """
        with tf.GradientTape() as tape:
            context = self.objective.context(rng, True, progress)
            losses = self.objective.losses(masked, context)
            loss = losses.combined(counts)
        variables = [v.value for v in self.trainable_variables]
        gradients = tape.gradient(loss, variables)
        dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        return loss, dense, dict(losses.metrics)


def _replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _first_row(batch: Batch) -> tf.Tensor:
    """Return the index of this replica's first row in the global batch."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return tf.cast(replica, tf.int32) * batch.input_ids_BL.shape[0]


def _sum_over_replicas(values: Counts) -> Counts:
    if _replicas() == 1:
        return values
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)
