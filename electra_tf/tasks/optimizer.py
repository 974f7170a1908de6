"""The optimizer that fine-tuning was published with."""

from electra_tf.config.finetuning import TaskOptimizerConfig
from electra_tf.config.pretraining import OptimizerConfig as Rule
from electra_tf.errors import InputError
from electra_tf.training.optimizer import Optimizer
from electra_tf.training.schedule import WarmupPolynomialDecay, layerwise_multipliers


def create_optimizer(
    settings: TaskOptimizerConfig, depth: int, steps: int
) -> Optimizer:
    """Warm-up, linear decay to 0, lower rates for lower layers (paper, appendix B).

    Args:
        settings: All of it.
        depth: Transformer layers of the encoder.
        steps: Updates of the whole training; the warm-up need not be whole steps.

    Returns:
        An optimizer that is not built yet.

    Raises:
        InputError: No steps are known, or the only one is the warm-up's first, whose
            rate is 0.
    """
    if steps < 1:
        raise InputError(
            "The published learning rate falls to 0 with the last step",
            "a data set that does not tell how many batches it has",
            "Call compile(optimizer=...) first, or assert the data set's cardinality",
        )
    if steps == 1 and settings.warmup_share:
        raise InputError(
            "Training has two updates or more, as the warm-up begins with a rate of 0",
            "one update: a single batch, in a single epoch",
            "Train for more epochs or in smaller batches, or set "
            "optimizer.warmup_share=0",
        )
    schedule = WarmupPolynomialDecay(
        settings.learning_rate,
        steps,
        steps * settings.warmup_share,
        settings.decay_power,
    )
    rule = Rule(
        name=settings.name,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        epsilon=settings.epsilon,
        clip_norm=settings.clip_norm,
    )
    multipliers = None
    if settings.layer_decay != 1:
        decay, kind = settings.layer_decay, settings.layer_rule
        multipliers = layerwise_multipliers(depth, decay, kind)
    return Optimizer(schedule, rule, multipliers)
