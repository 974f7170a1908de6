"""The one error meant for people: what is required, what arrived, what to do."""


class InputError(ValueError):
    """A mistake in the user's files, flags or settings, told in one paragraph.

    Command lines print it without a traceback and exit with status 1; anything
    else that is raised is a defect of this package and keeps its traceback.

    Args:
        required: The rule that was broken, as a sentence without full stop.
        arrived: What was found instead, with file and record where there is one.
        remedy: What the reader can do next.
    """

    def __init__(self, required: str, arrived: str, remedy: str):
        super().__init__(required, arrived, remedy)
        self.required, self.arrived, self.remedy = required, arrived, remedy

    def __str__(self) -> str:
        parts = (self.required, f"Arrived: {self.arrived}", self.remedy)
        return " ".join(_sentence(" ".join(part.split())) for part in parts)


def _sentence(text: str) -> str:
    text = text.rstrip(". ")
    return text if text.endswith("?") else f"{text}."
