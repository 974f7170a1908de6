"""Tasks of one's own: a model in Python; a file and a row of the registry."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import electra_tf
from electra_tf.errors import InputError
from electra_tf.model.heads import ClassificationHead
from electra_tf.tasks.classifier import encode_texts
from electra_tf.tasks.evaluation import evaluate_model
from electra_tf.tasks.losses import weighted_sums
from electra_tf.tasks.predictions import predict_items
from electra_tf.tasks.text_model import TextModel
from tests import tiny
from tests.conftest import python


@keras.saving.register_keras_serializable("tests")
class MultiLabel(TextModel):
    """A target is a number whose bits are the labels."""

    own_arguments = head_arguments = ("count",)

    def __init__(self, start, count, settings=None, seed=0, **options):
        self.count = count
        super().__init__(start, settings, seed, **options)

    def make_head(self, seed):
        return ClassificationHead(self.shape.width, self.count, seed=seed)

    def task_loss(self, outputs, targets, weights_B):
        bits_BC = targets[:, None] // (2 ** tf.range(self.count)) % 2
        labels_BC = tf.cast(bits_BC, tf.float32)
        losses_BC = tf.nn.sigmoid_cross_entropy_with_logits(labels_BC, outputs)
        return weighted_sums(tf.reduce_sum(losses_BC, -1), weights_B)

    def examples(self, x, y=None):
        return encode_texts(self.tokenizer, x, self.settings.data.max_length, y)

    def decode(self, x, examples, outputs):
        return (np.stack(outputs) > 0) @ (2 ** np.arange(self.count))


@pytest.mark.runs
def test_a_task_of_ones_own_is_trained_saved_and_predicts(tmp_path, write):
    texts, labels = tiny.texts(24, longest=11, shortest=10)
    targets = [5 if label else 2 for label in labels]
    model = MultiLabel(tiny.start(), 3, tiny.settings(**tiny.NO_DROPOUT))
    model.compile(keras.optimizers.Adam(5e-3))
    model.fit(texts, targets, epochs=20, verbose=0)
    assert model.predict(texts).tolist() == targets
    model.save(tmp_path / "model.keras")
    loaded = electra_tf.load_model(tmp_path / "model.keras")
    assert (loaded.count, loaded.name) == (3, "multi_label")
    with pytest.raises(InputError, match="a MultiLabel is scored in Python"):
        evaluate_model(loaded, None, str(tmp_path))
    items = tiny.read_items(loaded, write("a.txt", "\n".join(texts)))
    assert list(predict_items(loaded, items)) == [str(target) for target in targets]


FILE = """
import keras
import numpy as np
import tensorflow as tf

from electra_tf.model.heads import ClassificationHead
from electra_tf.tasks.classifier import encode_texts
from electra_tf.tasks.data import table
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.losses import weighted_sums
from electra_tf.tasks.task import LabelTask
from electra_tf.tasks.task_data import Labelled, TaskData
from electra_tf.tasks.text_model import TextModel


@keras.saving.register_keras_serializable("tests")
class ToneClassifier(TextModel):
    kind = "tone_classifier"
    labels = output_names = ("down", "up")

    def make_head(self, seed):
        return ClassificationHead(self.shape.width, 2, seed=seed)

    def task_loss(self, outputs, targets, weights_B):
        losses_B = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)
        return weighted_sums(losses_B, weights_B)

    def examples(self, x, y=None):
        ids = None if y is None else [self.labels.index(tone) for tone in y]
        return encode_texts(self.tokenizer, x, self.settings.data.max_length, ids)

    def decode(self, x, examples, outputs):
        return tf.nn.softmax(np.stack(outputs)).numpy()


class ToneTask(LabelTask):
    models = (ToneClassifier,)

    def read(self, path, notify):
        rows = table.read(path, notify=notify)
        return Split(rows.texts("text"), rows.texts("tone"))

    def training_data(self, name, data, reading):
        split = self.read(data, reading.notify)
        splits = {"train": split, "dev": split}
        return TaskData(name, splits, ("accuracy",), ToneClassifier)

    def labelled_data(self, model, name, data, reading):
        splits = {"dev": self.read(data, reading.notify)}
        return Labelled("tone", splits, ("accuracy",))

    def record(self, model, item, details):
        return {"tone": model.labels[int(np.argmax(details))]}
"""
# Beside the file, the registry alone names the task.
PROGRAM = """
import importlib, json, sys

import electra_tf.tasks

folder, data, run = sys.argv[1:4]
electra_tf.tasks.__path__.append(folder)

from electra_tf.tasks import registry

registry._TASKS += (("tone_classifier", "tone_task.ToneTask", ("tone",)),)
registry.TASK_NAMES += ("tone",)


def call(name, *flags):
    command = importlib.import_module(f"electra_tf.{name}")
    command.FLAGS([name, *flags])
    command.main()


model = f"--model={run}/tuned"
call("finetune", "--task=tone", f"--data={data}", f"--checkpoint={folder}/start",
     f"--output={run}/tuned", *sys.argv[4:])
call("evaluate", model, f"--data={data}", f"--output={run}/scores.json")
call("predict", model, f"--input={data}", f"--output={run}/lines.txt", "--format=text")
call("export", model, f"--output={run}/served")
"""


@pytest.mark.runs
def test_the_commands_take_a_task_of_ones_own(tmp_path, pretrained):
    texts, labels = tiny.texts(32, longest=11, shortest=10)
    tones = ["up" if label else "down" for label in labels]
    data = tmp_path / "data.csv"
    rows = [f"{text},{tone}" for text, tone in zip(texts, tones, strict=True)]
    data.write_text("\n".join(["text,tone", *rows, ""]))
    (tmp_path / "tone_task.py").write_text(FILE)
    (tmp_path / "start").symlink_to(pretrained)
    flags = ["--set=training.epochs=4", "--set=optimizer.learning_rate=0.01"]
    result = python("-c", PROGRAM, tmp_path, data, tmp_path / "run", *flags)
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "run/lines.txt").read_text().splitlines()
    correct = sum(line == tone for line, tone in zip(lines, tones, strict=True))
    scores = json.loads((tmp_path / "run/scores.json").read_text())
    assert scores["task"] == "tone"
    assert scores["accuracy"] == pytest.approx(100 * correct / len(tones))
    (about,) = (tmp_path / "run/served/1").rglob("about.json")
    assert json.loads(about.read_text())["kind"] == "tone_classifier"
