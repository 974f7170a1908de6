"""Give generated inputs to real commands."""


def run(count: int, seed: int, max_seconds: float, max_bytes: int) -> dict:
    """Run commands and return their counts.

    Args:
        count: Number of commands.
        seed: The same seed gives the same commands.
        max_seconds: Time of a command, at most, above that of its start.
        max_bytes: Memory of a command, at most, above that of its start.
    """
    raise NotImplementedError
