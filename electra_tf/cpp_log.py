"""Apply TF_CPP_MIN_LOG_LEVEL to the C++ messages that TensorFlow no longer filters."""

import ctypes
import glob
import mmap
import os
import re
import sys

_SETTER = re.compile(
    rb"_ZN4absl(?:\d+lts_\d+)?14SetMinLogLevelENS0?_18LogSeverityAtLeastE"
)
_LEVELS = range(4)  # absl's numbers of INFO, WARNING, ERROR, FATAL are TensorFlow's


def apply_level() -> bool:
    """Set the lowest severity of absl's C++ log, once TensorFlow is loaded.

    XLA logs through absl, which does not read the environment variable. absl's function
    has a name that changes with its release, so the name is looked up in the library.

    Returns:
        True if the level was set; False without TensorFlow, or without such a function
        in its library.
    """
    tensorflow = sys.modules.get("tensorflow")
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
    if tensorflow is None or level not in map(str, _LEVELS):
        return False
    folder = os.path.dirname(tensorflow.__file__)
    for path in sorted(glob.glob(f"{glob.escape(folder)}/libtensorflow_framework*")):
        if name := _symbol(path):
            setter = ctypes.CDLL(path)[name]
            setter.argtypes, setter.restype = [ctypes.c_int], None
            setter(int(level))
            return True
    return False


def _symbol(path: str) -> str | None:
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        found = _SETTER.search(content)
        return found[0].decode() if found else None
