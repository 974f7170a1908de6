"""Settings of pre-training as frozen dataclasses.

Types are strict and unknown keys are errors. Derived values are properties.
`loader.py` reads and writes the settings as YAML.
"""

import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

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


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, pydantic.AfterValidator(_compiles)]


@section()
class TokenizationConfig:
    """How text becomes pieces; stored with every artefact that holds ids."""

    lower_case: bool = True
    """Lower-case the text first."""
    strip_accents: Literal["lowered", "always", "never"] = "lowered"
    """Which text loses its accents: `lowered` is the original's rule (only text that
    is lower-cased too), `always` also cased text, `never` none."""
    split_unspaced: Literal["none", "characters"] = "none"
    """How text of the scripts that put no space between words (Thai, Lao, Khmer,
    Burmese, Tai) is split: `none` is the original's rule (up to the next space),
    `characters` makes each letter with its marks a word."""

    @property
    def strips(self) -> bool:
        """Whether accents go, both settings considered."""
        return self.strip_accents == "always" or (
            self.strip_accents == "lowered" and self.lower_case
        )

    @staticmethod
    def complete(stored: Mapping[str, Any]) -> dict[str, Any]:
        """Returns stored settings with those that earlier versions did not have.

        Args:
            stored: What was stored with an artefact, by name; more may be among it.
        """
        return {"split_unspaced": "none", **stored}

    def __str__(self) -> str:
        """What is done to the text, in words."""
        case = "lower-cased" if self.lower_case else "cased"
        accents = "without" if self.strips else "with"
        split = ", unspaced scripts by characters"
        split = split if self.split_unspaced == "characters" else ""
        return f"{case}, {accents} accents{split}"


@section()
class CorpusConfig:
    """How files are read as documents."""

    documents: Literal["blank_line", "file"] = "blank_line"
    """What ends a document of a plain text file. Rows of JSONL, Parquet and TFDS are
    one document each."""
    field: str = "text"
    """The name of the text's field in JSONL, Parquet and TFDS."""
    on_error: Literal["stop", "report"] = "stop"
    """Stop at the first piece of bad input, or go on, count and report them all."""


@section()
class VocabularyConfig:
    """How a WordPiece vocabulary is learnt."""

    size: Positive = 30522
    """Entries, special tokens included."""
    min_frequency: Positive = 2
    """Pairs of pieces rarer than this are not merged."""
    character_coverage: Share = 0.9999
    """The most frequent characters that make up this share of the text enter the
    vocabulary; a word with another one becomes [UNK]."""


@section()
class RecordsConfig:
    """How documents become pre-training examples."""

    max_length: Annotated[int, Field(ge=8)] = 128
    """Positions of a record, special tokens and padding included."""
    order: Literal["original", "document"] = "original"
    """`original`: the released builder's packing, which puts later short sentences
    back into segment A and discards what does not fit. `document`: text order is
    kept and every token is used."""
    seed: Seed = 0
    """Decides segment borders and lengths."""
    shards: Annotated[int, Field(gt=0, le=1000)] | None = None
    """Number of files; null: one for each 32 MB of text, 512 at most."""


@section()
class InputConfig:
    """How records become batches."""

    batch_size: Positive = 128
    """Rows of a global batch, over all hosts and replicas."""
    seed: Seed = 0
    """Decides the order of the records, anew in each epoch."""
    shuffle_window: Positive = 65536
    """Records that are shuffled among each other at a time."""


