"""The one error meant for people: what is required, what received, what to do."""

from collections.abc import Iterable


class InputError(ValueError):
    """A mistake in the user's files, flags or settings, told in one paragraph.

    Command lines print it without a traceback and exit with status 1; anything
    else that is raised is a defect of this package and keeps its traceback.

    Args:
        required: The rule that was broken, as a sentence without full stop.
        received: What was found instead, with file and record where there is one.
        remedy: What the reader can do next.
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
