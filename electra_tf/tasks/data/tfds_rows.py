"""Read a split of a data set that TFDS has prepared on this machine."""

from typing import Any

from electra_tf.tasks.data.files import TFDS
from electra_tf.tasks.data.records import Records
from electra_tf.text.files import load_tfds


def tfds_records(source: str) -> Records:
    """Yield the rows of `tfds:NAME@SPLIT`; labels have their names, -1 is missing."""
    name, _, split = source.removeprefix(TFDS).partition("@")
    dataset, info = load_tfds(name, split)
    for number, row in enumerate(dataset.as_numpy_iterator(), 1):
        yield number, _plain(row, info.features)


def _plain(value: Any, feature: Any) -> Any:
    """Return a value of TFDS as one of JSON."""
    import numpy as np

    inner = getattr(feature, "feature", feature)  # of a sequence
    if isinstance(value, dict):
        return {key: _plain(item, inner[key]) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(item, inner) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if value >= 0 else None
    # 3.8 of 32 bits is 3.7999999523 of 64.
    return float(str(value)) if isinstance(value, np.floating) else value.item()
