"""ELECTRA 15%: replaced-token detection at the masked positions only."""

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.pretraining.masking import mark_masked
from electra_tf.pretraining.objectives.electra import ElectraObjective


class Electra15Objective(ElectraObjective):
    """ELECTRA whose discriminator learns from the masked positions (section 3.5).

    The discriminator reads the same text as in ELECTRA. The logits of all other
    positions have no gradient, and its metrics leave them out.
    """

    def discriminated(self, masked: MaskedBatch) -> tf.Tensor:
        """Return 1 at the masked positions, int32 [B, L]."""
        return mark_masked(masked)
