"""Limits of the requests that served graphs accept, asserted inside the graph."""

import dataclasses
from typing import NamedTuple

from electra_tf.errors import InputError

_WORDS = 16  # in a response, for each position of a request
_MAX_POSITIONS = 2**30


@dataclasses.dataclass(frozen=True)
class RequestLimits:
    """Limits of one request. The graph asserts them before it allocates memory."""

    rows: int = 4096
    """Rows of a request of strings."""
    bytes: int = 2**21
    """Bytes of all strings together. The tokenizer needs about a hundred times the
    memory."""
    positions: int = 2**16
    """Rows times positions of the longest; the parts that long texts are split into
    count as rows. 128 rows of 512, or 512 of 128."""

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if type(value) is not int or not 0 < value <= _MAX_POSITIONS:
                raise InputError(
                    f"The limit max_{name} of a request must be from 1 to 2^30",
                    repr(value),
                    "Pass another number",
                )

    @property
    def words(self) -> int:
        """Rows times words of the longest text in a tagger's response."""
        return _WORDS * self.positions


class ServerLimits(NamedTuple):
    """Limits of the local server, in addition to those in the graph."""

    waiting: int = 64
    bytes: int = 2**22
    threads: int = 2


LIMITS = RequestLimits()
"""The default."""
