"""Apply TF_CPP_MIN_LOG_LEVEL to the C++ log of absl, which ignores the variable."""

import ctypes
import glob
import mmap
import os
import re
import sys

_SETTER = re.compile(
    rb"_ZN4absl(?:\d+lts_\d+)?14SetMinLogLevelENS0?_18LogSeverityAtLeastE"
)
_LEVELS = range(4)  # INFO, WARNING, ERROR, FATAL, both in absl and in TensorFlow


def apply_level() -> bool:
    """Set the minimum severity of absl's C++ log if TensorFlow is imported.

    XLA logs through absl. The mangled name of absl's setter contains absl's release, so
    the name is looked up in TensorFlow's library.

    Returns:
        Whether the level was set. It is not without TensorFlow or without the setter.
    """
    tensorflow = sys.modules.get("tensorflow")
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
    if tensorflow is None or level not in map(str, _LEVELS):
        return False
    folder = os.path.dirname(tensorflow.__file__)
    for path in sorted(glob.glob(f"{glob.escape(folder)}/libtensorflow_framework*")):
        if name := _setter_name(path):
            setter = ctypes.CDLL(path)[name]
            setter.argtypes, setter.restype = [ctypes.c_int], None
            setter(int(level))
            return True
    return False


def _setter_name(path: str) -> str | None:
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        match = _SETTER.search(content)
        return match[0].decode() if match else None
