"""Test the page of `serve` in a headless browser."""

import dataclasses
import os
import pathlib

import pytest
import tensorflow as tf

from electra_tf.serving.http_servable import Servable, ServableSignature, servable_of
from tests.serving.browser import chromium
from tests.serving.exports import LABELS, exported

pytest.importorskip("aiohttp", reason="needs the extra `http`")

from tests.serving.http_client import running

pytestmark = pytest.mark.tools
MARKUP = "<img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def predict(browser, client, **texts):
    """Type texts into the page; return the text of the result."""
    browser.open(f"{client.url}/")
    for name, text in texts.items():
        browser.find(f"textarea[name={name}]")
        browser.type(f"textarea[name={name}]", text)
    browser.click("button")
    browser.find("details:not([hidden])")
    if folder := os.environ.get("SCREENSHOTS"):
        browser.screenshot(pathlib.Path(folder, f"{client.name}.png"))
    return browser.text("#result")


def constant(name, about, inputs, outputs):
    """Return a servable with one response."""
    specs = {
        n: tf.TensorSpec([None, *t.shape[1:]], t.dtype, n) for n, t in outputs.items()
    }
    texts = {name: tf.TensorSpec([None], tf.string, name) for name in inputs}
    signature = ServableSignature(texts, specs, lambda **_: outputs)
    return Servable(name, 1, {"serving_default": signature}, about)


def test_classes_have_probabilities_and_markup_is_shown_as_text(browser):
    servable = servable_of(exported("classifier"), "classes")
    labels = [MARKUP, *LABELS[1:]]
    servable = dataclasses.replace(servable, about={**servable.about, "labels": labels})
    with running(servable) as client:
        result = predict(browser, client, text=f"A film {MARKUP}")
        assert (
            browser.text("h1") == browser.script("return document.title") == "classes"
        )
        headers = client.send("GET", "/")[1]
    assert MARKUP in result
    assert result.count("%") == len(LABELS)
    assert "one machine" in browser.text("footer")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert browser.script("return document.querySelectorAll('img').length") == 0
    assert browser.log() == []  # nothing was blocked by the policy


def test_several_classes_are_marked(browser):
    servable = constant(
        "topics",
        {"labels": ["sport", "politics", "science"]},
        ["text"],
        {
            "labels": tf.constant([["sport", "", "science"]]),
            "probabilities": tf.constant([[0.9, 0.2, 0.6]]),
        },
    )
    with running(servable) as client:
        result = predict(browser, client, text="A text")
        best = browser.script(
            "return [...document.querySelectorAll('.best')].map((row) => row.innerText)"
        )
    assert [row.split()[0] for row in best] == ["sport", "science"]
    assert "politics 20.0%" in " ".join(result.split())


def test_the_policy_blocks_scripts_in_the_page(browser):
    with running(servable_of(exported("classifier"), "classes")) as client:
        browser.open(f"{client.url}/")
        browser.script(
            "const s = document.createElement('script');"
            "s.textContent = 'document.title = 1'; document.head.append(s);"
        )
        assert browser.script("return document.title") != "1"


def test_entities_are_marked_at_their_characters(browser):
    text = "👩‍👩‍👧 مريم lives in Zürich"
    place, person = text.index("Zürich"), text.index("مريم")
    servable = constant(
        "entities",
        {"labels": ["O", "B-PER"]},
        ["text"],
        {
            "types": tf.constant([["PER", "LOC", ""]]),
            "starts": tf.constant([[person, place, -1]]),
            "ends": tf.constant([[person + 4, place + 6, -1]]),
            "texts": tf.constant([["", "", ""]]),
            "scores": tf.constant([[0.9, 0.8, 0.0]]),
            "count": tf.constant([2]),
        },
    )
    with running(servable) as client:
        predict(browser, client, text=text)
        marks = browser.script(
            "return [...document.querySelectorAll('mark')]"
            ".map((mark) => mark.firstChild.textContent)"
        )
        colours = browser.script(
            "return [...document.querySelectorAll('mark')]"
            ".map((mark) => getComputedStyle(mark).backgroundColor)"
        )
        # Messages of the test before, of a blocked script, may come late.
        assert not [m for m in browser.log() if "inline style" in m["message"]]
    assert len({*colours}) == 2  # one for each type
    assert marks == ["مريم", "Zürich"]
    assert browser.text("mark small") == "PER 90.0%"


def test_words_have_tags(browser):
    with running(servable_of(exported("tagger"), "tagger")) as client:
        result = predict(browser, client, text="the film")
        assert browser.text("#signature").split() == ["entities", "serving_default"]
        marks = browser.text("mark")
    assert "film" in result
    assert "X" in marks
    assert "%" in marks


def test_answers_are_marked_in_their_context(browser):
    servable = constant(
        "answers",
        {},
        ["question", "context"],
        {
            "answer": tf.constant(["1869"]),
            "start": tf.constant([5]),
            "end": tf.constant([9]),
            "score": tf.constant([3.5]),
            "null_odds": tf.constant([-1.0]),
            "pieces_cut": tf.constant([7]),
        },
    )
    with running(servable) as client:
        result = predict(
            browser, client, question="When?", context="🙂 in 1869, in Utah"
        )
    assert browser.text("mark").startswith("1869")
    assert "7 wordpieces were cut" in result


def test_replaced_tokens_are_coloured(browser):
    servable = constant(
        "replaced",
        {},
        ["text"],
        {
            "tokens": tf.constant([["the", "cat"]]),
            "replaced_probability": tf.constant([[0.0, 1.0]]),
        },
    )
    with running(servable) as client:
        predict(browser, client, text="the cat")
        colours = browser.script(
            "return [...document.querySelectorAll('.token')]"
            ".map((token) => getComputedStyle(token).backgroundColor)"
        )
    assert len(colours) == 2
    assert colours == ["rgba(230, 60, 40, 0)", "rgba(230, 60, 40, 0.75)"]


def test_errors_are_shown(browser):
    with running(servable_of(exported("classifier"), "classes"), bytes=100) as client:
        browser.open(f"{client.url}/")
        browser.find("textarea")
        browser.type("textarea", "a" * 200)
        browser.click("button")
        browser.find("#state.error")
        assert "100" in browser.text("#state")
