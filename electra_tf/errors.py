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


def format_list(values: Iterable[object], limit: int = 10) -> str:
    """Return the first values in quotes, for a message."""
    words = [repr(value) for value in values]
    more = [f"and {len(words) - limit:,} more"] * (len(words) > limit)
    return ", ".join(words[:limit] + more)


def _sentence(text: str) -> str:
    text = text.rstrip(". ")
    return text if text.endswith("?") else f"{text}."
