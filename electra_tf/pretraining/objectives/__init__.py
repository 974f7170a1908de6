"""Pre-training objectives, one module each.

An objective is an `Objective`, constructed from (config, tokens), with these members:

    model                           Keras layer with the trained weights
    mask(batch, rng)                returns a MaskedBatch
    denominators                    names of the tokens over which losses are means
    losses(masked, context)         runs the forward pass, returns Losses

Those with a generator are subclasses of `ElectraObjective`, and most state the losses
of their main network alone, `main_losses`.

Its networks and settings are listed in `config/objectives.py`.
"""

from electra_tf.pretraining.objectives.adversarial import AdversarialObjective
from electra_tf.pretraining.objectives.all_tokens_mlm import AllTokensMLMObjective
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.electra_15 import Electra15Objective
from electra_tf.pretraining.objectives.electric import ElectricObjective
from electra_tf.pretraining.objectives.mlm import MaskedLMObjective
from electra_tf.pretraining.objectives.replace_mlm import ReplaceMLMObjective
from electra_tf.pretraining.objectives.two_stage import TwoStageObjective

OBJECTIVES = {
    "electra": ElectraObjective,
    "electra_15": Electra15Objective,
    "adversarial": AdversarialObjective,
    "replace_mlm": ReplaceMLMObjective,
    "all_tokens_mlm": AllTokensMLMObjective,
    "two_stage": TwoStageObjective,
    "electric": ElectricObjective,
    "mlm": MaskedLMObjective,
}
