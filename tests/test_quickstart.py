"""The quick start: what it reads, what it draws, and one small run from end to end."""

import copy
import importlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT

from electra_tf import config
from electra_tf.errors import InputError

sys.path.insert(0, str(ROOT / "tools"))
quickstart = importlib.import_module("quickstart")
pictures = importlib.import_module("quickstart_pictures")
Piece = pictures.Piece

DOCSTRING = """Opens the door and lets the ``cat`` in.

The door stays open until the cat, whose :class:`Name` is known,
has gone through it.

    >>> door = Door()
    >>> door.open()

Parameters
----------
cat : array_like
    The cat that wants to come in from the garden.

Args:
    dog (Dog): The other animal in the house, which
        may stay outside for the night.
    n: short

Returns:
    bool: Whether the cat was seen in the house.

door.open(cat=1, dog=2) and {"x": 1} = y_z | w_v.
"""
PROSE = [
    "Opens the door and lets the cat in.",
    "The door stays open until the cat, whose Name is known, has gone through it.",
    "The cat that wants to come in from the garden.",
    "The other animal in the house, which may stay outside for the night.",
    "Whether the cat was seen in the house.",
]


def test_of_a_docstring_the_english_sentences_are_kept():
    assert list(quickstart.paragraphs(DOCSTRING)) == PROSE


def test_sources_are_read_and_never_run():
    source = (
        'r"""Of the module."""\n'
        "raise SystemExit\n"
        'class A:\n    """Of the class."""\n'
        '    def f(self):\n        """Of the method."""\n'
        '        def g():\n            """Of nobody."""\n'
        'async def h():\n    """Of the coroutine."""\n'
        'x = "no docstring"\n'
    )
    found = ["Of the module.", "Of the class.", "Of the method.", "Of the coroutine."]
    assert list(quickstart.strings(source.encode())) == found
    assert list(quickstart.strings(b"print 'of Python 2'")) == []
    topics = b"topics = {'if': 'The statement.'}"
    assert list(quickstart.strings(topics, is_topics=True)) == ["if", "The statement."]


