"""Error for invalid user input: requirement, received value and remedy."""

from collections.abc import Iterable


class InputError(ValueError):
    """Invalid file, flag or setting, described in one paragraph.

    Commands print it without a traceback and exit with status 1.

    Args:
        required: The violated rule, as a sentence without full stop.
        received: The invalid value, with file and record if there is one.
        remedy: How to fix it.

    Example:
        import electra_tf

        try:
            electra_tf.Encoder.from_preset("missing")
        except electra_tf.InputError as error:
            print(error)  # what is required, what was received, what to do
    """

    def __init__(self, required: str, received: str, remedy: str):
        super().__init__(required, received, remedy)
        self.required, self.received, self.remedy = required, received, remedy

    def __str__(self) -> str:
        parts = (self.required, f"Received: {self.received}", self.remedy)
        return " ".join(_sentence(" ".join(part.split())) for part in parts)


def listed(values: Iterable[object], most: int = 10) -> str:
    """Return values in quotes for a message, at most some of them.

    Args:
        values: Names, labels, numbers of lines.
        most: How many to show.

    Returns:
        `'a', 'b', ..., and 990 more`.
    """
    words = [repr(value) for value in values]
    more = [f"and {len(words) - most:,} more"] * (len(words) > most)
    return ", ".join(words[:most] + more)


def _sentence(text: str) -> str:
    text = text.rstrip(". ")
    return text if text.endswith("?") else f"{text}."
