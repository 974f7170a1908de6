"""Outputs of the released code, and models with its weights and random draws."""

import json

import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.config.data import RecordsConfig
from electra_tf.config.model import ModelConfig
from electra_tf.config.objectives import OBJECTIVE_SETTINGS, drop_foreign
from electra_tf.config.pretraining import MaskingConfig, PretrainingConfig
from electra_tf.pretraining.masking import (
    SpecialTokens,
    apply_mask,
    first_positions,
    written_by_original,
)
from electra_tf.pretraining.pretrainer import Pretrainer
from tests.conftest import GOLDEN

_PARTS = (  # of a name: the original's, this project's
    ("attention/self/", "attention/"),
    ("attention/output/dense/", "attention/output/"),
    ("attention/output/LayerNorm/", "attention_layer_norm/"),
    ("intermediate/dense/", "intermediate/"),
    ("output/LayerNorm/", "output_layer_norm/"),
    ("output/dense/", "output/"),
    ("LayerNorm/", "layer_norm/"),
    ("token_type_embeddings", "segment_embeddings"),
    ("dense_1/", "score/"),
)


def our_name(name):
    """Return the path within our model of the weight `name` of the released code."""
    prefixes = {
        "electra/encoder/": "discriminator/encoder/",
        "electra/": "discriminator/encoder/",
        "generator/encoder/": "generator/encoder/",
        "generator/": "generator/encoder/",
        "generator_ltr/encoder/": "cloze/left_encoder/",
        "generator_ltr/": "cloze/left_encoder/",
        "generator_rtl/encoder/": "cloze/right_encoder/",
        "generator_rtl/": "cloze/right_encoder/",
        "cloze_predictions/": "cloze/head/",
        "generator_predictions/": "generator/head/",
        "discriminator_predictions/": "discriminator/head/",
    }
    prefix = next(prefix for prefix in prefixes if name.startswith(prefix))
    name = prefixes[prefix] + name.removeprefix(prefix)
    for original_part, our_part in _PARTS:
        if original_part in name:
            return name.replace(original_part, our_part)
    return name


def assert_gradients_close(variables, gradients, expected):
    """Compare gradients of variables by name with arrays of the released code."""
    for name, gradient in zip(variables, gradients, strict=True):
        gradient, array = tf.convert_to_tensor(gradient).numpy(), expected(name)
        if gradient.shape != array.shape:  # the file has every fifth column
            gradient = gradient[:, ::5]
        atol = 1e-4 * np.abs(array).max() + 1e-5
        np.testing.assert_allclose(gradient, array, rtol=0, atol=atol, err_msg=name)


class Fixture:
    """File of golden numbers, with a pretrainer that has its weights."""

    def __init__(self, file, path=GOLDEN):
        self.arrays = np.load(path / file)
        info = json.loads(str(self["info_json"]))
        self.settings, self.ids = info["config"], info["special_ids"]
        self.config = _config(info)
        self.tokens = SpecialTokens(
            cls=self.ids["[CLS]"],
            sep=self.ids["[SEP]"],
            mask=self.ids["[MASK]"],
            vocabulary_size=self.settings["vocab_size"],
            is_continuation_V=np.zeros(self.settings["vocab_size"], bool),
        )
        self.pretrainer = Pretrainer(self.config, self.tokens)
        self.paths = {
            v.path.removeprefix("electra/"): v
            for v in self.pretrainer.trainable_variables
        }
        names = [n.removeprefix("var/") for n in self.arrays if n.startswith("var/")]
        self.variables = {name: self.paths[our_name(name)] for name in names}
        assert len({id(v) for v in self.variables.values()}) == len(self.paths)
        self.reset()

    def __getitem__(self, name):
        return self.arrays[name]

    def reset(self):
        for name, variable in self.variables.items():
            variable.assign(self["var/" + name])

    def batch(self):
        names = ("input_ids", "input_mask", "segment_ids")
        return Batch(*(tf.constant(self[name]) for name in names))

    def masked(self):
        """Return the batch with the masks of the released code."""
        batch, masker = self.batch(), self.pretrainer.objective.mask
        count_B = masker.num_masked_by_length[self["input_mask"].sum(1)]
        everything_BL = tf.ones_like(batch.input_ids_BL, tf.bool)
        positions_BM, weights_BM = first_positions(
            tf.constant(self["rand_positions"]), count_B, everything_BL
        )
        uniform_BM = tf.constant(self["rand_replace_uniform"])
        written_BM = written_by_original(uniform_BM, weights_BM)
        mask_BM = tf.fill(positions_BM.shape, self.tokens.mask)
        return apply_mask(batch, positions_BM, weights_BM, mask_BM, written_BM)

    def check_losses_and_gradients(self, masked, rng, names):
        """Compare all losses and gradients; return the losses.

        `names` are those of the original for each loss.
        """
        objective = self.pretrainer.objective
        with tf.GradientTape() as tape:
            losses = objective.losses(masked, objective.context(rng, False))
            loss = losses.combined(objective.counts(masked))
        for name, original_name in names.items():
            part = losses.parts[name]
            mean = part.total / objective.counts(masked)[part.denominator]
            np.testing.assert_allclose(mean, self[original_name], rtol=1e-5)
        np.testing.assert_allclose(loss, self["total_loss"], rtol=1e-5)
        variables = [v.value for v in self.variables.values()]
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        assert_gradients_close(
            self.variables, gradients, lambda name: self[f"grad/{name}"]
        )
        return losses

    def rng(self):
        return _Given(self["rand_gumbel_uniform"])


class _Given:
    """Stream with the random numbers of the released code, without dropout."""

    def __init__(self, uniform_BMV):
        self.uniform_BMV = uniform_BMV

    def uniform(self, purpose, rows, shape):
        assert self.uniform_BMV.shape == (rows, *shape)
        return tf.constant(self.uniform_BMV)

    def dropout(self):
        return None


def _config(info):
    settings = info["config"]
    bert = info["disc_bert_config"]
    if not settings["untied_generator"]:
        sharing, width, depth = "all", 1.0, 1.0
    else:
        sharing = "none" if settings["untied_generator_embeddings"] else "embeddings"
        width = float(settings["generator_hidden_size"])
        depth = float(settings["generator_layers"])
    objective = {
        "name": "electric" if settings.get("electric_objective") else "electra",
        "sampler": "gumbel",
        "discriminator_weight": settings["disc_weight"],
        "generator_weight": settings["gen_weight"],
        "temperature": settings["temperature"],
        "disallow_correct": settings["disallow_correct"],
        "uniform_generator": settings["uniform_generator"],
    }
    drop_foreign(objective)
    return PretrainingConfig(
        records=RecordsConfig(max_length=settings["max_seq_length"]),
        model=ModelConfig(
            depth=bert["num_hidden_layers"],
            width=bert["hidden_size"],
            embedding=settings["embedding_size"],
            heads=bert["num_attention_heads"],
            feed_forward=bert["intermediate_size"],
            vocabulary_size=settings["vocab_size"],
            max_positions=bert["max_position_embeddings"],
            sharing=sharing,
            generator_width=width,
            generator_depth=depth,
        ),
        masking=MaskingConfig(scheme="original", rate=settings["mask_prob"]),
        objective=OBJECTIVE_SETTINGS[objective["name"]](**objective),
    )
