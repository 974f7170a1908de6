"""FLOPs by the released script's rules: its values, and those of configs."""

import dataclasses

import pytest

from electra_tf.config.loader import load_config
from electra_tf.config.model import ModelConfig
from electra_tf.model.original_flops import masked_lm_flops, training_flops

SCRIPT = {
    "bert_small": 1.4187399146496e18,
    "bert_base": 6.428335104e19,
    "bert_large": 1.91720905883648e20,
    "electra_small": 1.293743798272e18,
    "electra_base": 6.424541834277683e19,
    "electra_400k": 7.117606040895488e20,
    "electra_1.75M": 3.113952642891776e21,
    "roberta": 3.187221435776e21,
    "albert": 3.113923955392512e22,
}


def flops(name, *sets):
    return training_flops(load_config(name, ["model.vocabulary_size=30522", *sets]))


@pytest.mark.parametrize(
    ("name", "sizes", "length", "rows", "steps"),
    [
        ("bert_small", {"width": 256, "embedding": 128}, 128, 128, 1.45e6),
        ("bert_base", {"width": 768}, 512, 256, 1e6),
        ("bert_large", {"width": 1024, "depth": 24}, 512, 256, 1e6),
        (
            *("roberta", {"width": 1024, "depth": 24, "vocabulary_size": 50265}),
            *(512, 8000, 500000),
        ),
        (
            *("albert", {"width": 4096, "vocabulary_size": 30000, "embedding": 128}),
            *(512, 4096, 1.5e6),
        ),
    ],
)
def test_masked_language_models_equal_the_script(name, sizes, length, rows, steps):
    model = ModelConfig(**{"vocabulary_size": 30522, "embedding": None, **sizes})
    assert masked_lm_flops(model.encoder, length, rows, steps) == SCRIPT[name]


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ("small", "electra_small"),
        ("base", "electra_base"),
        ("large-400k", "electra_400k"),
        ("large-1.75M", "electra_1.75M"),
    ],
)
def test_configs_equal_the_published_models(config, model):
    assert flops(config) == SCRIPT[model]


def test_other_objectives_count_their_networks():
    bert, electra = flops("ablations/bert"), flops("ablations/electra_15")
    assert electra == flops("base") == flops("ablations/adversarial")
    # Replace MLM has the softmax where ELECTRA has the small head; All-Tokens MLM has
    # it at all positions.
    generator = flops("base") - flops("base", "objective.uniform_generator=true")
    assert flops("ablations/replace_mlm") == pytest.approx(bert + generator)
    assert flops("ablations/all_tokens_mlm") > 1.1 * flops("ablations/replace_mlm")
    own = "model.sharing=none", "model.generator_embedding=768"
    frozen = flops("base", "objective.freeze_generator=true", *own)
    assert frozen == pytest.approx(flops("base") - generator / 2)
    assert flops("ablations/electric") > flops("base")


def test_two_stages_have_half_of_each_network():
    config = load_config("ablations/two_stage", ["model.vocabulary_size=30522"])
    steps = config.training.steps
    joint = dataclasses.replace(
        config, objective=dataclasses.replace(config.objective, name="electra")
    )
    uniform = dataclasses.replace(
        joint, objective=dataclasses.replace(joint.objective, uniform_generator=True)
    )
    main = training_flops(uniform)
    generator = training_flops(joint) - main
    assert steps % 2 == 0
    # The generator: forward and backward in one half, forward in the other.
    expected = main / 2 + generator * 0.75
    assert training_flops(config) == pytest.approx(expected)
