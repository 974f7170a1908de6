"""A task of one's own: several labels for each text, in one class."""

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
