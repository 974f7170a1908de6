"""Summaries show the shapes and the numbers of parameters of all parts."""

import re

import numpy as np
import pytest
import tiny

from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.encoder import Encoder
from electra_tf.tasks.pretrained_heads import Electra, MaskedLanguageModel
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.token_classifier import TokenClassifier

CONFIG = tiny.config()
SHAPE = CONFIG.model.encoder


def rows(model, **options):
    """Return the name, shape and number of parameters of each row, and the total."""
    lines = []
    model.summary(print_fn=lines.append, line_length=78, **options)
    lines = "\n".join(lines).split("\n")
    cells = [re.split(r"\s*│\s*", line.strip("│ ")) for line in lines]
    parts = [row for row in cells if len(row) == 3]
    total = next(line for (line, *_) in cells if "Total params" in line)
    numbers = {name.strip("└ ").split(" ")[0]: (shape, n) for name, shape, n in parts}
    return numbers, int(total.split(": ")[1].split(" ")[0].replace(",", ""))


def size(layer):
    return sum(int(np.prod(weight.shape)) for weight in layer.weights)


def test_a_layer_shows_its_parts():
    encoder = Encoder(SHAPE)  # not built yet
    parts, total = rows(encoder)
    assert total == size(encoder)
    assert parts == {
        "embeddings": ("(None, None, 8)", f"{size(encoder.embeddings):,}"),
        "embeddings_project": ("(None, None, 16)", "144"),
        "layer_0": ("(None, None, 16)", f"{size(encoder.blocks[0]):,}"),
    }
    masked_lm = MaskedLanguageModel(encoder)
    assert rows(masked_lm)[0]["head"][0] == "(None, None, 50)"
    electra = Electra(CONFIG.model)
    parts, total = rows(electra)
    assert total == size(electra)  # shared weights count once
    assert parts["generator"][0] == "(None, None, 50)"
    number = f"{size(electra.discriminator):,}"
    assert parts["discriminator"] == ("(None, None)", number)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (lambda: TextClassifier(tiny.start(), "abc", tiny.settings()), "(None, 3)"),
        (lambda: TextRegressor(tiny.start(), 0, 5, tiny.settings()), "(None, 1)"),
        (
            lambda: TokenClassifier(tiny.start(), ("O", "S-X"), tiny.settings()),
            "(None, None, 2)",
        ),
        (lambda: QuestionAnswerer(tiny.start(), 0.0, tiny.settings()), "(None, None)"),
    ],
)
def test_a_model_shows_encoder_and_head(model, shape):
    model = model()
    parts, total = rows(model)
    assert total == size(model)
    assert parts == {
        "encoder": ("(None, None, 16)", f"{size(model.encoder):,}"),
        "head": (shape, f"{size(model.head):,}"),
    }
    nested, _ = rows(model, expand_nested=True)
    number = f"{size(model.encoder.blocks[0]):,}"
    assert nested["layer_0"] == ("(None, None, 16)", number)
