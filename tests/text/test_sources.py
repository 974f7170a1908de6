import pytest

from electra_tf.errors import InputError
from electra_tf.text.sources import expand


def test_patterns_are_expanded_in_a_fixed_order(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    sources = expand([f"{tmp_path}/b*", f"{tmp_path}/**/*.txt", "tfds:some/thing"])
    names = [path.removeprefix(f"{tmp_path}/") for path in sources]
    assert names == ["b.txt", "a.txt", "sub/c.txt", "tfds:some/thing"]


def test_a_pattern_without_a_file_is_an_error(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"nothing\*'.*no file"):
        expand([f"{tmp_path}/nothing*"])
    with pytest.raises(InputError, match=r"folder'.*FOLDER/\*\.txt"):
        expand([f"{tmp_path}/folder"])
    with pytest.raises(InputError, match="--input='corpus"):
        expand([])


def test_a_glob_that_matches_other_than_files_is_an_error(tmp_path):
    (tmp_path / "good.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="/folder', which"):
        expand([f"{tmp_path}/*"])
    assert expand([f"{tmp_path}/**"]) == [f"{tmp_path}/good.txt"]
    (tmp_path / "lost.txt").symlink_to(tmp_path / "nowhere")
    for pattern in ("*.txt", "**", "lost.txt"):
        with pytest.raises(InputError, match=r"lost\.txt', which"):
            expand([f"{tmp_path}/{pattern}"])


def test_names_that_look_like_globs_can_be_named(tmp_path):
    (tmp_path / "x[1].txt").write_text("x")
    assert expand([f"{tmp_path}/x[1].txt"]) == [f"{tmp_path}/x[1].txt"]


def test_a_file_with_several_names_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    names = ["a.txt", "./a.txt", "link.txt", "**/*.txt"]
    assert expand([f"{tmp_path}/{n}" for n in names]) == [f"{tmp_path}/a.txt"]
    (tmp_path / "circle").symlink_to(tmp_path)
    assert expand([f"{tmp_path}/circle/a.txt"]) == [f"{tmp_path}/circle/a.txt"]
    with pytest.raises(InputError, match=r"link\.txt', which"):
        expand([f"{tmp_path}/**/*.txt"])
