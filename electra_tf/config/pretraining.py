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

from electra_tf.config import data
from electra_tf.config.fields import (
    Count,
    Pattern,
    Positive,
    Rate,
    Schedule,
    Seed,
    Share,
    Weight,
    section,
)
from electra_tf.config.model import ModelConfig
from electra_tf.config.objectives import FACTS, ObjectiveFacts


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
class ObjectiveConfig:
    """Pre-training objective, its losses and the generator's sampling."""

    name: Literal[tuple(FACTS)] = "electra"
    """`electra`: replaced-token detection with a masked-LM generator. `electra_15`: the
    same with the discriminator's loss at masked positions only. `replace_mlm`: the
    main network predicts the original tokens where a generator replaced them.
    `all_tokens_mlm`: it predicts or copies every token. `adversarial`: the
    generator learns to mislead the discriminator. `two_stage`: first the generator,
    then a discriminator that begins with its weights. `electric`: an energy-based cloze
    model with a two-tower generator. `mlm`: BERT's masked language modelling, with one
    encoder of the discriminator's size."""
    generator_weight: Weight = 1.0
    """Weight of the generator's loss: masked-LM, or that of the policy
    (`adversarial`)."""
    discriminator_weight: Weight = 50.0
    """Weight of the replaced-token loss, the paper's lambda."""
    sampler: Literal["inverse_cdf", "gumbel"] = "inverse_cdf"
    """Sampling algorithm; the distribution is the same. `inverse_cdf` draws two random
    numbers per token, `gumbel` (the original) one per entry of the vocabulary."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of the generator's logits before sampling."""
    temperature_schedule: Schedule = ()
    """Factors of `temperature` at shares of training, linear in between. Fast-ELECTRA
    lowers it, for example `[[0.0, 2.0], [0.5, 1.0]]`."""
    disallow_correct: bool = False
    """Never sample the original token."""
    first_stage: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the steps that train the generator of `two_stage`."""
    uniform_generator: bool = False
    """Sample uniformly from the vocabulary, without a generator network."""
    unigram_generator: bool = False
    """Sample by the tokens' frequency in the training records, special tokens left out,
    without a generator network."""
    freeze_generator: bool = False
    """Keep the generator of `--init_checkpoint` as it is; only the discriminator
    learns."""
    main_weight: Weight = 1.0
    """Weight of the main network's masked-LM loss of `replace_mlm` and
    `all_tokens_mlm`."""
    entropy_weight: Weight = 0.0
    """Weight of the entropy of the generator's distribution, which `adversarial` then
    maximises too."""

    @property
    def facts(self) -> ObjectiveFacts:
        """Return what the objective trains."""
        return FACTS[self.name]

    @property
    def has_generator(self) -> bool:
        """Return whether there is a generator network."""
        return self.facts.generator and not (
            self.uniform_generator or self.unigram_generator
        )

    @property
    def free_losses(self) -> tuple[str, ...]:
        """Return the names of losses that a healthy run need not lower."""
        if self.facts.generator_loss == "reward":
            return "masked_lm_loss", "loss"
        if self.facts.stages > 1:
            return ("loss",)
        return ("masked_lm_loss",) if self.freeze_generator else ()

    def _unused(self) -> Iterator[tuple[str, str, str]]:
        """Yield settings that must keep their defaults, with cause and reason."""
        cause = f"name: {self.name}"
        for name, why in self.facts.unused.items():
            yield name, cause, why
        others = {n for facts in FACTS.values() for n in facts.own} - {*self.facts.own}
        for name in sorted(others):
            owners = " or ".join(n for n, facts in FACTS.items() if name in facts.own)
            yield name, cause, f"only `name: {owners}` has it"
        if not self.facts.generator or self.facts.generator_loss == "reward":
            yield "freeze_generator", cause, "no masked-LM generator is trained"
        for kind in ("uniform_generator", "unigram_generator"):
            if getattr(self, kind):
                yield "freeze_generator", f"{kind}: true", "there is none"
        if self.uniform_generator:
            cause, why = "uniform_generator: true", "all tokens are equally likely"
            yield "temperature", cause, why
            yield "temperature_schedule", cause, why
            yield "unigram_generator", cause, why
        if self.freeze_generator:
            cause, why = "freeze_generator: true", "the generator is not trained"
            yield "generator_weight", cause, why

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "ObjectiveConfig":
        for name, cause, why in self._unused():
            if getattr(self, name) != type(self).__pydantic_fields__[name].default:
                raise ValueError(f"`{name}` must be left out with `{cause}`: {why}")
        if not all(factor for _, factor in self.temperature_schedule):
            raise ValueError("the factors of `temperature_schedule` must be above 0")
        weights = set(self.facts.weights)
        if self.freeze_generator:
            weights.discard("generator_weight")
        positive = [name for name in weights if getattr(self, name)]
        if not positive:
            raise ValueError(f"`name: {self.name}` must have a weight above 0")
        if self.facts.stages > 1 and len(positive) < len(weights):
            raise ValueError(
                f"{' and '.join(self.facts.weights)} must be above 0 with `name: "
                f"{self.name}`: each is the weight of one stage's only loss"
            )
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
    objective: ObjectiveConfig = ObjectiveConfig()
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
        if self.objective.facts.stages == 1:
            return None
        return round(self.training.steps * self.objective.first_stage)

    @property
    def generator_share(self) -> float:
        """Share of the steps that train the generator alone."""
        return (self.restart or 0) / self.training.steps

    def _problems_of_networks(self) -> Iterator[str]:
        objective, facts, sharing = (
            self.objective,
            self.objective.facts,
            self.model.sharing,
        )
        allowed, cause = facts.sharing, f"objective.name: {objective.name}"
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
        if facts.towers > 1 and self.masking.rate >= 1:
            yield (
                f"masking.rate must be below 1 with `{cause}`: the discriminator "
                "compares noise with text that is left"
            )
        if facts.towers > 1 and self.masking.replacement != "mask":
            yield (
                f"masking.replacement must be left out with `{cause}`: its generator "
                "reads the text without masks"
            )
        ours, theirs = vars(self.model.generator), vars(self.model.encoder)
        different = [name for name in theirs if ours[name] != theirs[name]]
        if facts.stages > 1 and different:
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
