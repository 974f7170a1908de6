"""Settings of each pre-training objective, with facts on what it trains.

Configs, cost estimates, exports and messages read the facts, which need no TensorFlow,
instead of an objective's name.
"""

import functools
import operator
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field

from electra_tf.config.fields import Weight, section

Head = Literal["replaced_token", "masked_lm"]
Scoring = Literal[
    "pseudo_log_likelihood", "log_probability", "log_original", "negative_energy"
]
Sharing = Literal["none", "embeddings", "all", "gdes"]


def _check_shares(points: tuple[tuple[float, float], ...]) -> Any:
    shares = [share for share, _ in points]
    if shares != sorted(set(shares)):
        raise ValueError(f"the shares of training must rise, not {shares}")
    return points


Point = tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(gt=0)]]
"""Completed share of training, and a factor."""


@section()
class ObjectiveSettings:
    """Settings of every objective, facts on it, and values of settings it lacks.

    The main network is the full-size one, whose encoder fine-tuning uses.
    """

    name: str = "electra"
    """The objective."""
    generator_weight: Weight = 1.0
    """Weight of the masked-LM loss of the generator or, with `mlm`, of the encoder;
    with `adversarial` that of the policy."""

    head = "replaced_token"
    """Head of the main network. `replaced_token` has a logit at each position,
    `masked_lm` logits of the vocabulary at the positions of `softmax`."""
    generator = True
    """Whether a generator fills the masked positions. `uniform_generator` replaces it
    by uniform samples."""
    loss_weights = "generator_weight", "discriminator_weight"
    """Settings that weight its losses; one must be above 0."""
    sharing = get_args(Sharing)
    """Values of `model.sharing` that make sense."""
    softmax = "masked"
    """Positions at which a main network with a masked-LM head predicts tokens: `masked`
    or `all`."""
    towers = 1
    """Encoders of the generator. Two predict every token, in both directions."""
    stages = 1
    """Parts of the training with losses of their own. With two, generator and
    discriminator have one shape."""
    has_baseline = False
    """True if the generator learns from rewards, with a baseline."""

    disallow_correct = freeze_generator = False
    uniform_generator = unigram_generator = False

    @property
    def free_losses(self) -> tuple[str, ...]:
        """Return the names of losses that a healthy run need not lower."""
        return ("masked_lm_loss",) if self.freeze_generator else ()

    @property
    def has_generator(self) -> bool:
        """Return whether there is a generator network."""
        return self.generator and not (self.uniform_generator or self.unigram_generator)

    @property
    def detects_samples(self) -> bool:
        """Return whether a discriminator reads samples of a generator."""
        return self.head == "replaced_token" and self.generator and self.towers == 1

    @property
    def scoring(self) -> Scoring:
        """Return the rule by which the main network scores a text."""
        if self.head == "masked_lm":
            return "log_probability" if self.generator else "pseudo_log_likelihood"
        return "negative_energy" if self.towers == 2 else "log_original"

    @property
    def main_network(self) -> str:
        """Return the name of the main network in messages."""
        if self.head == "replaced_token":
            return "discriminator"
        return "main network" if self.generator else "encoder"

    def _conflicts(self) -> Iterator[tuple[str, str, str]]:
        """Yield settings that must keep their defaults, with cause and reason."""
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
    def _fits(self) -> "ObjectiveSettings":
        for name, cause, why in self._conflicts():
            if getattr(self, name) != type(self).__pydantic_fields__[name].default:
                raise ValueError(f"`{name}` must be left out with `{cause}`: {why}")
        weights = set(self.loss_weights)
        if self.freeze_generator:
            weights.discard("generator_weight")
        positive = [name for name in weights if getattr(self, name)]
        if not positive:
            raise ValueError(f"`name: {self.name}` must have a weight above 0")
        if self.stages > 1 and len(positive) < len(weights):
            raise ValueError(
                f"{' and '.join(self.loss_weights)} must be above 0 with `name: "
                f"{self.name}`: each is the weight of one stage's only loss"
            )
        return self


@section()
class MLM(ObjectiveSettings):
    """BERT's masked language modelling: one encoder of the discriminator's size."""

    head = "masked_lm"
    generator = False
    loss_weights = ("generator_weight",)

    name: Literal["mlm"] = "mlm"


