"""Settings of pre-training as frozen dataclasses.

Types are strict and unknown keys are errors. Derived values are properties.
`loader.py` reads and writes the settings as YAML.
"""

import fractions
import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from electra_tf.config import data, objectives
from electra_tf.config.fields import (
    Count,
    Pattern,
    Positive,
    Rate,
    Seed,
    Share,
    Weight,
    section,
)
from electra_tf.config.model import ModelConfig


@section()
class MaskingConfig:
    """Choice of the masked positions and of their tokens."""

    scheme: Literal["paper", "whole_word", "original"] = "paper"
    """`paper`: ceil(rate x n) distinct positions. `whole_word`: whole words in random
    order, as long as the number of positions does not exceed that. `original`: as the
    released code, drawn with replacement, with the token unchanged in 15% of draws."""
    rate: Share = 0.15
    """Share of a row's real tokens that is masked."""
    replacement: Literal["mask", "bert"] = "mask"
    """Token written at a masked position. `mask`: always [MASK] (the paper's ELECTRA).
    `bert`: 80% [MASK], 10% a random token, 10% the token itself (its BERT)."""

    def max_predictions(self, length: int) -> int:
        """Return the maximum number of masked positions of `length` real tokens."""
        if self.scheme == "original":
            return int((self.rate + 0.005) * length)
        # A fraction: ceil(0.07 * 100) is 8 in float64.
        return math.ceil(fractions.Fraction(str(self.rate)) * length)

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "MaskingConfig":
        if self.scheme == "original" and self.replacement != "mask":
            raise ValueError("replacement must be `mask` with scheme `original`")
        return self


@section()
class OptimizerConfig:
    """Optimizer and learning rate schedule of pre-training."""

    name: Literal["adam", "adamw", "lamb", "muon"] = "adam"
    """`adam`: without bias correction (the original). `adamw`: with bias correction.
    `lamb`: AdamW's update scaled to each weight's norm, for large batches. `muon`:
    orthogonal updates of the matrices, AdamW for embeddings and vectors."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    """Peak learning rate, multiplied by warm-up and decay."""
    warmup_steps: Count = 10_000
    """Steps over which the learning rate rises from 0."""
    decay_power: Weight = 1.0
    """Exponent of the decay (1 - step / steps), which starts at the first step."""
    weight_decay: Weight = 0.01
    """Decoupled weight decay, multiplied by the learning rate."""
    no_decay: tuple[Pattern, ...] = ("LayerNorm", "layer_norm", "bias")
    """Regular expressions for names of weights without weight decay."""
    beta_1: Rate = 0.9
    """Decay rate of the running mean of the gradient."""
    beta_2: Rate = 0.999
    """Decay rate of the running mean of the squared gradient."""
    momentum: Rate = 0.95
    """Decay rate of Muon's momentum."""
    muon_precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of Muon's matmuls. Weights and momentum are always float32. `bfloat16`,
    as in Jordan's code, is faster where the device multiplies it in hardware."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    """Constant in the denominator of the update."""
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Maximum global norm of the gradient over all replicas; null: no clipping."""


@section()
class TrainingConfig:
    """Steps, precision, checkpoints and times of evaluation."""

    steps: Positive = 1_000_000
    """Total number of updates."""
    seed: Seed = 0
    """Seed of initial weights, masks, samples and dropout."""
    token_embeddings: Literal["random", "counts"] = "random"
    """Initial token embeddings of a run without initial checkpoint. `counts`: singular
    vectors of the counts of neighbouring tokens in at most a million records; the
    biases of the vocabulary begin with the tokens' frequencies."""
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    """Precision of the encoders. Weights, logits, softmax, sampling and losses are
    always float32."""
    xla: Literal["auto", "on", "off"] = "auto"
    """Compile the step with XLA: all of it on one device, forward and backward pass on
    several. `auto`: on GPUs and TPUs. `off`: XLA compiles only the operations between
    the matmuls. Set `on` to compile a function that contains the train step."""
    accumulation: Positive = 1
    """Number of microbatches that a batch is split into, to save memory; the update is
    the same."""
    remat: bool = False
    """Compute each Transformer layer again in the backward pass, instead of storing its
    intermediate values: less memory for more time; the update is the same."""
    log_every: Positive = 100
    """Steps between two logs of metrics."""
    save_every: Positive = 1000
    """Steps between two checkpoints."""
    keep: Positive = 3
    """Number of newest checkpoints to keep."""
    keep_at: tuple[Share, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0)
    """Shares of training at which a checkpoint is written that is never deleted."""
    evaluate_every: Positive = 10_000
    """Steps between two evaluations, if there is evaluation data."""
    evaluation_batches: Positive | None = 100
    """Batches per evaluation; null: all."""
    worker_timeout: Positive = 30
    """Seconds, beyond ten times the usual duration of some steps, for which a worker
    waits for the others before it ends itself."""


