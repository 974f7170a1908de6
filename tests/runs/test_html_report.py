"""The HTML report: what it shows, in a browser, and what it must not do."""

import html
import math
import os
import pathlib
import re

import numpy as np
import pytest

from electra_tf.runs.html_report import Section, write_report
from electra_tf.tasks.class_report import class_report, label_set_report
from electra_tf.tasks.score import Mistake
from tests.serving.browser import chromium

MARKUP = "<img src=http://x.test/a onerror=\"document.title='hacked'\"></td>&amp;"
LABELS = ["bad", MARKUP, "جيد"]
GOLD = ["bad"] * 3 + [MARKUP] * 2 + ["جيد"]
PREDICTED = ["bad", "bad", MARKUP, MARKUP, "bad", "جيد"]
TEXT = f"{MARKUP} \x00\x07\ud800 👩‍👩‍👧 e\u0301 مرحبا"
MISTAKES = [Mistake(TEXT, "bad", MARKUP, 0.9876), Mistake("x" * 5000, "a", "b", 0.5)]
TABLES = """return [...document.querySelectorAll('table')].map(
    t => [...t.rows].map(r => [...r.cells].map(c => c.textContent)))"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    losses = [(step, 3 / step) for step in range(1, 41)]
    curves = {
        "loss": {"training": losses, "held out": [(20, 0.4), (40, 0.3)]},
        "dev_f1": {"held out": [(20, 50.0), (40, math.nan)]},
        "none": {"held out": []},
    }
    split = {"dev": (class_report(GOLD, PREDICTED, LABELS), MISTAKES)}
    many = [f"class {n}" for n in range(30)]
    other = {"test": (class_report(many, [*many[1:], many[0]], many), [])}
    rows = [[1, 0, "66.67", MARKUP]]
    sections = [
        Section("first", ["trial", "seed", "dev_f1", ""], rows, split, curves),
        Section(MARKUP, ["score", ""], [["mse", "1.00"]], other, note=MARKUP),
    ]
    write_report(str(path), f"Report {MARKUP}", sections)
    return path


def test_a_report_loads_and_runs_nothing(report):
    text = report.read_text("utf-8")
    tags = re.findall(r"<([a-z]+)", text)
    assert {"table", "polyline", "style"} <= set(tags)
    assert not {"script", "img", "link", "iframe", "a", "base"} & set(tags)
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "Always answering 'bad' would score 50.0% accuracy." in html.unescape(text)
    assert re.search(r"x{2000} … \(5,000 characters\)", text)


def test_texts_with_several_classes_have_no_matrix(tmp_path):
    classes = label_set_report(np.eye(2), np.eye(2), ["a", "b"])
    split = {"dev": (classes, [])}
    section = Section("sets", ["score", ""], [["micro_f1", "100.00"]], split)
    write_report(str(tmp_path / "r.html"), "Report", [section])
    text = (tmp_path / "r.html").read_text()
    assert "micro avg" in text
    assert "Confusion" not in text


@pytest.mark.tools
def test_a_report_in_a_browser(report, tmp_path):
    with chromium(tmp_path / "chromium") as browser:
        browser.open(report.as_uri())
        if folder := os.environ.get("SCREENSHOTS"):
            browser.screenshot(pathlib.Path(folder, "report.png"))

        def value(expression):
            return browser.script(f"return {expression}")

        assert value("document.title") == f"Report {MARKUP}"
        assert browser.text("h2:nth-of-type(2)") == MARKUP
        assert value("performance.getEntriesByType('resource').length") == 0
        assert browser.log() == []
        trials, classes, matrix, mistakes, scores, *_, pairs = browser.script(TABLES)
        assert trials[1] == ["1", "0", "66.67", MARKUP]
        assert classes[1] == ["bad", "66.67", "66.67", "66.67", "3"]
        assert classes[4] == ["accuracy", "", "", "66.67", "6"]
        assert matrix == [
            ["", *LABELS],
            ["bad", "2", "1", "0"],
            [MARKUP, "1", "1", "0"],
            ["جيد", "0", "0", "1"],
        ]
        assert mistakes[1][1:] == ["bad", MARKUP, "0.988"]
        assert mistakes[1][0].startswith(MARKUP)
        assert mistakes[1][0].endswith("👩‍👩‍👧 e\u0301 مرحبا")
        assert scores[1] == ["mse", "1.00"]
        assert pairs[1] == ["class 0", "class 1", "1", "100"]
        lines = "[...document.querySelectorAll('polyline')].map(p => p.points.length)"
        assert value(lines) == [40, 2, 1]
        # No label of a chart and no confusion matrix ends outside.
        parts = "[...document.querySelectorAll('svg text')]"
        right = "t.getBoundingClientRect().right"
        edge = "t.closest('svg').getBoundingClientRect().right"
        assert value(f"{parts}.every(t => {right} <= {edge})")
        scroll = "[...document.querySelectorAll('.scroll:has(.matrix)')]"
        assert value(f"{scroll}.every(t => t.scrollWidth <= t.clientWidth)")
        # The policy lets the style apply, and wide tables scroll by themselves.
        cell = "document.querySelector('td:last-child')"
        assert value(f"getComputedStyle({cell}).textAlign") == "right"
        assert value("document.documentElement.scrollWidth <= innerWidth")
