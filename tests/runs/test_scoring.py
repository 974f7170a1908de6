"""Scores of texts, compared with loops over single tokens and texts."""

import json
import lzma

import numpy as np
import pytest

from electra_tf.config.objectives import OBJECTIVE_SETTINGS
from electra_tf.errors import InputError
from electra_tf.model.electra import ElectraPair
from electra_tf.runs.scoring import TextScorer
from electra_tf.text.vocab import CLS, MASK, SEP
from tests.conftest import failure
from tests.tiny import resolve

TEXTS = ["the cat", "a", "the quick brown fox , and the other one", "b c d e f g h i"]
RULE_OF = {
    "mlm": "pseudo_log_likelihood",
    "replace_mlm": "log_probability",
    "all_tokens_mlm": "log_probability",
    "electric": "negative_energy",
}


@pytest.fixture(scope="module")
def checkpoints(folder, tmp_path_factory):
    """Return a function that writes a checkpoint of an objective, random weights."""
    paths = {}

    def make(name):
        if name not in paths:
            sets = [f"objective.name={name}", "model.depth=1"]
            if OBJECTIVE_SETTINGS[name].stages > 1:
                sets += ["model.sharing=none", "model.generator_width=1.0"]
                sets += ["model.generator_heads=2", "model.generator_embedding=16"]
                sets += ["training.steps=2"]
            experiment = resolve(folder, *sets)
            pretrainer = experiment.pretrainer()
            rng = np.random.default_rng(0)
            for variable in pretrainer.trainable_variables:
                variable.assign(rng.normal(0, 0.3, variable.shape))
            pretrainer.optimizer.iterations.assign(OBJECTIVE_SETTINGS[name].stages)
            output = tmp_path_factory.mktemp(name)
            path = experiment.save_checkpoint(pretrainer, str(output))
            paths[name] = path, pretrainer.core
        return paths[name]

    return make


def expected_score(model, scorer, text):
    """Return the score of a text alone, without padding, in float64."""
    entries = scorer.tokenizer.vocabulary.ids
    ids = np.array([[entries[CLS], *scorer.tokenizer.encode(text), entries[SEP]]])
    zeros, ones = np.zeros_like(ids), np.ones_like(ids)
    inner = np.arange(1, ids.shape[1] - 1)

    def log_softmax(network, ids, positions):
        logits = network(ids, zeros, ones, np.array([positions])).numpy()[0]
        logits = logits.astype(np.float64)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    if isinstance(model, ElectraPair):
        logits = model.discriminator(ids, zeros, ones).numpy()[0, inner]
        if scorer.rule == "negative_energy":
            return -logits.astype(np.float64).sum()
        return -np.logaddexp(0, logits.astype(np.float64)).sum()
    if scorer.rule == "log_probability":
        p = np.exp(
            log_softmax(model.main, ids, inner)[np.arange(len(inner)), ids[0, inner]]
        )
        if model.gate is not None:
            gate = model.gate(model.encoder(ids, zeros, ones)).numpy()[0, inner, 0]
            copied = 1 / (1 + np.exp(-gate.astype(np.float64)))
            p = copied + (1 - copied) * p
        return np.log(p).sum()
    total = 0.0
    for position in inner:
        masked = ids.copy()
        masked[0, position] = entries[MASK]
        total += log_softmax(model, masked, [position])[0, ids[0, position]]
    return total


@pytest.mark.parametrize("name", [*RULE_OF, "electra", "two_stage"])
def test_scores_equal_those_of_single_tokens(checkpoints, name):
    path, model = checkpoints(name)
    scorer = TextScorer.from_preset(path, batch_size=3)
    assert scorer.rule == RULE_OF.get(name, "log_original")
    for text, (score, tokens) in zip(TEXTS, scorer.score(TEXTS), strict=True):
        assert score == pytest.approx(expected_score(model, scorer, text), rel=1e-4)
        assert tokens == len(scorer.tokenizer.encode(text))
    if name == "mlm":  # its masked copies of a text are in several batches
        (alone,) = TextScorer.from_preset(path, 1).score([text])
        assert alone.score == pytest.approx(score, rel=1e-5)


def test_a_generator_of_another_library_has_pseudo_log_likelihoods(
    checkpoints, tmp_path, here
):
    path, model = checkpoints("electra")
    convert = f"--from={path}", f"--to={tmp_path / 'hf'}", "--part=generator"
    assert here("convert", *convert, "--format=huggingface").returncode == 0
    scorer = TextScorer.from_preset(tmp_path / "hf")
    assert scorer.rule == "pseudo_log_likelihood"
    (score,) = scorer.score(TEXTS[:1])
    expected = expected_score(model.generator, scorer, TEXTS[0])
    assert score.score == pytest.approx(expected, rel=1e-4)


@pytest.fixture
def score(checkpoints, here):
    """Return a function that runs the command with a model of `electra`."""

    def run(*flags, text):
        path, _ = checkpoints("electra")
        return here("score", f"--checkpoint={path}", *flags, input=text)

    return run


def test_the_command_prints_rule_and_scores(checkpoints, score, tmp_path):
    result = score(text="\n".join(TEXTS))
    assert result.returncode == 0, result.stderr
    assert "rule: originality" in result.stderr
    assert "not a likelihood" in result.stderr
    expected = TextScorer.from_preset(checkpoints("electra")[0]).score(TEXTS)
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [text for _, text in lines] == TEXTS
    numbers = [float(number) for number, _ in lines]
    assert numbers == pytest.approx([s.score for s in expected], abs=1e-3)
    source, output = tmp_path / "in.txt.xz", tmp_path / "out.jsonl"
    source.write_bytes(lzma.compress("\n".join(TEXTS).encode()))
    flags = f"--input={source}", f"--output={output}", "--format=jsonl"
    assert score(*flags, text="").returncode == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["tokens"] for row in rows] == [s.tokens for s in expected]
    table = tmp_path / "in.csv"
    table.write_text("".join(f'"{row}"\n' for row in ["text", *TEXTS]))
    assert score(f"--input={table}", text="").stdout == result.stdout


def test_later_lines_of_a_text_may_look_like_json(score):
    lines = ["fine", '{"text": "a"}', '{"id": 3}', '{"a', '["a"]']
    result = score(text="\n".join(lines))
    assert [one.split("\t")[1] for one in result.stdout.splitlines()] == lines


@pytest.mark.parametrize(
    ("flags", "text", "words"),
    [
        ([], "fine\n\n", "standard input:2 must have 1 to 30 tokens, not 0"),
        ([], "word " * 99, r"must have 1 to 30 tokens"),
        ([], '["a", "b"]', "JSON"),
        ([], '{"txt": "a"}', "must have the column 'text', and has 'txt'"),
        ([], "[\n", "JSON"),
        (["--input=/nowhere"], "", "does not exist"),
        ([], "-DOCSTART- O\n", "not words with tags"),
    ],
)
def test_bad_input_is_an_error(score, flags, text, words):
    assert words in failure(score(*flags, text=text))


def test_the_first_of_two_stages_cannot_score(folder, tmp_path):
    sets = ["objective.name=two_stage", "model.sharing=gdes", "model.generator_width=1"]
    sets += ["model.generator_heads=2", "training.steps=20"]
    experiment = resolve(folder, *sets)
    pretrainer = experiment.pretrainer()
    pretrainer.optimizer.iterations.assign(10)  # the last step of the first
    path = experiment.save_checkpoint(pretrainer, str(tmp_path))
    with pytest.raises(InputError, match=r"step 10\b"):
        TextScorer.from_preset(path)
