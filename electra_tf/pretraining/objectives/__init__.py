"""Pre-training objectives, one module each.

An objective is constructed from (config, tokens) and has these members:

    model                           Keras layer with the trained weights
    mask(batch, rng)                returns a MaskedBatch
    weights(masked)                 returns the denominator of each loss, by name
    losses(masked, rng, training)   runs the forward pass, returns Losses

Its networks and settings are listed in `config/objectives.py`.
"""

from electra_tf.pretraining.objectives.adversarial import AdversarialObjective
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.electra_15 import Electra15Objective
from electra_tf.pretraining.objectives.mlm import MaskedLMObjective

OBJECTIVES = {
    "electra": ElectraObjective,
    "electra_15": Electra15Objective,
    "adversarial": AdversarialObjective,
    "mlm": MaskedLMObjective,
}
