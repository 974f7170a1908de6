"""Settings of the shapes of the networks."""

import dataclasses
from typing import Annotated

import pydantic
from pydantic import Field

from electra_tf.config.fields import Count, Positive, Rate, Share, section
from electra_tf.config.objectives import Sharing
from electra_tf.errors import InputError


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
                f"model.vocabulary_size is {self.vocabulary_size}, with {entries} "
                f"entries in {source} and {self.spare_rows} spare rows; set "
                f"model.vocabulary_size={rows} or null{spare if more else ''}"
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
