"""Create the networks of a pre-trained model as Keras layers."""

from electra_tf.config.objectives import Electra
from electra_tf.errors import InputError
from electra_tf.interop.checkpoint import TrainedRun, plain_weights
from electra_tf.model import electra
from electra_tf.model.transformer import weights_of_zeros
from electra_tf.training.checkpoint import assign


def load_networks(
    run: TrainedRun,
) -> electra.ElectraPair | electra.MaskedLMPair | electra.MaskedLM:
    """Create the networks of a run, without a generator if it has none."""
    settings, weights = plain_weights(run.config, run.step, run.weights)
    objective = run.config.objective
    generators = "/generator/", "/cloze/"
    if objective.head != "masked_lm" and not any(
        generator in name for name in weights for generator in generators
    ):
        # Another library's discriminator alone, or one without generator network.
        objective = Electra(uniform_generator=True)
    with weights_of_zeros():
        model = electra.pretraining_model(settings, objective)
    model.build()
    main = model.discriminator if isinstance(model, electra.ElectraPair) else model
    if missing := sorted({v.path for v in main.weights} - weights.keys()):
        is_encoder = all("/head/" in name for name in missing)
        state = "an encoder without a head" if is_encoder else f"without {missing[0]}"
        raise InputError(
            f"{run.path!r} is {state}; a model that scores or completes texts must be "
            "a discriminator or a masked language model"
        )
    assign({v.path: v for v in model.weights}, weights, run.path)
    return model