@section()
class ModelConfig:
    """The shape of the discriminator, and the generator's as shares of it."""

    depth: Positive = 12
    """Transformer layers of the discriminator (or of BERT's one encoder)."""
    width: Positive = 256
    """Width of its hidden states."""
    embedding: Positive | None = 128
    """Width of the embedding tables, projected to `width` where they differ; null:
    `width`."""
    heads: Positive | None = None
    """Attention heads; null: `width` / 64, at least 1."""
    feed_forward: Positive | None = None
    """Width between the two products of a feed-forward layer; null: 4 x `width`."""
    vocabulary_size: Positive | None = None
    """Rows of the token table; null: as many as the records' vocabulary has."""
    max_positions: Positive = 512
    """Rows of the position table: the longest input there will ever be."""
    segments: Positive = 2
    """Rows of the segment table."""
    dropout: Rate = 0.1
    """Share of hidden values zeroed in training."""
    attention_dropout: Rate = 0.1
    """Share of attention probabilities zeroed in training."""
    initializer_range: Annotated[float, Field(gt=0)] = 0.02
    """Standard deviation of initial weights; 0.02 is the original's at every width."""
    generator_width: Share = 0.25
    """The generator's width as a share of the discriminator's."""
    generator_depth: Share = 1.0
    """The generator's depth as a share of the discriminator's."""
    sharing: Literal["none", "embeddings", "all"] = "embeddings"
    """What generator and discriminator share: nothing, the embedding tables with
    their layer norm (the paper), or the whole encoder, which needs shares of 1."""

    @property
    def encoder(self) -> "EncoderConfig":
        """The discriminator."""
        return EncoderConfig(
            depth=self.depth,
            width=self.width,
            embedding=self.embedding or self.width,
            heads=self.heads or max(1, self.width // 64),
            feed_forward=self.feed_forward or 4 * self.width,
            vocabulary_size=self.vocabulary_size or 0,
            max_positions=self.max_positions,
            segments=self.segments,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            initializer_range=self.initializer_range,
        )

    @property
    def generator(self) -> "EncoderConfig":
        """The generator; heads and feed-forward follow from its own width.

        Without shared tables it needs no projection: its tables have its width.
        """
        if self.sharing == "all":
            return self.encoder
        width = round(self.width * self.generator_width)
        return EncoderConfig(
            depth=round(self.depth * self.generator_depth),
            width=width,
            embedding=width if self.sharing == "none" else self.encoder.embedding,
            heads=max(1, width // 64),
            feed_forward=4 * width,
            vocabulary_size=self.vocabulary_size or 0,
            max_positions=self.max_positions,
            segments=self.segments,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            initializer_range=self.initializer_range,
        )

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        if self.sharing == "all" and (self.generator_width, self.generator_depth) != (
            1,
            1,
        ):
            raise ValueError(
                "sharing: all has one encoder: set generator_width and "
                "generator_depth to 1"
            )
        for name, tower in (("", self.encoder), ("generator's ", self.generator)):
            if not tower.width or not tower.depth:
                raise ValueError(f"the {name}width and depth round to 1 or more")
            if tower.width % tower.heads:
                raise ValueError(
                    f"the {name}width {tower.width} must be a multiple of its "
                    f"{tower.heads} heads"
                )
        return self


@section()
class EncoderConfig:
    """The shape of one tower, with everything decided."""

    depth: int
    """Transformer layers."""
    width: int
    """Width of the hidden states."""
    embedding: int
    """Width of the embedding tables."""
    heads: int
    """Attention heads."""
    feed_forward: int
    """Width between the two products of a feed-forward layer."""
    vocabulary_size: int
    """Rows of the token table."""
    max_positions: int
    """Rows of the position table."""
    segments: int
    """Rows of the segment table."""
    dropout: float
    """Share of hidden values zeroed in training."""
    attention_dropout: float
    """Share of attention probabilities zeroed in training."""
    initializer_range: float = 0.02
    """Standard deviation of initial weights."""


@section()
class MaskingConfig:
    """Which positions the generator has to fill in."""

    scheme: Literal["paper", "whole_word", "original"] = "paper"
    """`paper`: ceil(rate x n) distinct positions. `whole_word`: whole words in random
    order, each that still fits into that number. `original`: as the released code
    does, drawn with replacement and left as they are in 15% of the draws."""
    rate: Share = 0.15
    """Masked share of a row's real tokens."""
    replacement: Literal["mask", "bert"] = "mask"
    """Token written at a masked position. `mask`: always [MASK] (the paper). `bert`:
    80% [MASK], 10% a random token, 10% the token itself."""

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "MaskingConfig":
        if self.scheme == "original" and self.replacement != "mask":
            raise ValueError("replacement must be `mask` with scheme `original`")
        return self


@section()
class ObjectiveConfig:
    """What is learnt."""

    name: Literal["electra", "mlm"] = "electra"
    """`electra`: replaced-token detection beside a masked-LM generator. `mlm`: BERT's
    masked language modelling, one encoder of the discriminator's size."""
    generator_weight: Weight = 1.0
    """Factor of the masked-LM loss."""
    discriminator_weight: Weight = 50.0
    """Factor of the replaced-token loss, the paper's lambda."""
    sampler: Literal["inverse_cdf", "gumbel"] = "inverse_cdf"
    """How a token is drawn; the distribution is the same. `inverse_cdf` takes two
    random numbers, `gumbel` one for each entry of the vocabulary, as the original."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the generator's logits before a token is sampled."""
    disallow_correct: bool = False
    """Never sample the original token."""
    uniform_generator: bool = False
    """Sample from the whole vocabulary evenly; there is no generator network then."""

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "ObjectiveConfig":
        if self.name == "mlm":
            idle = ("sampler", "temperature", "disallow_correct", "uniform_generator")
            weights = self.generator_weight
        else:
            idle = ("temperature",) if self.uniform_generator else ()
            weights = self.generator_weight + self.discriminator_weight
        for name in idle:
            if getattr(self, name) != type(self).__pydantic_fields__[name].default:
                who = self.name if self.name == "mlm" else "uniform_generator"
                raise ValueError(f"{who}: there is nothing that `{name}` could change")
        if not weights:
            raise ValueError(f"name: {self.name} needs a weight above 0 to learn from")
        return self


@section()
class OptimizerConfig:
    """How gradients become updates."""

    name: Literal["adam", "adamw", "lamb"] = "adam"
    """`adam`: the original's, without bias correction. `adamw`: with it. `lamb`:
    AdamW's update scaled to each weight's norm, for large batches."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    """The peak that decay and warm-up are factors of."""
    warmup_steps: Count = 10_000
    """Steps over which the rate rises from 0."""
    decay_power: Weight = 1.0
    """The rate falls with (1 - step / steps) to this power, from the first step on."""
    weight_decay: Weight = 0.01
    """Decoupled weight decay, a factor of the learning rate."""
    no_decay: tuple[Pattern, ...] = ("LayerNorm", "layer_norm", "bias")
    """Weights whose name holds one of these regular expressions do not decay."""
    beta_1: Rate = 0.9
    """Memory of the gradient's mean."""
    beta_2: Rate = 0.999
    """Memory of the gradient's square."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    """Added to the root of the squares' mean."""
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest norm of the whole gradient, over all replicas; null: unlimited."""


@section()
class TrainingConfig:
    """How long, how exact, and what is kept."""

    steps: Positive = 1_000_000
    """Updates in all."""
    seed: Seed = 0
    """Decides initial weights, masks, samples and dropout."""
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    """Arithmetic of the towers. Weights, logits, softmax, sampling and losses are
    float32 in both."""
    xla: Literal["auto", "on", "off"] = "auto"
    """Compile forward and backward pass with XLA; auto: on GPUs and TPUs. Without it,
    XLA compiles the short chains of operations between the products alone, and cannot
    compile a function that holds the step."""
    accumulation: Positive = 1
    """Parts a batch is worked off in, for less memory; the result is the same."""
    log_every: Positive = 100
    """Steps between two lines of metrics."""
    save_every: Positive = 1000
    """Steps between two checkpoints."""
    keep: Positive = 3
    """How many of the newest checkpoints stay."""
    keep_at: tuple[Share, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0)
    """Shares of training at which a checkpoint is written and stays for ever."""
    evaluate_every: Positive = 10_000
    """Steps between two evaluations on the held-out records, if there are any."""
    evaluation_batches: Positive | None = 100
    """Batches of an evaluation; null: all."""


@section()
class PretrainingConfig:
    """All settings of an experiment.

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

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "PretrainingConfig":
        if self.records.max_length > self.model.max_positions:
            raise ValueError(
                f"records.max_length {self.records.max_length} must not exceed "
                f"model.max_positions {self.model.max_positions}"
            )
        if self.input.batch_size % self.training.accumulation:
            raise ValueError(
                f"input.batch_size {self.input.batch_size} must be a multiple of "
                f"training.accumulation {self.training.accumulation}"
            )
        return self