@section()
class Sampling(ObjectiveSettings):
    """Settings of objectives that sample from a generator."""

    sampler: Literal["inverse_cdf", "gumbel"] = "inverse_cdf"
    """Sampling algorithm; the distribution is the same. `inverse_cdf` draws two random
    numbers per token, `gumbel` (the original) one per entry of the vocabulary."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of the generator's logits before sampling."""
    temperature_schedule: Annotated[
        tuple[Point, ...], pydantic.AfterValidator(_check_shares)
    ] = ()
    """Factors of `temperature` at shares of training, linear in between. Fast-ELECTRA
    lowers it, for example `[[0.0, 2.0], [0.5, 1.0]]`."""


@section()
class AnyGenerator(Sampling):
    """Settings of objectives that may have a generator without a network."""

    disallow_correct: bool = False
    """Never sample the original token."""
    uniform_generator: bool = False
    """Sample uniformly from the vocabulary, without a generator network."""
    unigram_generator: bool = False
    """Sample by the tokens' frequency in the training records, special tokens left out,
    without a generator network."""
    freeze_generator: bool = False
    """Keep the generator of `--init_checkpoint` as it is; only the main network
    learns."""


@section()
class Discriminating(ObjectiveSettings):
    """Settings of objectives with a discriminator."""

    discriminator_weight: Weight = 50.0
    """Weight of the replaced-token loss, the paper's lambda."""


@section()
class Electra(Discriminating, AnyGenerator):
    """Replaced-token detection with a masked-LM generator; the default."""

    name: Literal["electra"] = "electra"


@section()
class Electra15(Discriminating, Sampling):
    """ELECTRA with the discriminator's loss at masked positions only."""

    name: Literal["electra_15"] = "electra_15"
    freeze_generator: bool = False
    """Keep the generator of `--init_checkpoint` as it is; only the discriminator
    learns."""


@section()
class ReplaceMLM(AnyGenerator):
    """Prediction of the original tokens where a generator replaced them."""

    head = "masked_lm"
    loss_weights = "generator_weight", "main_weight"
    sharing = "none", "embeddings", "all"

    name: Literal["replace_mlm"] = "replace_mlm"
    main_weight: Weight = 1.0
    """Weight of the main network's masked-LM loss."""


@section()
class AllTokensMLM(ReplaceMLM):
    """Prediction or copy of every token of a text that a generator changed."""

    softmax = "all"

    name: Literal["all_tokens_mlm"] = "all_tokens_mlm"


@section()
class Adversarial(Discriminating, Sampling):
    """ELECTRA whose generator learns to mislead the discriminator."""

    sharing = "none", "embeddings", "gdes"
    has_baseline = True
    free_losses = "masked_lm_loss", "loss"

    name: Literal["adversarial"] = "adversarial"
    entropy_weight: Weight = 0.0
    """Weight of the entropy of the generator's distribution, which is then maximised
    too."""


@section()
class TwoStage(Discriminating, Sampling):
    """The generator first, then a discriminator that begins with its weights."""

    sharing = "none", "gdes"
    stages = 2
    free_losses = ("loss",)

    name: Literal["two_stage"] = "two_stage"
    disallow_correct: bool = False
    """Never sample the original token."""
    first_stage: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the steps that train the generator."""


@section()
class Electric(Discriminating, Sampling):
    """An energy-based cloze model with a two-tower generator."""

    sharing = "none", "embeddings"
    towers = 2

    name: Literal["electric"] = "electric"


_CLASSES = (
    *(Electra, Electra15, ReplaceMLM, AllTokensMLM),
    *(MLM, TwoStage, Adversarial, Electric),
)
OBJECTIVE_SETTINGS: dict[str, type[ObjectiveSettings]] = {
    kind.name: kind for kind in _CLASSES
}
"""Settings of every objective by its name in `objective.name`."""


def any_objective() -> Any:
    """Return the union of `OBJECTIVE_SETTINGS` as a type, discriminated by `name`."""
    kinds = (
        Annotated[kind, pydantic.Tag(name)] for name, kind in OBJECTIVE_SETTINGS.items()
    )
    union = functools.reduce(operator.or_, kinds)
    return Annotated[union, pydantic.Discriminator(_name_of)]


def _name_of(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("name", Electra.name))
    return getattr(value, "name", Electra.name)


def drop_foreign(settings: dict[str, Any]) -> None:
    """Remove the settings of other objectives that have their defaults."""
    own = OBJECTIVE_SETTINGS.get(_name_of(settings))
    defaults = {
        name: field.default
        for kind in OBJECTIVE_SETTINGS.values()
        for name, field in kind.__pydantic_fields__.items()
        if own and name not in own.__pydantic_fields__
    }
    for name, default in defaults.items():
        value = settings.get(name)
        # YAML has lists where a class has tuples.
        if (tuple(value) if isinstance(value, list) else value) == default:
            del settings[name]
