"""Files of splits: published names first, one file for each split."""

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.splits import find_split


def test_a_published_name_comes_before_the_usual_ones(tmp_path):
    for name in ("train-v2.0.json.gz", "dev.json", "dev-v1.1.json"):
        (tmp_path / name).touch()
    folder, endings = str(tmp_path), (".jsonl", ".json")
    path = find_split(folder, "train", endings, "train-v2.0.json")
    assert path == f"{folder}/train-v2.0.json.gz"
    assert find_split(folder, "train", endings, "train-v1.1.json") is None
    path = find_split(folder, "dev", endings, "dev-v1.1.json")
    assert path == f"{folder}/dev-v1.1.json"
    assert find_split(folder, "dev", endings) == f"{folder}/dev.json"
    (tmp_path / "validation.jsonl.gz").touch()
    with pytest.raises(InputError, match=r"dev\.json, validation\.jsonl\.gz"):
        find_split(folder, "dev", endings)
