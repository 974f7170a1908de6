"""Create the networks of a pre-trained model as Keras layers."""

from typing import NamedTuple

from electra_tf.config.model import ModelConfig
from electra_tf.config.objectives import Electra
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.interop.checkpoint import TrainedRun
from electra_tf.interop.run_networks import plain_weights
from electra_tf.model import electra
from electra_tf.model.transformer import weights_of_zeros
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.training.checkpoint import assign


class KerasNetworks(NamedTuple):
    """The networks of a pre-trained model, with what they need."""

    model: electra.ElectraPair | electra.MaskedLMPair | electra.MaskedLM
    shapes: ModelConfig
    config: PretrainingConfig
    tokenizer: WordPieceTokenizer
    path: str
    step: int

    def check_discriminator(self) -> None:
        """Raise an error if the discriminator has had no update yet."""
        if self.config.restart and self.step <= self.config.restart:
            raise InputError(
                f"{self.path}, step {self.step:,}: its discriminator is untrained; "
                "name a later checkpoint"
            )


def load_networks(run: TrainedRun, path: str) -> KerasNetworks:
    """Create the networks of a run, without a generator if it has none."""
    config, tokenizer, weights, step = run
    shapes, weights = plain_weights(config, step, weights)
    objective = config.objective
    generators = "/generator/", "/cloze/"
    if objective.head != "masked_lm" and not any(
        generator in name for name in weights for generator in generators
    ):
        # Another library's discriminator alone, or one without generator network.
        objective = Electra(uniform_generator=True)
    with weights_of_zeros():
        model = electra.pretraining_model(shapes, objective)
    model.build()
    main = model.discriminator if isinstance(model, electra.ElectraPair) else model
    if missing := sorted({v.path for v in main.weights} - weights.keys()):
        is_encoder = all("/head/" in name for name in missing)
        state = "an encoder without a head" if is_encoder else f"without {missing[0]}"
        raise InputError(
            f"{path!r} is {state}; a model that scores or completes texts must be a "
            "discriminator or a masked language model"
        )
    assign({v.path: v for v in model.weights}, weights, path)
    return KerasNetworks(model, shapes, config, tokenizer, path, step)