@pytest.fixture
def packages(tmp_path):
    """52 packages with texts of their own, one that they share, and what is none."""
    root = tmp_path / "site"
    for number in range(52):
        name = "abcdefghijklmnopqrstuvwxyz"[number % 26] * (3 + number // 26)
        own = f"The package of {name} does its work in silence and is glad of it. " * 4
        (root / name).mkdir(parents=True)
        text = f'"""{own}\n\n{PROSE[1]}\n"""\ndef f():\n    """Nul \\0 in a text."""\n'
        (root / name / "code.py").write_text(text)
    for ignored in ("tests/a.py", "aaa/test/b.py", "aaa/readme.txt"):
        (root / ignored).parent.mkdir(exist_ok=True)
        (root / ignored).write_text(f'"""{"This must not be read by anybody. " * 9}"""')
    (root / "aaa" / "short.py").write_text(f'"""{PROSE[0]}"""')
    return root


def test_text_is_gathered_whole_and_always_in_the_same_order(packages, tmp_path):
    other = tmp_path / "elsewhere" / "python"
    shutil.copytree(packages, other)
    for root, output in ((packages, tmp_path / "1"), (other, tmp_path / "2")):
        documents, size = quickstart.gather([root], output, 1)
        assert documents == 52
    texts = {name: (tmp_path / "1" / name).read_text() for name in os.listdir(output)}
    assert sorted(texts) == ["heldout.txt", "train.txt"]
    assert {name: (output / name).read_text() for name in texts} == texts
    assert len(texts["train.txt"].split("\n\n")) - 1 == 51
    assert len(texts["heldout.txt"].split("\n\n")) - 1 == 1
    together = texts["train.txt"] + texts["heldout.txt"]
    assert together.count("The package of") == 52 * 4
    assert together.count(PROSE[1]) == 1  # said in each, read once
    assert "Nul" not in together
    assert "must not" not in together
    assert PROSE[0] not in together  # too short for a document
    assert size == len(together.replace("\n", ""))
    few, _ = quickstart.gather([packages], tmp_path / "3", 1000 / 1e6)
    assert few == 4  # 4 x 265 characters and the shared paragraph


def test_a_curve_is_drawn_in_characters():
    ramp = pictures.plot([0, 10, 20], [0.0, 1.0, 2.0], width=5, height=2)
    # Eighths of a line, 1 to 16: 1, 1 + 3.75, 1 + 7.5, 1 + 11.25, 16.
    assert ramp[0] == "    2.000   ▁▄█"
    assert ramp[1] == "    0.000 ▁▅███"
    assert ramp[2].split() == ["step", "0", "step", "20"]
    flat = pictures.plot([5], [0.25], width=3, height=2)
    assert [line.split() for line in flat[:2]] == [["0.250"], ["0.250", "▁▁▁"]]


def test_colours_go_from_white_to_red():
    assert pictures.colour(0.0) == (255, 255, 255)
    assert pictures.colour(0.5) == (245, 158, 150)
    assert pictures.colour(1.0) == (235, 60, 45)


SENTENCE = [
    Piece("the", None, 0.0),
    Piece("un", None, 0.25),
    Piece("##do", "##known", 0.5),
    Piece("<", "(", 1.0),
    Piece("is", None, 0.125),
    Piece(".", None, 0.06),
]


def test_pieces_are_joined_and_broken_into_lines():
    (line,) = pictures.layout(SENTENCE, 80)
    # the un do‹##known› <‹(› is .
    assert [cell.column for cell in line] == [0, 4, 6, 18, 23, 25]
    assert [cell.text for cell in line] == ["the", "un", "do", "<", "is", "."]
    lines = list(pictures.layout(SENTENCE, 17))
    assert [len(line) for line in lines] == [3, 3]
    assert [cell.column for cell in lines[1]] == [0, 5, 7]


def test_a_terminal_without_colours_is_told_the_probabilities():
    assert pictures.to_terminal(SENTENCE, coloured=False) == [
        "the[.00] un[.25]do‹##known›[.50] <‹(›[.99] is[.12].[.06]"
    ]
    assert pictures.judgement(SENTENCE) == (
        "mean probability of the replaced 0.75, of the others 0.11"
    )


def test_a_terminal_with_colours_shows_them():
    (line,) = pictures.to_terminal(SENTENCE, coloured=True)
    assert "\x1b[38;2;0;0;0;48;2;255;255;255mthe\x1b[0m" in line
    assert "\x1b[4;38;2;0;0;0;48;2;245;158;150mdo\x1b[0m‹##known› " in line
    assert re.sub(r"\x1b.*?m", "", line) == "the undo‹##known› <‹(› is."


def test_the_page_holds_every_piece_in_its_colour():
    page = pictures.to_html([SENTENCE])
    spans = re.findall(
        r'<(span|ins) style="background: rgb\((.*?)\)" title="(.*?)">(.*?)</\1>', page
    )
    assert spans == [
        ("span", "255, 255, 255", "0.000", "the"),
        ("span", "250, 206, 202", "0.250", "un"),
        ("ins", "245, 158, 150", "0.500", "do"),
        ("ins", "235, 60, 45", "1.000", "&lt;"),
        ("span", "252, 231, 229", "0.125", "is"),
        ("span", "254, 243, 242", "0.060", "."),
    ]
    assert re.findall("<del>(.*?)</del>", page) == ["‹##known›", "‹(›"]
    assert "src=" not in page
    assert "href=" not in page


def test_a_folder_is_taken_only_by_the_run_that_began_it(tmp_path):
    quickstart.claim(tmp_path / "new", {"steps": 4})
    quickstart.claim(tmp_path / "new", {"steps": 4})
    with pytest.raises(InputError, match="where it began with"):
        quickstart.claim(tmp_path / "new", {"steps": 5})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "vocab.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something else"):
        quickstart.claim(tmp_path / "mine", {"steps": 4})


OPTIONS = ["--text_megabytes=0.2", "--vocabulary_size=500"]


