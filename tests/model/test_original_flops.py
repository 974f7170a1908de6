"""FLOPs by the released script's rules: its 13 values, and those of configs."""

import dataclasses

import pytest
from conftest import ROOT

from electra_tf.config.loader import load_config
from electra_tf.model.original_flops import training_flops

SCRIPT = {
    "elmo": 3.4114394716164127e18,
    "xlnet": 3.856582065028608e21,
    "gpt": 3.968752230785352e19,
    "bert_small": 1.4187399146496e18,
    "bert_base": 6.428335104e19,
    "bert_large": 1.91720905883648e20,
    "electra_small": 1.293743798272e18,
    "electra_base": 6.424541834277683e19,
    "electra_400k": 7.117606040895488e20,
    "electra_1.75M": 3.113952642891776e21,
    "roberta": 3.187221435776e21,
    "albert": 3.113923955392512e22,
    "t5_11b": 4.581900124212429e22,
}


def flops(name, *sets):
    return training_flops(load_config(name, ["model.vocabulary_size=30522", *sets]))


def test_published_models_equal_the_script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import count_flops

    assert count_flops.published_flops() == SCRIPT


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
