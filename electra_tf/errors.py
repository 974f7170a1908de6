"""Error for invalid user input: what must hold, what was received, what to do."""

import contextlib
import pickle
import struct
import zipfile
from collections.abc import Iterable, Iterator

from electra_tf import compat

# What readers raise for a file that is damaged or of another kind.
_DAMAGE = (
    OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError,
    RuntimeError, EOFError, struct.error, pickle.UnpicklingError, zipfile.BadZipFile,
)  # fmt: skip


class InputError(ValueError):
    """Invalid file, flag or setting, described in one sentence.

    Commands print it without a traceback and exit with status 1.

    Args:
        message: What must hold, what was received and, where it is not obvious, what to
            do.

    Example:
        import electra_tf

        try:
            electra_tf.Encoder.from_preset("missing")
        except electra_tf.InputError as error:
            print(error)  # what is required, what was received, what to do
    """

    def __init__(self, message: str):
        message = " ".join(message.split()).rstrip(". ")
        super().__init__(message if message.endswith("?") else f"{message}.")


setattr(InputError, compat.RAISED_AS_IT_IS, True)


@contextlib.contextmanager
def report_damage(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise an InputError for what a damaged file makes its reader raise.

    `what`: the file, such as its path. `kinds`: classes of errors of the reader's
    library.
    """
    try:
        yield
    except InputError:
        raise
    except (*_DAMAGE, *kinds) as error:
        is_absent = isinstance(error, FileNotFoundError | PermissionError)
        state = "cannot be read" if is_absent else "is damaged"
        cause = f"{type(error).__name__}: {error!s:.300}"
        raise InputError(f"{what} {state}: {cause}") from error


def check_type(argument: str, value: object, kind: type, remedy: str) -> None:
    """Raise an InputError for an argument of another type."""
    if not isinstance(value, kind):
        raise InputError(
            f"{argument} must be of the type {kind.__name__}, not {value!r:.80}; "
            f"{remedy}"
        )


def format_list(values: Iterable[object], limit: int = 10) -> str:
    """Return the first values in quotes, for a message."""
    return join_first(map(repr, values), limit)


def join_first(texts: Iterable[str], limit: int = 10, separator: str = ", ") -> str:
    """Return the first texts and the number of the others, for a message."""
    words = list(texts)
    more = [f"and {len(words) - limit:,} more"] * (len(words) > limit)
    return separator.join(words[:limit] + more)


def cause_of(error: BaseException) -> str:
    """Return the first line of a library's message, or the name of its error."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
