"""The Keras model that pre-trains: read `train_step` and you have seen the idea."""

from typing import Any

import keras
import tensorflow as tf

from electra_tf.batch import Batch, MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.kernels.rng import EVALUATION, TRAINING, RngStream, make_rng
from electra_tf.pretraining import metrics as metrics_lib
from electra_tf.pretraining.losses import WeightedSum
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.objectives import OBJECTIVES
from electra_tf.pretraining.objectives.common import uses_jit

Weights = dict[str, tf.Tensor]
Gradients = list[tf.Tensor | None]


class Pretrainer(keras.Model):
    """Trains the model of an objective, on one replica or many.

    Randomness is a function of (seed, step) alone, and every sum is divided by its
    weight over all replicas: the same global batch gives the same update on any
    number of replicas.

    Args:
        config: The experiment, with a vocabulary size.
        tokens: What masking has to know of the vocabulary.
    """

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        super().__init__(name="pretrainer", dtype="float32")
        self.config = config
        self.objective = OBJECTIVES[config.objective.name](config, tokens)
        self.core = self.objective.model
        self.core.build()
        self.built = True
        self._compute = self._gradients
        if uses_jit(config.training.xla):
            self._compute = tf.function(self._gradients, jit_compile=True)

    def compile(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Takes the optimizer; `training.xla` decides what XLA compiles, not Keras."""
        super().compile(optimizer=optimizer, jit_compile=False)
        optimizer.build(self.trainable_variables)

    def call(self, inputs: Any) -> tf.Tensor:
        """The model's own call on `token_ids`, `segment_ids` and `padding_mask`."""
        return self.core(**inputs)

    def train_step(self, batch: Batch, read: bool = True) -> dict[str, Any]:
        """Masks, samples, judges, and updates the weights once.

        Args:
            batch: This replica's rows of the global batch.
            read: Divide the metrics, as Keras's `fit` wants them, on one replica.

        Returns:
            Metrics by name: numbers, or the pairs they are the quotients of.
        """
        step = self.optimizer.iterations
        rng = make_rng(self.config.training.seed, TRAINING, step, _first_row(batch))
        masked = self.objective.mask(batch, rng)
        weights = _sum_over_replicas(self.objective.weights(masked))
        loss, gradients, metrics = self._accumulated(masked, weights, rng)
        rate = self.optimizer.learning_rate
        norm = self.optimizer.update(gradients, self.trainable_variables)
        metrics["loss"] = WeightedSum(loss, _own_share())
        metrics["tokens"] = WeightedSum(_count(batch.input_mask_BL), _own_share())
        metrics["learning_rate"] = WeightedSum(rate * _own_share(), _own_share())
        metrics["gradient_norm"] = WeightedSum(norm * _own_share(), _own_share())
        return metrics_lib.metric_ratios(metrics) if read else metrics

    def test_step(
        self, batch: Batch, number: tf.Tensor | int = 0, read: bool = True
    ) -> dict[str, Any]:
        """Measures without dropout and without learning.

        Args:
            batch: This replica's rows of the global batch.
            number: The batch's place in the evaluation, which decides its masks.
            read: As for `train_step`.

        Returns:
            As `train_step`, without what belongs to the update.
        """
        seed = self.config.training.seed
        rng = make_rng(seed, EVALUATION, number, _first_row(batch))
        masked = self.objective.mask(batch, rng)
        losses = self.objective.losses(masked, rng, training=False)
        return metrics_lib.metric_ratios(losses.metrics) if read else losses.metrics

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse, as a checkpoint is what finetune, evaluate and pretrain read.

        Args:
            filepath: Of Keras's `save`.
            args: The same.
            kwargs: The same.

        Raises:
            InputError: Always; it names what writes a checkpoint.
        """
        raise InputError(
            "A pretrainer must be saved as a checkpoint, with config and vocabulary",
            f"save({str(filepath)!r})",
            "Call experiment.save_checkpoint(pretrainer, folder) of the experiment "
            "that made it; save_weights keeps the weights alone",
        )

    def _accumulated(
        self, masked: MaskedBatch, weights: Weights, rng: RngStream
    ) -> tuple[tf.Tensor, Gradients, dict[str, WeightedSum]]:
        """Works the rows off in parts; the sums are those of all rows at once."""
        parts = self.config.training.accumulation
        if parts == 1:
            return self._compute(masked, weights, rng)
        rows = masked.input_ids_BL.shape[0] // parts
        split = tf.nest.map_structure(
            lambda t: tf.reshape(t, [parts, rows, *t.shape[1:]]), masked
        )

        def part(number):
            own = tf.nest.map_structure(lambda t: t[number], split)
            own_rng = RngStream(rng.seed, rng.first_row + number * rows)
            return self._compute(own, weights, own_rng)

        def add(number, sums):
            more = part(number)
            return number + 1, tf.nest.map_structure(tf.add, sums, more)

        _, sums = tf.while_loop(
            lambda number, _: number < parts, add, (1, part(0)), parallel_iterations=1
        )
        return sums

    def _gradients(
        self, masked: MaskedBatch, weights: Weights, rng: RngStream
    ) -> tuple[tf.Tensor, Gradients, dict[str, WeightedSum]]:
        """Forward and backward pass: this replica's share of loss and gradient."""
        with tf.GradientTape() as tape:
            losses = self.objective.losses(masked, rng, training=True)
            loss = losses.combined(weights)
        variables = [v.value for v in self.trainable_variables]
        gradients = tape.gradient(loss, variables)
        dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        return loss, dense, dict(losses.metrics)


def _replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _own_share() -> float:
    """What this replica adds to a weight that is 1 for all replicas together."""
    return 1.0 / _replicas()


def _first_row(batch: Batch) -> tf.Tensor:
    """Which row of the global batch is this replica's first."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return tf.cast(replica, tf.int32) * batch.input_ids_BL.shape[0]


def _sum_over_replicas(values: Weights) -> Weights:
    if _replicas() == 1:
        return values
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def _count(mask_BL: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reduce_sum(mask_BL), tf.float32)