def command(folder, steps):
    program = ROOT / "tools" / "quickstart.py"
    return [sys.executable, program, f"--output={folder}", f"--steps={steps}", *OPTIONS]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small quick start, started from another folder: (its output, what it said)."""
    home = tmp_path_factory.mktemp("home")
    result = subprocess.run(
        command("run here", 4), capture_output=True, text=True, cwd=home
    )
    assert result.returncode == 0, result.stderr
    return home / "run here", result.stdout


def test_a_run_leaves_all_it_promises(run):
    folder, told = run
    shown = [line.split()[3] for line in told.splitlines() if line.startswith("$ ")]
    assert shown == [
        f"electra_tf.{name}"
        for name in ("build_vocab", *["build_records"] * 2, "pretrain", "evaluate")
    ]
    for name in ("curves.png", "replaced.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
        assert (folder / name).stat().st_size > 10_000
    assert "</ins>" in (folder / "replaced.html").read_text()
    assert json.loads((folder / "evaluation.json").read_text())["step"] == 4
    assert (folder / "run/checkpoints/step_00000004/checkpoint.json").exists()
    assert "run here/run/checkpoints/step_00000004\n" in told
    held_out, trained = (
        set((folder / "text" / name).read_text().split("\n")) - {""}
        for name in ("heldout.txt", "train.txt")
    )
    assert len(held_out) > 10
    assert not held_out & trained


def test_what_is_shown_is_what_the_checkpoint_says(run):
    from electra_tf.experiment import Experiment
    from electra_tf.training.checkpoint import open_checkpoint
    from electra_tf.training.state import restore_weights
    from electra_tf.training.strategy import choose

    folder, told = run
    checkpoint = open_checkpoint(str(folder / "run"))
    experiment = Experiment.of(checkpoint)
    pretrainer = experiment.pretrainer(choose("one_device"))
    restore_weights(pretrainer, checkpoint)
    ids = experiment.tokenizer.vocabulary.ids
    lines = [
        experiment.tokenizer.encode(line)
        for line in (folder / "text/heldout.txt").read_text().splitlines()
    ]
    sentences = json.loads((folder / "pictures.json").read_text())["sentences"]
    assert sentences
    for sentence in sentences:
        pieces = [Piece(*piece) for piece in sentence]
        assert [ids[p.original or p.text] for p in pieces] in lines
        replaced = sum(p.original is not None for p in pieces)
        assert 1 <= replaced <= math.ceil(0.15 * (len(pieces) + 2))
        read = [ids["[CLS]"], *(ids[p.text] for p in pieces), ids["[SEP]"]]
        logits_BL = pretrainer.core.discriminator(
            np.array([read]), np.zeros((1, len(read)), int), np.ones((1, len(read)))
        )
        expected = 1 / (1 + np.exp(-np.asarray(logits_BL)[0, 1:-1]))
        np.testing.assert_allclose([p.probability for p in pieces], expected, atol=1e-4)
        assert "\n".join(pictures.to_terminal(pieces, coloured=False)) in told


def test_the_next_commands_are_understood(run, monkeypatch):
    folder, told = run
    monkeypatch.chdir(folder.parent)
    found = re.findall(r"^  \S+ -m electra_tf\.(\w+) (.*)$", told, re.M)
    assert len(found) == 6
    for module, rest in found:
        values = copy.deepcopy(importlib.import_module(f"electra_tf.{module}").FLAGS)
        assert values(["command", *shlex.split(rest)]) == ["command"]
        if "config" in values and values.config:
            config.load(values.config, values.set)
        for flag in ("vocab", "checkpoint", "init_checkpoint", "evaluation_data"):
            if flag in values and values[flag].value and "my" not in values[flag].value:
                assert os.path.exists(values[flag].value) or values.vocab == "vocab.txt"


def test_a_second_start_does_nothing_anew(run):
    folder, told = run
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
    del before[folder / "quickstart.json"]
    result = subprocess.run(
        command("run here", 4), capture_output=True, text=True, cwd=folder.parent
    )
    assert result.returncode == 0, result.stderr
    assert "\n$ " not in result.stdout
    assert result.stdout.count("done before") == 7
    assert (
        result.stdout.split("\nloss")[1].splitlines()[:-1]
        == (told.split("\nloss")[1].splitlines()[:-1])
    )
    assert {p: p.stat().st_mtime_ns for p in before} == before
    other = subprocess.run(
        command("run here", 5), capture_output=True, text=True, cwd=folder.parent
    )
    assert other.returncode == 1
    assert other.stderr.startswith("error: A quick start goes on as it began (run here")


@pytest.mark.slow
def test_ctrl_c_stops_it_and_the_same_command_goes_on(tmp_path):
    steps = 400
    process = subprocess.Popen(
        command("run", steps),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    metrics = tmp_path / "run/run/metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    told, _ = process.communicate()
    assert process.returncode == 130
    assert "stopped by SIGINT; the same command goes on from" in told
    assert f"quickstart --output=run --steps={steps} {' '.join(OPTIONS)}\n" in told
    result = subprocess.run(
        command("run", steps), capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert "going on after step" in result.stderr
    assert (tmp_path / f"run/run/checkpoints/step_{steps:08d}").exists()
