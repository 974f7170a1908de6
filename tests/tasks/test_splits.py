"""Files of splits: published names first, one file for each split."""

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.splits import find_splits


def test_a_published_name_comes_before_the_usual_ones(tmp_path):
    for name in ("train-v2.0.json.gz", "dev.json", "dev-v1.1.json"):
        (tmp_path / name).touch()
    folder, endings, splits = str(tmp_path), (".jsonl", ".json"), ("train", "dev")
    names = {"train": "train-v2.0.json", "dev": "dev-v1.1.json"}
    assert find_splits(folder, splits, endings, names) == {
        "train": f"{folder}/train-v2.0.json.gz",
        "dev": f"{folder}/dev-v1.1.json",
    }
    assert find_splits(folder, splits, endings) == {"dev": f"{folder}/dev.json"}
    file = f"{folder}/dev.json"
    assert find_splits(file, splits, endings) == {"train": file}
    (tmp_path / "validation.jsonl.gz").touch()
    with pytest.raises(InputError, match=r"dev\.json, validation\.jsonl\.gz"):
        find_splits(folder, splits, endings)
