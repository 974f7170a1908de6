"""Laws of all objectives: what each loss trains, sums over rows, padding, dropout."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.objectives import OBJECTIVE_SETTINGS as SETTINGS
from electra_tf.kernels.rng import RngStream
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives import OBJECTIVES
from electra_tf.pretraining.objectives.common import Loss, Losses
from tests.pretraining.objectives.example import TEXT
from tests.tiny import (
    LENGTH,
    TOKENS,
    VOCABULARY,
    batch,
    config,
    losses_and_text,
    model_of,
    objective,
    rng,
)

NAMES = pytest.mark.parametrize("name", SETTINGS)
# The networks that each loss trains, by the start of their paths.
TRAINS = {
    "electra": {"masked_lm": ["generator/"], "disc": ["discriminator/"]},
    "electra_15": {"masked_lm": ["generator/"], "disc": ["discriminator/"]},
    "adversarial": {
        "policy": ["generator/"],
        "baseline": ["baseline/"],
        "disc": ["discriminator/"],
    },
    "two_stage": {"masked_lm": ["generator/"], "disc": ["discriminator/"]},
    "replace_mlm": {"masked_lm": ["generator/"], "main_lm": ["main/"]},
    "all_tokens_mlm": {"masked_lm": ["generator/"], "main_lm": ["main/", "gate/"]},
    "electric": {"cloze": ["cloze/"], "disc": ["discriminator/"]},
    "mlm": {"masked_lm": [""]},
}
METRICS_OF_GENERATOR = {
    *("masked_lm_loss", "masked_lm_accuracy", "sampled_masked_lm_accuracy")
}
METRICS = {
    "electra": METRICS_OF_GENERATOR
    | {f"disc_{n}" for n in ("loss", "accuracy", "precision", "recall", "auc")},
    "mlm": {"masked_lm_loss", "masked_lm_accuracy"},
    "replace_mlm": METRICS_OF_GENERATOR | {"main_lm_loss", "main_lm_accuracy"},
}


def build(name, sharing="none", **settings):
    """Return an objective in its last stage."""
    shape = model_of(name) | ({} if SETTINGS[name].stages > 1 else {"sharing": sharing})
    if sharing == "all":
        shape["generator_width"] = 1.0
    result = objective(name, **{**shape, **settings})
    result.begin(1_000_000)
    return result


@pytest.fixture(scope="module")
def built():
    """Return objectives by name, each built once."""
    return {name: build(name) for name in SETTINGS}


def total_of(objective, masked, source=None, training=False, part=None):
    losses = objective.losses(masked, objective.context(source or rng(), training))
    if part:
        losses = alone(losses, part)
    return losses.combined(objective.counts(masked))


def alone(losses, part):
    """Return one of the losses with a factor of 1."""
    return losses._replace(parts={part: losses.parts[part]._replace(factor=1.0)})


def reached(objective, masked, *parts):
    """Return the total loss, and the weights with a gradient of it and of each part."""
    variables = objective.model.trainable_variables
    with tf.GradientTape(persistent=True) as tape:
        losses = objective.losses(masked, objective.context(rng(), True))
        counts = objective.counts(masked)
        each = (alone(losses, part) for part in parts)
        totals = [of.combined(counts) for of in (losses, *each)]
    gradients = (tape.gradient(total, [v.value for v in variables]) for total in totals)
    return totals[0], [paths_with(variables, of) for of in gradients]


def paths_with(variables, gradients):
    """Return the paths of the variables with a gradient."""
    paths = set()
    for variable, gradient in zip(variables, gradients, strict=True):
        dense = None if gradient is None else tf.convert_to_tensor(gradient).numpy()
        assert dense is None or np.isfinite(dense).all(), variable.path
        # A bias of keys shifts all scores of a query equally: its gradient is 0.
        if dense is not None and dense.any() and not variable.path.endswith("key/bias"):
            paths.add(variable.path.partition("/")[2])
    return paths


def paths_of(objective, starts):
    paths = (v.path.partition("/")[2] for v in objective.model.trainable_variables)
    keys = "key/bias"
    return {p for p in paths if p.startswith(tuple(starts)) and not p.endswith(keys)}


@NAMES
def test_each_loss_trains_its_networks_alone(built, name):
    masked = built[name].mask(TEXT, rng())
    _, (of_all, *of_parts) = reached(built[name], masked, *TRAINS[name])
    for (part, starts), paths in zip(TRAINS[name].items(), of_parts, strict=True):
        assert paths == paths_of(built[name], starts), part
    frozen = ["generator/"] if name == "two_stage" else []
    everything = paths_of(built[name], [""]) - paths_of(built[name], frozen or ["?"])
    assert of_all == everything


@pytest.mark.parametrize(
    ("name", "sharing"),
    [
        (name, sharing)
        for name, facts in SETTINGS.items()
        for sharing in ("embeddings", "all", "gdes")
        if sharing in facts.sharing and facts.generator and facts.stages == 1
    ],
)
def test_shared_weights_alone_are_trained_by_both_losses(name, sharing):
    objective = build(name, sharing)
    masked = objective.mask(TEXT, rng())
    main = "main/" if SETTINGS[name].head == "masked_lm" else "discriminator/"
    # With `gdes` no loss but the generator's reaches its tables.
    shared = {
        "embeddings": [f"{main}encoder/embeddings/"],
        "all": [f"{main}encoder/"],
        "gdes": [],
    }[sharing]
    parts = [part for part in TRAINS[name] if part != "baseline"]
    _, (_, *of_parts) = reached(objective, masked, *parts)
    for part, paths in zip(parts, of_parts, strict=True):
        assert paths == paths_of(objective, [*TRAINS[name][part], *shared]), part


@pytest.mark.parametrize("name", ["electra_15", "replace_mlm", "all_tokens_mlm"])
def test_the_main_network_reads_the_samples_of_electra(built, name):
    """One seed gives equal generators."""
    masked = built["electra"].mask(TEXT, rng())
    theirs, their_ids_BL = losses_and_text(built["electra"], masked)
    ours, ids_BL = losses_and_text(built[name], masked)
    np.testing.assert_array_equal(ids_BL, their_ids_BL)
    assert (ids_BL != masked.masked_ids_BL.numpy()).any()
    assert float(ours.parts["masked_lm"].total) == float(
        theirs.parts["masked_lm"].total
    )


@NAMES
def test_losses_denominators_and_metrics_have_their_names(built, name):
    masked = built[name].mask(TEXT, rng())
    losses = built[name].losses(masked, built[name].context(rng(), False))
    assert set(losses.parts) == set(TRAINS[name])
    used = {loss.denominator for loss in losses.parts.values()}
    assert used == set(built[name].counts(masked))
    assert set(losses.metrics) == METRICS.get(name, set(losses.metrics))
    values = compute_metrics(losses.metrics)
    for part, start in (("masked_lm_loss", VOCABULARY), ("disc_loss", 2)):
        if part in values and name != "electric":  # an untrained model is near chance
            assert abs(values[part] - np.log(start)) < 0.3


@NAMES
def test_parts_of_a_batch_add_up_to_the_batch(built, name):
    masked = built[name].mask(TEXT, rng())
    counts = built[name].counts(masked)
    whole = built[name].losses(masked, built[name].context(rng(), True))
    total, sums = 0.0, []
    for first in (0, 2):
        rows = tf.nest.map_structure(lambda t, i=first: t[i : i + 2], masked)
        stream = RngStream(rng().seed, rng().first_row + first)
        losses = built[name].losses(rows, built[name].context(stream, True))
        total += losses.combined(counts)
        sums.append(losses.metrics)
    np.testing.assert_allclose(total, whole.combined(counts), rtol=1e-5)
    metrics = tf.nest.map_structure(lambda *values: sum(values), *sums)
    expected = compute_metrics(whole.metrics)
    assert compute_metrics(metrics) == pytest.approx(expected, rel=1e-5, nan_ok=True)


@NAMES
def test_padding_does_not_change_the_loss(built, name):
    part = "cloze" if name == "electric" else None  # its first position sees the last
    masked = built[name].mask(TEXT, rng())
    expected = total_of(built[name], masked, part=part)
    padding_BL = 1 - masked.input_mask_BL
    junk = masked._replace(
        input_ids_BL=masked.input_ids_BL + 9 * padding_BL,
        masked_ids_BL=masked.masked_ids_BL + 7 * padding_BL,
        segment_ids_BL=masked.segment_ids_BL + padding_BL,
    )
    wide = type(masked)(
        *(tf.pad(x, [[0, 0], [0, 8]]) if x.shape[1] == LENGTH else x for x in masked)
    )
    for other in (junk, wide):
        loss = total_of(built[name], other, part=part)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)


@NAMES
@pytest.mark.parametrize("lengths", [[0, 0], [2, 3]])
def test_rows_without_maskable_tokens_train_no_generator(built, name, lengths):
    masked = built[name].mask(batch(lengths), rng())
    assert not masked.weights_BM.numpy().any()
    loss, (paths,) = reached(built[name], masked)
    assert np.isfinite(float(loss))
    assert not [p for p in paths if p.startswith(("generator/", "cloze/", "baseline/"))]
    if lengths == [0, 0] or name in ("mlm", "electra_15", "replace_mlm"):
        assert float(loss) == 0
        assert not paths


@NAMES
def test_dropout_is_applied_in_training_only(name):
    objective = build(name, dropout=0.3, attention_dropout=0.3)
    masked = objective.mask(TEXT, rng())
    losses = [float(total_of(objective, masked, None, t)) for t in (1, 1, 0)]
    assert losses[0] == losses[1] != losses[2]
    assert float(total_of(objective, masked, rng(1), True)) != losses[0]


def test_combined_loss_divides_each_loss_by_its_global_count():
    total, none, some = tf.Variable(3.0), tf.constant(0.0), tf.constant(2.0)
    parts = {
        "one": Loss(tf.constant(6.0), "real", 50.0),
        "empty": Loss(total, "masked", 1.0),
        "idle": Loss(tf.constant(9.0), "real", None),
    }
    with tf.GradientTape() as tape:
        loss = Losses(parts, {}).combined({"real": some, "masked": none})
    assert float(loss) == 50 * 6 / 2
    assert float(tape.gradient(loss, total)) == 0


@NAMES
def test_facts_are_those_of_the_networks_and_losses(built, name):
    assert set(OBJECTIVES) == set(SETTINGS)
    facts, model = SETTINGS[name](), built[name].model
    generator = "cloze" if facts.towers == 2 else "generator"
    has_discriminator = getattr(model, "discriminator", None) is not None
    assert has_discriminator == (facts.head == "replaced_token")
    assert (getattr(model, generator, None) is not None) == facts.generator
    for weight in facts.loss_weights if facts.stages == 1 else ():
        others = dict.fromkeys(facts.loss_weights, 0.0)
        SETTINGS[name](**{**others, weight: 1.0})


@NAMES
def test_rows_without_an_entry_are_never_sampled_or_predicted(name):
    spare = 6
    shape = {"vocabulary_size": VOCABULARY + spare, "spare_rows": spare}
    settings = config(objective={"name": name}, **{**model_of(name), **shape})
    objective = OBJECTIVES[name](settings, TOKENS)
    objective.model.build()
    biases = [v for v in objective.model.weights if v.path.endswith("output_bias")]
    tables = [v for v in objective.model.weights if "word_embeddings" in v.path]
    assert biases
    for bias in biases:
        bias.assign(np.where(np.arange(VOCABULARY + spare) < VOCABULARY, 0.0, 50.0))
    masked_rows = objective.mask(batch([16, 12]), rng())
    with tf.GradientTape() as tape:
        losses = objective.losses(masked_rows, objective.context(rng(), True))
        total = sum(part.total for part in losses.parts.values())
    # A row that is predicted would have nearly all of the probability.
    assert float(total) < 5 * 28 * np.log(VOCABULARY)
    for gradient in tape.gradient(total, [*biases, *tables]):
        if gradient is not None:
            dense = tf.convert_to_tensor(gradient)
            np.testing.assert_array_equal(dense[VOCABULARY:], 0)
