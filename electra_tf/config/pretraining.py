"""Settings of pre-training as frozen dataclasses.

Types are strict and unknown keys are errors. Derived values are properties.
`loader.py` reads and writes the settings as YAML.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from electra_tf.config.objectives import (
    FACTS,
    OWN_SETTINGS,
    ObjectiveFacts,
    Sharing,
)
from electra_tf.errors import InputError

section = functools.partial(
    pydantic.dataclasses.dataclass,
    frozen=True,
    kw_only=True,
    config=pydantic.ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True
    ),
)

Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Weight = Annotated[float, Field(ge=0)]

_MAX_PATTERN = 200


def _check_pattern(pattern: str) -> str:
    """Reject invalid regular expressions, and long ones, which could take for ever."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} must be a regular expression: {error}") from None
    if len(pattern) > _MAX_PATTERN:
        raise ValueError(
            f"{pattern[:40]!r} must have at most {_MAX_PATTERN} characters"
        )
    return pattern


def _check_shares(points: tuple[tuple[float, float], ...]) -> Any:
    shares = [share for share, _ in points]
    if shares != sorted(set(shares)):
        raise ValueError(f"the shares of training must rise, not {shares}")
    return points


Schedule = Annotated[
    tuple[tuple[Annotated[float, Field(ge=0, le=1)], Weight], ...],
    pydantic.AfterValidator(_check_shares),
]
"""Points (completed share of training, factor), with straight lines between them."""
Pattern = Annotated[str, pydantic.AfterValidator(_check_pattern)]


