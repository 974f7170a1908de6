"""What each pre-training objective trains, as facts that need no TensorFlow.

Configs, cost estimates, exports and messages read these instead of an objective's name.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal, get_args

Head = Literal["replaced_token", "masked_lm"]
Scoring = Literal[
    "pseudo_log_likelihood", "log_probability", "log_original", "negative_energy"
]
Sharing = Literal["none", "embeddings", "all", "gdes"]


@dataclasses.dataclass(frozen=True)
class ObjectiveFacts:
    """Networks and settings of an objective.

    The main network is the full-size one, whose encoder fine-tuning uses.
    """

    head: Head = "replaced_token"
    """Head of the main network. `replaced_token` has a logit at each position,
    `masked_lm` logits of the vocabulary at the positions of `softmax`."""
    generator: bool = True
    """Whether a generator fills the masked positions. `uniform_generator` replaces it
    by uniform samples."""
    weights: tuple[str, ...] = ("generator_weight", "discriminator_weight")
    """Settings that weight its losses; one must be above 0."""
    unused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Settings that must keep their defaults, with the reason."""
    own: tuple[str, ...] = ()
    """Settings that not every objective has."""
    sharing: tuple[Sharing, ...] = get_args(Sharing)
    """Values of `model.sharing` that make sense."""
    generator_loss: Literal["masked_lm", "reward"] = "masked_lm"
    """What the generator learns from."""
    softmax: Literal["masked", "all"] = "masked"
    """Positions at which a main network with a masked-LM head predicts tokens."""
    towers: Literal[1, 2] = 1
    """Encoders of the generator. Two predict every token, in both directions."""
    stages: int = 1
    """Parts of the training with losses of their own. With two, generator and
    discriminator have one shape."""

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


_NO_NETWORK = "uniform_generator", "unigram_generator"
_SAMPLING = (
    *("sampler", "temperature", "temperature_schedule", "disallow_correct"),
    *_NO_NETWORK,
)
_ONE_CLASS = "the discriminator would learn to answer `replaced` everywhere"
_REPLACE_MLM = ObjectiveFacts(
    head="masked_lm",
    weights=("generator_weight", "main_weight"),
    unused={"discriminator_weight": "there is no discriminator"},
    own=("main_weight",),
    sharing=("none", "embeddings", "all"),
)

FACTS: Mapping[str, ObjectiveFacts] = {
    "electra": ObjectiveFacts(),
    "electra_15": ObjectiveFacts(
        unused=dict.fromkeys(("disallow_correct", *_NO_NETWORK), _ONE_CLASS)
    ),
    "replace_mlm": _REPLACE_MLM,
    "all_tokens_mlm": dataclasses.replace(_REPLACE_MLM, softmax="all"),
    "adversarial": ObjectiveFacts(
        unused={
            "disallow_correct": "correct samples are rewarded too",
            **dict.fromkeys(_NO_NETWORK, "there would be no generator to train"),
        },
        own=("entropy_weight",),
        sharing=("none", "embeddings", "gdes"),
        generator_loss="reward",
    ),
    "two_stage": ObjectiveFacts(
        unused={
            **dict.fromkeys(_NO_NETWORK, "there would be no first stage"),
            "freeze_generator": "the second stage freezes it in any case",
        },
        own=("first_stage",),
        sharing=("none", "gdes"),
        stages=2,
    ),
    "electric": ObjectiveFacts(
        unused={
            **dict.fromkeys(_NO_NETWORK, "the generator is the noise distribution"),
            "disallow_correct": "the noise distribution would be another",
            "freeze_generator": "no other model has two towers",
        },
        sharing=("none", "embeddings"),
        towers=2,
    ),
    "mlm": ObjectiveFacts(
        head="masked_lm",
        generator=False,
        weights=("generator_weight",),
        unused=dict.fromkeys(_SAMPLING, "nothing is sampled"),
    ),
}
"""Facts of every objective by its name in `objective.name`."""
