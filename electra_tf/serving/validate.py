"""Compare the outputs of an export with those of the Keras model."""

from collections.abc import Iterator

import numpy as np

from electra_tf.errors import InputError
from electra_tf.serving.signatures import Response

TOLERANCE = 1e-4
"""Largest difference, relative above 1. Two ways to compute the same logits in float32
differ by 1e-5 in a network of 6 layers of width 384."""


def compare(
    name: str, outputs: Response, expected: Response, tolerance: float = TOLERANCE
) -> Iterator[str]:
    """Yield a line with the difference of each output.

    Raises:
        InputError: A difference is larger than the tolerance.
    """
    for output, array in expected.items():
        difference = max_difference(outputs[output], array)
        if difference > tolerance:
            raise InputError(
                f"{name}: {output} differs by {difference:.2g} from Keras, more than "
                f"{tolerance:g}; nothing was exported, report it"
            )
        yield f"{name}: {output} differs by {difference:.1e} from Keras"


def max_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between two arrays."""
    if actual.shape != expected.shape:
        return float("inf")
    if actual.dtype == object or not actual.size:
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    scale = np.maximum(1.0, np.abs(expected))
    largest = np.max(np.abs(actual.astype(np.float64) - expected) / scale)
    return float("inf") if np.isnan(largest) else float(largest)