@section()
class TokenizationConfig:
    """Settings of the tokenizer; stored with every artefact that contains token ids."""

    lower_case: bool = True
    """Lower-case the text before it is split."""
    strip_accents: Literal["lowered", "always", "never"] = "lowered"
    """Removal of accents. `lowered`: only if `lower_case` is true (the original).
    `always`: also from cased text. `never`: keep accents."""
    split_unspaced: Literal["none", "characters"] = "none"
    """Splitting of scripts without spaces between words (Thai, Lao, Khmer, Burmese,
    Tai). `none`: at spaces (the original). `characters`: each letter with its marks is
    a word."""
    max_word_characters: Annotated[int, Field(gt=0, le=1000)] = 200
    """Characters of a word, at most; a longer word becomes [UNK]. 200: the original.
    Most tokenizers of Hugging Face have 100."""
    keep_whole: tuple[str, ...] = ()
    """Entries that a text is searched for before it is split, such as `[USER]`: they
    are neither split nor lower-cased."""
    keep_whole_normalized: tuple[str, ...] = ()
    """The same, but also with other case and accents where these settings remove them:
    added tokens of Hugging Face with `normalized: true`."""
    pad_id: Count = 0
    """Id of [PAD] in files for other libraries. Here [PAD] is entry 0; a conversion
    exchanges the two entries and their rows."""

    @property
    def strips_accents(self) -> bool:
        """Return whether accents are removed, by both settings."""
        return self.strip_accents == "always" or (
            self.strip_accents == "lowered" and self.lower_case
        )

    @staticmethod
    def complete(stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return stored settings, with defaults for those that old artefacts lack."""
        added = {
            "split_unspaced": "none",
            "max_word_characters": 200,
            "keep_whole": (),
            "keep_whole_normalized": (),
            "pad_id": 0,
        }
        lists = {n: tuple(v) for n, v in stored.items() if isinstance(v, list)}
        return {**added, **stored, **lists}

    def __str__(self) -> str:
        """Return a description such as `lower-cased, without accents`."""
        case = "lower-cased" if self.lower_case else "cased"
        accents = "without" if self.strips_accents else "with"
        split = ", unspaced scripts by characters"
        split = split if self.split_unspaced == "characters" else ""
        whole = len(self.keep_whole) + len(self.keep_whole_normalized)
        kept = f", {whole:,} entries kept whole" if whole else ""
        limit = f", words of up to {self.max_word_characters} characters"
        limit = limit if self.max_word_characters != 200 else ""
        return f"{case}, {accents} accents{split}{limit}{kept}"


@section()
class CorpusConfig:
    """Reading of files as documents."""

    documents: Literal["blank_line", "line", "file"] = "blank_line"
    """End of a document in a plain text file: a blank line, each line, or the end of
    the file. Each row of .csv, .tsv, JSON, Parquet and TFDS is a document."""
    field: str = "text"
    """Name of the text field in .csv, .tsv, JSON, Parquet and TFDS."""
    on_error: Literal["stop", "report"] = "stop"
    """`stop`: raise at the first bad input. `report`: skip, count and list it."""


@section()
class VocabularyConfig:
    """Training of a WordPiece vocabulary."""

    size: Positive = 30522
    """Number of entries, special tokens included."""
    min_frequency: Positive = 2
    """Minimum frequency of a pair of wordpieces that is merged."""
    character_coverage: Share = 0.9999
    """Share of the text that the characters of the vocabulary cover; a word with any
    rarer character becomes [UNK]."""


@section()
class RecordsConfig:
    """Packing of documents into pre-training records."""

    max_length: Annotated[int, Field(ge=8)] = 128
    """Positions of a record, special tokens and padding included."""
    order: Literal["original", "document"] | None = None
    """`original`: packing of the released builder, which puts later short sentences
    back into segment A and discards tokens that do not fit. `document`: keeps the order
    of the text and uses every token. null: `document` if `original` discards over 20%
    of the first two million characters, else `original`."""
    seed: Seed = 0
    """Seed of segment borders and lengths."""
    shards: Annotated[int, Field(gt=0, le=1000)] | None = None
    """Number of files; null: one per 32 MB of text, 512 at most."""
    deduplicate: Literal["none", "exact", "near"] = "none"
    """Documents that are dropped, with a report: `exact` those with the words of an
    earlier one, `near` also those with most of its five-word sequences."""
    duplicate_similarity: Share = 0.8
    """Jaccard similarity of the five-word sequences from which documents are
    near-duplicates."""


@section()
class InputConfig:
    """Shuffling and batching of records."""

    batch_size: Positive = 128
    """Rows of a global batch, over all hosts and replicas."""
    batch_size_ramp: tuple[tuple[Positive, Positive], ...] = ()
    """Smaller batches first, as pairs (last step, rows): `[[1000, 32], [3000, 64]]` has
    32 rows up to step 1000, 64 up to step 3000, then `batch_size`."""
    seed: Seed = 0
    """Seed of the order of the records, which differs in each epoch."""
    shuffle_window: Positive = 65536
    """Records that are read and shuffled together."""
    on_error: Literal["stop", "skip"] = "stop"
    """`stop`: raise at a bad record. `skip`: search all records at the start of the
    run, replace bad ones by empty ones in copies of their files, count and list them
    (`intact_records` in the run directory); 1% of the records at most."""

    @property
    def phases(self) -> tuple[tuple[int, int | None, int], ...]:
        """Phases of one batch size: completed steps at start and end, and rows."""
        ends: list[int | None] = [end for end, _ in self.batch_size_ramp]
        rows = [size for _, size in self.batch_size_ramp]
        starts = (0, *(end for end in ends if end is not None))
        return tuple(zip(starts, (*ends, None), (*rows, self.batch_size), strict=True))

    @property
    def phase_starts(self) -> frozenset[int]:
        """Completed steps after which the batch size changes."""
        return frozenset(end for end, _ in self.batch_size_ramp)

    def rows_at(self, step: int) -> int:
        """Return the rows of the batch after a number of completed steps."""
        return next(n for _, end, n in self.phases if end is None or step < end)

    def rows_until(self, step: int) -> int:
        """Return the rows of all batches up to a step."""
        return sum(
            (min(step, step if end is None else end) - first) * rows
            for first, end, rows in self.phases
            if first < step
        )

    @pydantic.model_validator(mode="after")
    def _ramp_rises(self) -> "InputConfig":
        sizes = [rows for _, _, rows in self.phases]
        starts = [first for first, _, _ in self.phases]
        if sizes != sorted(set(sizes)) or starts != sorted(set(starts)):
            raise ValueError(
                "the steps and rows of `batch_size_ramp` must rise, and end below "
                f"`batch_size` {self.batch_size}, not {self.batch_size_ramp}"
            )
        return self


@section()
class ModelConfig:
    """Shape of the discriminator, and of the generator relative to it."""

    depth: Positive = 12
    """Transformer layers of the discriminator (of the single encoder for `mlm`)."""
    width: Positive = 256
    """Width of the discriminator's hidden states."""
    embedding: Positive | None = 128
    """Width of the embedding tables, projected to `width` if it differs; null:
    `width`."""
    heads: Positive | None = None
    """Attention heads; null: `width` / 64, at least 1."""
    feed_forward: Positive | None = None
    """Inner width of the feed-forward layers; null: 4 x `width`."""
    vocabulary_size: Positive | None = None
    """Rows of the token table; null: the vocabulary size of the records and
    `spare_rows`."""
    spare_rows: Count = 0
    """Rows at the end of the token table without an entry in the vocabulary, as in a
    table padded to a multiple of 8. No text has their ids, and no network predicts
    them."""
    max_positions: Positive = 512
    """Rows of the position table: maximum length of an input."""
    segments: Positive = 2
    """Rows of the segment table."""
    dropout: Rate = 0.1
    """Dropout rate of hidden states."""
    attention_dropout: Rate = 0.1
    """Dropout rate of attention probabilities."""
    initializer_range: Annotated[float, Field(gt=0)] = 0.02
    """Standard deviation of initial weights; the original uses 0.02 at every width."""
    layer_norm_epsilon: Annotated[float, Field(gt=0)] = 1e-12
    """Added to the variance in layer norms; some public models use 1e-5."""
    generator_width: Share = 0.25
    """Width of the generator as a share of the discriminator's."""
    generator_depth: Share = 1.0
    """Depth of the generator as a share of the discriminator's."""
    generator_heads: Positive | None = None
    """Attention heads of the generator; null: its width / 64, at least 1."""
    generator_feed_forward: Positive | None = None
    """Feed-forward width of the generator; null: 4 x its width."""
    generator_embedding: Positive | None = None
    """Width of the generator's own tables with `sharing: none`; null: its width."""
    sharing: Sharing = "embeddings"
    """Weights shared by generator and discriminator: none, the embedding tables with
    their layer norm (the paper), or the whole encoder, which needs `generator_width`
    and `generator_depth` of 1. `gdes` (DeBERTa v3): the discriminator's tables are the
    generator's plus a trained difference; its loss does not reach the generator's."""

    @property
    def encoder(self) -> "EncoderConfig":
        """Return the shape of the discriminator."""
        return self._shape(
            depth=self.depth,
            width=self.width,
            embedding=self.embedding or self.width,
            heads=self.heads or max(1, self.width // 64),
            feed_forward=self.feed_forward or 4 * self.width,
        )

    @property
    def generator(self) -> "EncoderConfig":
        """Return the shape of the generator.

        Heads and feed-forward width follow from its width. Unshared tables have the
        width of the generator, which needs no projection.
        """
        if self.sharing == "all":
            return self.encoder
        width, embedding = round(self.width * self.generator_width), self.embedding
        if self.sharing == "none":
            embedding = self.generator_embedding or width
        return self._shape(
            depth=round(self.depth * self.generator_depth),
            width=width,
            embedding=embedding or self.width,
            heads=self.generator_heads or max(1, width // 64),
            feed_forward=self.generator_feed_forward or 4 * width,
        )

    def _shape(self, **sizes: int) -> "EncoderConfig":
        """Return a shape of these sizes, and of the settings of both networks."""
        own = {field.name for field in dataclasses.fields(EncoderConfig)} - {*sizes}
        same = {name: getattr(self, name) for name in own}
        same["vocabulary_size"] = self.vocabulary_size or 0
        return EncoderConfig(**sizes, **same)

    def of_vocabulary(self, entries: int, source: str) -> "ModelConfig":
        """Return the model with the token table of a vocabulary; errors name it."""
        rows = entries + self.spare_rows
        if self.vocabulary_size not in (None, rows):
            more = max(0, self.vocabulary_size - entries)
            spare = f", or model.spare_rows={more} for rows without an entry"
            raise InputError(
                "model.vocabulary_size must be the entries of the vocabulary and "
                "model.spare_rows",
                f"{self.vocabulary_size}, with {entries} entries in {source} and "
                f"{self.spare_rows} spare rows",
                "Use records of the other vocabulary, or set "
                f"model.vocabulary_size={rows} or null{spare if more else ''}",
            )
        return dataclasses.replace(self, vocabulary_size=rows)

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        shares = self.generator_width, self.generator_depth
        if self.sharing == "all" and shares != (1, 1):
            raise ValueError(
                "`sharing: all` must have one encoder; set generator_width and "
                "generator_depth to 1"
            )
        if self.generator_embedding and self.sharing != "none":
            raise ValueError(
                "generator_embedding must be null unless sharing is none: shared "
                "tables have the width `embedding`"
            )
        for name, shape in (("", self.encoder), ("generator's ", self.generator)):
            if not shape.width or not shape.depth:
                raise ValueError(
                    f"the {name}width {shape.width} and depth {shape.depth} must be "
                    "at least 1 after rounding"
                )
            if shape.width % shape.heads:
                raise ValueError(
                    f"the {name}width {shape.width} must be a multiple of its "
                    f"{shape.heads} heads"
                )
        return self


@section()
class EncoderConfig:
    """Shape of one encoder: settings of `ModelConfig`, with all values resolved."""

    depth: int
    width: int
    embedding: int
    heads: int
    feed_forward: int
    vocabulary_size: int
    max_positions: int
    segments: int
    dropout: float
    attention_dropout: float
    initializer_range: float = 0.02
    layer_norm_epsilon: float = 1e-12
    spare_rows: int = 0


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

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "MaskingConfig":
        if self.scheme == "original" and self.replacement != "mask":
            raise ValueError("replacement must be `mask` with scheme `original`")
        return self


@section()
class ObjectiveConfig:
    """Pre-training objective, its losses and the generator's sampling."""

    name: Literal[
        "electra",
        "electra_15",
        "replace_mlm",
        "all_tokens_mlm",
        "adversarial",
        "two_stage",
        "corrective",
        "electric",
        "mlm",
    ] = "electra"
    """`electra`: replaced-token detection with a masked-LM generator. `electra_15`: the
    same with the discriminator's loss at masked positions only. `replace_mlm`: the
    main network predicts the original tokens where a generator replaced them.
    `all_tokens_mlm`: it predicts or copies every token. `adversarial`: the
    generator learns to mislead the discriminator. `two_stage`: first the generator,
    then a discriminator that begins with its weights. `corrective`: `electra` whose
    discriminator also predicts the original tokens at the masked positions.
    `electric`: an energy-based cloze model with a two-tower generator. `mlm`: BERT's
    masked language modelling, with one encoder of the discriminator's size."""
    generator_weight: Weight = 1.0
    """Weight of the generator's loss: masked-LM, or that of the policy
    (`adversarial`)."""
    discriminator_weight: Weight = 50.0
    """Weight of the replaced-token loss, the paper's lambda."""
    discriminator_weight_schedule: Schedule = ()
    """Factors of `discriminator_weight` at shares of training, linear in between:
    `[[0.0, 0.0], [0.1, 1.0]]` raises it from 0 over the first tenth. Adam and Muon
    do not see a constant factor of the gradient, so a small one does not delay the
    discriminator, as `discriminator_start` does: it acts on shared tables and clipping
    alone."""
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
    discriminator_start: Count = 0
    """Steps before the discriminator's first one, which train the generator alone. The
    learning rate has one schedule."""
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
    """Weight of the main network's masked-LM loss of `replace_mlm`, `all_tokens_mlm`
    and `corrective`."""
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

    def _unused(self) -> dict[str, tuple[str, str]]:
        """Return settings that must keep their defaults, with cause and reason."""
        cause = f"name: {self.name}"
        unused = {name: (cause, why) for name, why in self.facts.unused.items()}
        for name, owners in OWN_SETTINGS.items():
            if self.name not in owners:
                unused[name] = cause, f"only `name: {' or '.join(owners)}` has it"
        if not self.facts.generator or self.facts.generator_loss == "reward":
            unused["freeze_generator"] = cause, "no masked-LM generator is trained"
        for kind in ("uniform_generator", "unigram_generator"):
            if getattr(self, kind):
                cause = f"{kind}: true"
                unused["freeze_generator"] = cause, "there is none"
                unused["discriminator_start"] = cause, "nothing would be trained"
        if self.uniform_generator:
            uniform = "uniform_generator: true", "all tokens are equally likely"
            for name in ("temperature", "temperature_schedule", "unigram_generator"):
                unused.setdefault(name, uniform)
        if self.freeze_generator:
            frozen = "freeze_generator: true", "the generator is not trained"
            unused.setdefault("generator_weight", frozen)
            unused.setdefault("discriminator_start", frozen)
        return unused

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "ObjectiveConfig":
        unused = self._unused()
        for name, (cause, why) in unused.items():
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
    generator_learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate of the weights that only the generator has; null:
    `learning_rate`."""
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
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    """Precision of the encoders. Weights, logits, softmax, sampling and losses are
    always float32."""
    xla: Literal["auto", "on", "off"] = "auto"
    """Compile forward and backward pass with XLA. `auto`: on GPUs and TPUs. `off`: XLA
    compiles only the operations between the matmuls. Set `on` to compile a function
    that contains the train step."""
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

    tokenization: TokenizationConfig = TokenizationConfig()
    corpus: CorpusConfig = CorpusConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    records: RecordsConfig = RecordsConfig()
    input: InputConfig = InputConfig()
    model: ModelConfig = ModelConfig()
    masking: MaskingConfig = MaskingConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "PretrainingConfig":
        self._check_sharing()
        self._check_starts()
        if self.objective.facts.stages > 1:
            self._check_stages()
        if self.records.max_length > self.model.max_positions:
            raise ValueError(
                f"records.max_length {self.records.max_length} must not exceed "
                f"model.max_positions {self.model.max_positions}"
            )
        self._check_generator_rate()
        if self.objective.facts.towers > 1:
            self._check_noise()
        for _, end, rows in self.input.phases:
            if rows % self.training.accumulation:
                name = "input.batch_size" + "_ramp" * (end is not None)
                raise ValueError(
                    f"{name} {rows} must be a multiple of "
                    f"training.accumulation {self.training.accumulation}"
                )
        last = max(self.input.phase_starts, default=0)
        if last >= self.training.steps:
            raise ValueError(
                f"input.batch_size_ramp must end before training.steps "
                f"{self.training.steps}, not at {last}"
            )
        return self

    @property
    def mean_batch_size(self) -> float:
        """Mean number of rows of a batch over all steps."""
        return self.input.rows_until(self.training.steps) / self.training.steps

    @property
    def restart(self) -> int | None:
        """Step at which `two_stage` begins its second stage, with a new optimizer."""
        if self.objective.facts.stages == 1:
            return None
        return round(self.training.steps * self.objective.first_stage)

    @property
    def stage_starts(self) -> tuple[int, ...]:
        """Step before which the discriminator is not trained, if there is one."""
        if self.restart is not None:
            return (self.restart,)
        start = self.objective.discriminator_start
        return (start,) if start else ()

    @property
    def generator_share(self) -> float:
        """Share of the steps that train the generator alone."""
        return sum(self.stage_starts) / self.training.steps

    def _check_sharing(self) -> None:
        objective, sharing = self.objective, self.model.sharing
        if not objective.has_generator:
            if sharing == "gdes":
                raise ValueError(
                    "model.sharing must not be gdes without a generator network, whose "
                    "tables the discriminator would use"
                )
            return
        allowed, cause = objective.facts.sharing, f"objective.name: {objective.name}"
        if objective.freeze_generator and sharing in allowed:
            allowed = tuple(name for name in allowed if name in ("none", "gdes"))
            cause = "objective.freeze_generator: true"
        if sharing not in allowed:
            raise ValueError(
                f"model.sharing must be {' or '.join(allowed)} with `{cause}`, not "
                f"{sharing}"
            )

    def _check_generator_rate(self) -> None:
        objective = self.objective
        if self.optimizer.generator_learning_rate is None:
            return
        if objective.freeze_generator:
            raise ValueError(
                "optimizer.generator_learning_rate must be null with "
                "`objective.freeze_generator: true`: the generator is not trained"
            )
        if not objective.has_generator or self.model.sharing == "all":
            raise ValueError(
                "optimizer.generator_learning_rate must be null where the generator "
                "has no weights of its own"
            )

    def _check_noise(self) -> None:
        cause = f"objective.name: {self.objective.name}"
        if self.masking.rate >= 1:
            raise ValueError(
                f"masking.rate must be below 1 with `{cause}`: the discriminator "
                "compares noise with text that is left"
            )
        if self.masking.replacement != "mask":
            raise ValueError(
                f"masking.replacement must be left out with `{cause}`: its generator "
                "reads the text without masks"
            )

    def _check_starts(self) -> None:
        steps = self.training.steps
        if any(not 0 < start < steps for start in self.stage_starts):
            is_staged = self.restart is not None
            name = "first_stage" if is_staged else "discriminator_start"
            raise ValueError(
                f"objective.{name} {getattr(self.objective, name)} must leave steps "
                f"for both networks, of training.steps {steps}"
            )

    def _check_stages(self) -> None:
        cause = self.objective.name
        ours, theirs = self.model.generator, self.model.encoder
        different = {
            name: (getattr(ours, name), size)
            for name, size in vars(theirs).items()
            if getattr(ours, name) != size
        }
        if different:
            found = ", ".join(f"{n} {a} and {b}" for n, (a, b) in different.items())
            flags = ", ".join(
                f"model.generator_{n}={1 if n in ('width', 'depth') else size}"
                for n, (_, size) in different.items()
            )
            raise ValueError(
                "generator and discriminator must have one shape with "
                f"`objective.name: {cause}`, not {found}; set {flags}"
            )
