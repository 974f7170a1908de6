"""The loss of a span: start, end, and whether there is one (the original's)."""

import tensorflow as tf

ANSWERABLE_WEIGHT = 0.5  # the original's answerable_weight


def position_loss(logits_BL: tf.Tensor, positions_B: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of a position among all of its row, in float32.

    Args:
        logits_BL: What the head says.
        positions_B: int32, the right position.

    Returns:
        float32 [B].
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=positions_B, logits=tf.cast(logits_BL, tf.float32)
    )


def impossible_loss(logit_B: tf.Tensor, impossible_B: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of whether a row is without answer, in float32.

    Args:
        logit_B: Above 0 means that there is no answer.
        impossible_B: 1 where there is none, else 0.

    Returns:
        float32 [B].
    """
    return tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(impossible_B, tf.float32), logits=tf.cast(logit_B, tf.float32)
    )


def span_loss(
    start_logits_BL: tf.Tensor,
    end_logits_BL: tf.Tensor,
    answerable_logit_B: tf.Tensor | None,
    starts_B: tf.Tensor,
    ends_B: tf.Tensor,
    impossible_B: tf.Tensor,
    answerable_weight: float = ANSWERABLE_WEIGHT,
) -> tf.Tensor:
    """The loss of each row; the original adds them up over the batch.

    (start + end) / 2 + answerable_weight * impossible, each a cross-entropy.

    Args:
        start_logits_BL: Of `SpanHead`.
        end_logits_BL: Of `SpanHead`, given the right start.
        answerable_logit_B: Of `SpanHead`; None: the head has none.
        starts_B: int32, 0 where there is no answer.
        ends_B: int32, 0 where there is no answer.
        impossible_B: 1 where there is no answer, else 0.
        answerable_weight: Factor of the last part.

    Returns:
        float32 [B].
    """
    start_B = position_loss(start_logits_BL, starts_B)
    end_B = position_loss(end_logits_BL, ends_B)
    loss_B = (start_B + end_B) / 2.0
    if answerable_logit_B is None:
        return loss_B
    return loss_B + answerable_weight * impossible_loss(
        answerable_logit_B, impossible_B
    )
