"""Runs of every kind: resumed to the same bits, read, converted, continued."""

import shutil

import numpy as np
import pytest

from electra_tf.training.checkpoint import open_checkpoint, saved_steps
from electra_tf.training.metric_logger import read_metrics
from tests import tiny
from tests.conftest import failure
from tests.pretrain_commands import arguments, assert_equal_runs, resume

pytestmark = pytest.mark.runs

SHORT = (
    *("training.steps=6", "training.save_every=2", "training.log_every=2"),
    *("training.evaluate_every=6", "training.keep=9", "training.keep_at=[]"),
)
# Settings of a short run, and the steps after which it is killed.
VARIANTS = {
    "two_stage": (
        [
            *("objective.name=two_stage", "model.sharing=none"),
            *("model.generator_width=1.0", "model.generator_heads=2"),
            "model.generator_embedding=16",
        ],
        (2, 3, 4),
    ),
    "gdes": (["model.sharing=gdes"], (4,)),
    "xla": (["training.xla=on"], (4,)),
    "all_tokens_mlm": (["objective.name=all_tokens_mlm"], (4,)),
    "electric": (["objective.name=electric"], (4,)),
    "muon": (
        [
            "objective.temperature_schedule=[[0.0, 2.0], [0.5, 1.0]]",
            "optimizer.name=muon",
            "training.remat=true",
        ],
        (4,),
    ),
}


@pytest.fixture(scope="module")
def variants(tmp_path_factory):
    """Return a folder of the runs of `VARIANTS`."""
    return tmp_path_factory.mktemp("variants")


def resume_variant(here, folder, run, name):
    """Run a variant; that of two stages also evaluates, as its step changes."""
    data = folder if name == "two_stage" else None
    sets = [*SHORT, *VARIANTS[name][0]]
    return resume(here, folder, run, *sets, evaluation_data=data)


@pytest.fixture
def variant(folder, variants, here):
    """Return a function that trains a variant once and returns its run."""

    def train(name):
        if not (variants / name).exists():
            resume_variant(here, folder, variants / name, name)
        return variants / name

    return train


@pytest.mark.parametrize("name", VARIANTS)
def test_every_kind_of_run_resumes_to_the_same_bits(
    folder, variant, tmp_path, here, name
):
    """Delete all checkpoints after a step, as if the run had been killed there."""
    output = variant(name)
    for step in VARIANTS[name][1]:
        run = shutil.copytree(output, tmp_path / str(step))
        for number, path in saved_steps(str(run / "checkpoints")).items():
            if number > step:
                shutil.rmtree(path)
        done = resume_variant(here, folder, run, name)
        assert f"resuming after step {step} of 6" in done.stderr
        assert_equal_runs(run, output)


def test_temperature_and_muon_are_those_of_the_settings(variant):
    logs = [log for log in read_metrics(str(variant("muon"))) if log["kind"] == "train"]
    # The mean over two steps: (2 + 5/3) / 2, (4/3 + 1) / 2, (1 + 1) / 2.
    assert [log["temperature"] for log in logs] == pytest.approx([11 / 6, 7 / 6, 1])
    slots = open_checkpoint(str(variant("muon"))).slots()
    name = "electra/discriminator/encoder/layer_0/attention/query/kernel"
    assert f"m/{name}" in slots
    assert f"v/{name}" not in slots


def test_steps_of_two_stages_may_not_change(folder, variant, here):
    sets = [*SHORT, *VARIANTS["two_stage"][0], "training.steps=14"]
    message = failure(here("pretrain", *arguments(folder, variant("two_stage"), *sets)))
    assert "`training.steps` is 14" in message
    assert "must not change" in message


def assert_encoder_of(path, weights, prefix):
    for name, array in tiny.encoder(str(path)).weights.items():
        np.testing.assert_array_equal(array, weights[prefix + name])


def test_the_encoder_of_every_kind_of_run(variant):
    pair = variant("all_tokens_mlm")
    weights = open_checkpoint(str(pair)).weights()
    assert_encoder_of(pair, weights, "masked_lm_pair/main/encoder/")
    # A checkpoint of the first stage is read as if the second began.
    steps = saved_steps(str(variant("two_stage") / "checkpoints"))
    for step, network in ((2, "generator"), (6, "discriminator")):
        weights = open_checkpoint(steps[step]).weights()
        assert_encoder_of(steps[step], weights, f"electra/{network}/encoder/")
    # Disentangled tables are the sum of the generator's and the difference.
    weights = open_checkpoint(str(variant("gdes"))).weights()
    name = "electra/{}/encoder/embeddings/word_embeddings{}"
    difference = weights[name.format("discriminator", "_delta")]
    assert difference.any()
    table = weights[name.format("generator", "")] + difference
    encoder = tiny.encoder(str(variant("gdes")))
    np.testing.assert_array_equal(encoder.weights["embeddings/word_embeddings"], table)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gdes", ""),
        ("all_tokens_mlm", "masked_lm_pair/gate/kernel: other libraries have no copy"),
        ("electric", "electra/cloze/*: other libraries have no"),
    ],
)
def test_every_kind_of_run_is_converted_and_continued(
    folder, variant, tmp_path, here, name, words
):
    source, target = variant(name), tmp_path / "hf"
    convert = f"--from={source}", f"--to={target}", "--format=huggingface"
    result = here("convert", *convert)
    assert result.returncode == 0, result.stderr
    assert words in result.stdout + result.stderr
    start_from = {"gdes": target, "all_tokens_mlm": source, "electric": source}[name]
    sets = [*SHORT, *VARIANTS[name][0], "training.steps=2"]
    flags = {"init_checkpoint": start_from}
    done = resume(here, folder, tmp_path / "again", *sets, **flags)
    assert "loaded: all" in done.stderr
    assert "ignored" not in done.stderr
    if name == "electric":
        assert "logits, which are energies" in result.stdout + result.stderr
        assert "energies" in failure(here("serve", f"--model={source}"))
