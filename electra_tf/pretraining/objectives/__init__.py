"""What can be learnt; one file each.

An objective is made from (config, tokens) and has

    model                    the Keras layer whose weights are trained
    mask(batch, rng)         -> MaskedBatch
    weights(masked)          -> what each loss is an average over, by the loss's name
    losses(masked, rng)      -> Losses
"""

from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.mlm import MaskedLMObjective

OBJECTIVES = {"electra": ElectraObjective, "mlm": MaskedLMObjective}
