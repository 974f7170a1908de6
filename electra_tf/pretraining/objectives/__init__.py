"""Pre-training objectives, one module each.

An objective is constructed from (config, tokens) and has these members:

    model                           Keras layer with the trained weights
    mask(batch, rng)                returns a MaskedBatch
    weights(masked)                 returns the denominator of each loss, by name
    losses(masked, rng, training)   runs the forward pass, returns Losses
"""

from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.mlm import MaskedLMObjective

OBJECTIVES = {"electra": ElectraObjective, "mlm": MaskedLMObjective}
