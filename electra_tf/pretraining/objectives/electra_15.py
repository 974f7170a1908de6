"""ELECTRA 15%: replaced-token detection at the masked positions only."""

from electra_tf.pretraining.objectives.electra import ElectraObjective


class Electra15Objective(ElectraObjective):
    """ELECTRA whose discriminator learns from the masked positions (section 3.5).

    The discriminator reads the same text as in ELECTRA. The logits of all other
    positions have no gradient, and its metrics leave them out.
    """

    denominators = ("masked", "distinct")
    discriminated = "distinct"
