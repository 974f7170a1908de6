"""The batch of the tests of objectives.

It is not in `tiny`, which programs import before they configure devices: a tensor
starts TensorFlow.
"""

from tests import tiny

TEXT = tiny.batch([16, 12, 9, 16])