@section()
class EvaluationConfig:
    """Random numbers of evaluation on held-out records."""

    seed: Seed = 0
    """Seed of masks and samples. It does not depend on `training.seed`, so runs with
    different seeds are evaluated on the same masked positions."""


@section()
class PretrainingConfig:
    """All settings of pre-training.

    Example:
        import electra_tf

        config = electra_tf.PretrainingConfig()
        config.training.steps
    """

    tokenization: data.TokenizationConfig = data.TokenizationConfig()
    corpus: data.CorpusConfig = data.CorpusConfig()
    vocabulary: data.VocabularyConfig = data.VocabularyConfig()
    records: data.RecordsConfig = data.RecordsConfig()
    input: data.InputConfig = data.InputConfig()
    model: ModelConfig = ModelConfig()
    masking: MaskingConfig = MaskingConfig()
    objective: objectives.any_objective() = objectives.Electra()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "PretrainingConfig":
        for problem in itertools.chain(
            self._problems_of_networks(), self._problems_of_sizes()
        ):
            raise ValueError(problem)
        return self

    @property
    def max_predictions_per_seq(self) -> int:
        """Maximum number of masked positions of a row."""
        return self.masking.max_predictions(self.records.max_length)

    @property
    def restart(self) -> int | None:
        """Step at which `two_stage` begins its second stage, with a new optimizer."""
        if self.objective.stages == 1:
            return None
        return round(self.training.steps * self.objective.first_stage)

    @property
    def generator_share(self) -> float:
        """Share of the steps that train the generator alone."""
        return (self.restart or 0) / self.training.steps

    def _problems_of_networks(self) -> Iterator[str]:
        objective, sharing = self.objective, self.model.sharing
        allowed, cause = objective.sharing, f"objective.name: {objective.name}"
        if objective.freeze_generator and sharing in allowed:
            allowed = tuple(name for name in allowed if name in ("none", "gdes"))
            cause = "objective.freeze_generator: true"
        if objective.has_generator and sharing not in allowed:
            names = " or ".join(allowed)
            yield f"model.sharing must be {names} with `{cause}`, not {sharing}"
        if not objective.has_generator and sharing == "gdes":
            yield (
                "model.sharing must not be gdes without a generator network, whose "
                "tables the discriminator would use"
            )
        if objective.towers > 1 and self.masking.rate >= 1:
            yield (
                f"masking.rate must be below 1 with `{cause}`: the discriminator "
                "compares noise with text that is left"
            )
        if objective.towers > 1 and self.masking.replacement != "mask":
            yield (
                f"masking.replacement must be left out with `{cause}`: its generator "
                "reads the text without masks"
            )
        ours, theirs = vars(self.model.generator), vars(self.model.encoder)
        different = [name for name in theirs if ours[name] != theirs[name]]
        if objective.stages > 1 and different:
            found = ", ".join(f"{n} {ours[n]} and {theirs[n]}" for n in different)
            settings = ", ".join(
                f"model.generator_{n}={1 if n in ('width', 'depth') else theirs[n]}"
                for n in different
            )
            yield (
                f"generator and discriminator must have one shape with `{cause}`, not "
                f"{found}; set {settings}"
            )

    def _problems_of_sizes(self) -> Iterator[str]:
        steps, length = self.training.steps, self.records.max_length
        if self.restart is not None and not 0 < self.restart < steps:
            yield (
                f"objective.first_stage {self.objective.first_stage} must leave steps "
                f"for both networks, of training.steps {steps}"
            )
        if length > (limit := self.model.max_positions):
            yield (
                f"records.max_length {length} must not exceed model.max_positions "
                f"{limit}"
            )
        if self.input.batch_size % (count := self.training.accumulation):
            yield (
                f"input.batch_size {self.input.batch_size} must be a multiple of "
                f"training.accumulation {count}"
            )
