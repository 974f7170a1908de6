"""Heads of fine-tuned models between this package and transformers."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import electra_tf
from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop.heads import HeadOptions
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.runs.exporting import load_exportable
from electra_tf.serving.export_options import IDS
from electra_tf.tasks.classifier import TextRegressor
from electra_tf.tasks.data.schemes import learned_scheme
from tests import tiny
from tests.conftest import GOLDEN as ALL_GOLDEN
from tests.conftest import failure
from tests.interop.numpy_forward import assert_same_networks
from tests.interop.test_conversion import MASK, REAL, SEGMENTS, TOKENS

GOLDEN = ALL_GOLDEN / "interop" / "huggingface_discriminator"
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
INPUTS = dict(zip(IDS, np.int32([TOKENS, SEGMENTS, MASK]), strict=True))
KEYS = ("id2label", "label2id")


def make_folder(folder, outputs, name, **config):
    """Write the golden encoder with a head of `outputs` units, as transformers does."""

    def change(tensors):
        encoder = {n: a for n, a in tensors.items() if n.startswith("electra.")}
        rng = np.random.default_rng(1)
        width = encoder["electra.encoder.layer.0.output.dense.bias"].size
        weight = rng.normal(size=(outputs, width)).astype(np.float32)
        bias = rng.normal(size=outputs).astype(np.float32)
        return {**encoder, f"{name}.weight": weight, f"{name}.bias": bias}

    return tiny.huggingface(folder, change, **config)


def expected_logits(tensors, name):
    """Return what the head computes on the hidden states of transformers."""
    with np.load(GOLDEN / "outputs.npz") as golden:
        hidden_BLD = golden["hidden"][-1]
    return hidden_BLD @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def names(labels):
    return {
        "id2label": {str(n): label for n, label in enumerate(labels)},
        "label2id": {label: n for n, label in enumerate(labels)},
    }


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("heads") / "tagger", names(TAGS)
    # Labels have the order of their numbers, not that of the file.
    config["id2label"] = dict(reversed(config["id2label"].items()))
    config["architectures"] = ["ElectraForTokenClassification"]
    make_folder(folder, 5, "classifier", **config)
    return folder


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads") / "answerer"
    config = {"architectures": ["ElectraForQuestionAnswering"]}
    make_folder(folder, 2, "qa_outputs", **config)
    return folder


def assert_same_folder(before, after, keys):
    """Assert equal tensors, dtypes and config values of two Hugging Face folders."""
    one, other = (
        safetensors.numpy.load_file(f / "model.safetensors") for f in (before, after)
    )
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        np.testing.assert_array_equal(array, other[name])
    old, new = (json.loads((f / "config.json").read_text()) for f in (before, after))
    for key in ("architectures", *keys):
        assert old[key] == new[key]


def round_trip(folder, tmp_path, keys=()):
    """Convert a folder and back, compare both, and return the converted model."""
    report = convert_checkpoint(folder, tmp_path / "ours")
    assert not report.left_out
    assert_same_networks(report)
    model = electra_tf.load_model(tmp_path / "ours")
    same = type(model).from_preset(folder)
    for one, other in zip(
        *map(tf.nest.flatten, (model(INPUTS), same(INPUTS))), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    convert_checkpoint(tmp_path / "ours", tmp_path / "back", "huggingface")
    assert_same_folder(folder, tmp_path / "back", keys)
    return model


def test_token_head_computes_what_it_computed_in_transformers(tagger, tmp_path):
    model = round_trip(tagger, tmp_path, KEYS)
    assert model.tags == TAGS
    tensors = safetensors.numpy.load_file(tagger / "model.safetensors")
    expected = expected_logits(tensors, "classifier")
    np.testing.assert_allclose(model(INPUTS)[REAL], expected[REAL], atol=2e-5)
    card = (tmp_path / "back" / "README.md").read_text()
    assert card.count("from_preset") == 1


def test_span_head_computes_what_it_computed_in_transformers(answerer, tmp_path):
    model = round_trip(answerer, tmp_path)
    tensors = safetensors.numpy.load_file(answerer / "model.safetensors")
    expected = expected_logits(tensors, "qa_outputs")
    # Other positions cannot have an answer here.
    inside = (INPUTS["segment_ids"] > 0) & REAL
    outputs = model(INPUTS)
    for number, kind in enumerate(("start", "end")):
        logits_BL = outputs[f"{kind}_logits_BL"]
        assert np.abs(logits_BL - expected[..., number])[inside].max() < 2e-5
    assert model.null_threshold is None  # the default of transformers' pipeline


@pytest.fixture
def classifier(tmp_path):
    """Return a classifier, one class for each text, and its logits."""
    folder = tmp_path / "theirs"
    tiny.huggingface(folder, source="classifier", problem_type=None)
    with np.load(folder / "outputs.npz") as outputs:
        return folder, outputs["logits"]


def test_text_heads_compute_what_they_computed_in_transformers(classifier, tmp_path):
    folder, expected = classifier
    model = round_trip(folder, tmp_path, (*KEYS, "model_type"))
    assert model.labels == ("neg", "none", "pos")
    np.testing.assert_allclose(model(INPUTS), expected, atol=1e-5)
    chosen = electra_tf.TextClassifier.from_preset(folder).settings.model
    assert (chosen.pooler, chosen.head_dropout) == ("gelu", 0.25)
    settings = tiny.settings(data_max_length=16)
    new = electra_tf.TextClassifier.from_preset(
        folder, labels=["a", "b"], settings=settings
    )
    assert (new.settings.model.pooler, new.head.pooler) == ("none", None)
    assert new(INPUTS).shape == (2, 2)


def test_a_head_of_one_output_is_a_regressor(classifier, tmp_path):
    folder, logits = classifier
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    output = [name for name in tensors if len(tensors[name]) == 3]
    assert len(output) == 2
    tensors |= {name: np.ascontiguousarray(tensors[name][1:2]) for name in output}
    safetensors.numpy.save_file(tensors, path)
    config = json.loads((folder / "config.json").read_text()) | names(["LABEL_0"])
    (folder / "config.json").write_text(json.dumps(config))
    model = electra_tf.TextRegressor.from_preset(folder)
    np.testing.assert_allclose(model(INPUTS), logits[:, 1:2], atol=1e-5)
    model.compile(run_eagerly=True)
    with pytest.warns(UserWarning, match="low=0, high=1"):
        model.fit(["a b", "c d"] * 4, [0.5, 1.5] * 4, epochs=2)
    model.save(tmp_path / "model.keras")
    convert_checkpoint(tmp_path / "model.keras", tmp_path / "back", "huggingface")
    back = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (back["problem_type"], back["id2label"]) == ("regression", {"0": "LABEL_0"})
    same = electra_tf.TextRegressor.from_preset(tmp_path / "back")
    np.testing.assert_array_equal(same(INPUTS), model(INPUTS))


def assert_no_head(folder, tmp_path):
    assert sources.open_source(folder).head is None
    with pytest.raises(InputError, match="neither classes"):
        convert_checkpoint(folder, tmp_path / "ours")
    with pytest.raises(InputError, match=r"'classifier\..*neither classes"):
        tiny.load(folder)


def test_a_score_for_each_of_several_classes_is_no_classifier(tmp_path):
    folder = tmp_path / "theirs"
    tiny.huggingface(folder, source="classifier", problem_type="regression")
    assert_no_head(folder, tmp_path)


@pytest.mark.parametrize("end", ["SequenceClassification", "NextSentencePrediction"])
def test_the_head_of_a_bert_for_texts_is_not_read(end, tmp_path):
    folder = tmp_path / "theirs"

    def change(tensors):
        named = {name.replace("electra.", "bert."): a for name, a in tensors.items()}
        named = {n: a for n, a in named.items() if not n.startswith("classifier.")}
        head = {"classifier.weight": np.zeros((3, 12)), "classifier.bias": np.zeros(3)}
        pooler = {"bert.pooler.dense.weight": np.zeros((12, 12), np.float32)}
        return {**named, **pooler, **{n: np.float32(a) for n, a in head.items()}}

    more = {"model_type": "bert", "architectures": [f"BertFor{end}"]}
    tiny.huggingface(folder, change, "classifier", problem_type=None, **more)
    assert_no_head(folder, tmp_path)
    report = convert_checkpoint(folder, tmp_path / "ours", drop_head=True)
    assert_same_networks(report)


@pytest.mark.parametrize(
    "config",
    [
        {"classifier_dropout": 1.5},
        {"classifier_dropout": [0.1]},
        {"id2label": ["a", "b", "c"]},
        {"id2label": {"0": "a"}},
        {"id2label": dict.fromkeys("012", "a")},
        {"id2label": {str(n): n for n in range(3)}},
        {"electra_tf": {"settings": 3}},
        {"electra_tf": {"settings": {"data": {"max_length": "x"}}}},
    ],
)
def test_a_config_of_no_head_is_refused(config, tmp_path):
    folder, more = tmp_path / "theirs", {"problem_type": None, **config}
    tiny.huggingface(folder, source="classifier", **more)
    words = {"classifier_dropout": "head_dropout", "id2label": "id2label|distinct"}
    with pytest.raises(InputError, match=words.get(*config, str(folder))):
        electra_tf.TextClassifier.from_preset(folder)


def test_settings_of_another_head_are_refused(classifier):
    from_preset = electra_tf.TextClassifier.from_preset
    with pytest.raises(InputError, match=r"^model\.pooler must be .*not 'none'"):
        from_preset(classifier[0], settings={"model.pooler": "none"})
    model = from_preset(classifier[0], settings={"optimizer.learning_rate": 1e-3})
    assert model.settings.model.pooler != "none"


def test_pairs_are_what_the_user_says(classifier, tmp_path, here):
    model, pair = electra_tf.TextClassifier.from_preset(classifier[0]), ("a b", "c")
    expected = [model.labels[n] for n in np.argmax(model.predict([pair, pair]), -1)]
    (tmp_path / "in.txt").write_text('a b\tc\n{"text": "a b", "text_b": "c"}\n')
    flags = f"--model={classifier[0]}", f"--input={tmp_path / 'in.txt'}"
    assert here("predict", *flags).stdout.split() == expected
    (tmp_path / "in.csv").write_text("x,y\na b,c\n")
    flags = f"--model={classifier[0]}", f"--input={tmp_path / 'in.csv'}"
    assert here("predict", *flags, "--text_columns=x,y").stdout.split() == expected[:1]
    flags = f"--from={classifier[0]}", f"--to={tmp_path / 'ours'}", "--pairs"
    result = here("convert", *flags)
    assert result.returncode == 0, result.stderr
    assert electra_tf.load_model(tmp_path / "ours").pairs is True


def models():
    """Return a model of each class, with initial weights of a seed and own settings."""
    independent = {"model_joint_prediction": False, "model_answerable": False}
    return {
        "classifier": electra_tf.TextClassifier(
            tiny.start(), ["no", "yes"], tiny.settings(), 3, pairs=True
        ),
        "regressor": TextRegressor(tiny.start(), 1.0, 7.0, tiny.settings(), 3),
        "gelu_regressor": TextRegressor(
            tiny.start(), 1.0, 7.0, tiny.settings(model_pooler="gelu"), 3
        ),
        "mean": electra_tf.TextClassifier(
            tiny.start(), ["no", "yes"], tiny.settings(model_pooling="mean"), 3
        ),
        "tagger": electra_tf.TokenClassifier(
            tiny.start(), ["B-X", "E-X", "I-X", "O", "S-X"], tiny.settings(), 3, "IOB2"
        ),
        "spans": electra_tf.QuestionAnswerer(tiny.start(), 0.5, tiny.settings(), 3),
        "independent": electra_tf.QuestionAnswerer(
            tiny.start(), None, tiny.settings(**independent), 3
        ),
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return files of the models by name."""
    folder = tmp_path_factory.mktemp("finished")
    for name, model in models().items():
        model.save(folder / f"{name}.keras")
    return folder


@pytest.mark.parametrize("name", ["tagger", "independent", "gelu_regressor"])
def test_models_of_this_package_return_with_weights_and_settings(
    name, finished, tmp_path
):
    file = finished / f"{name}.keras"
    report = convert_checkpoint(file, tmp_path / "theirs", "huggingface")
    assert_same_networks(report)
    convert_checkpoint(tmp_path / "theirs", tmp_path / "back")
    one, other = (electra_tf.load_model(p) for p in (file, tmp_path / "back"))
    assert type(one) is type(other)
    for before, after in zip(one.weights, other.weights, strict=True):
        if before.name != "seed":
            np.testing.assert_array_equal(before, after)
    old, new = one.get_config(), other.get_config()
    # The heads of files and of other libraries have no seed of initial values.
    assert {k: v for k, v in old.items() if k != "shape"} == {
        k: v for k, v in new.items() if k != "shape"
    }
    if "regressor" in name:
        assert "score is 1 + 6 times" in str(report)


@pytest.mark.parametrize(
    ("name", "format", "lacking", "remedy"),
    [
        ("classifier", "huggingface", "lacks pooler=none", "model.pooler=gelu"),
        (
            *("mean", "huggingface", "lacks pooling=mean, pooler=none"),
            "model.pooling=cls --set=model.pooler=gelu",
        ),
        (
            "spans",
            "huggingface",
            "joint_prediction=",
            "model.joint_prediction=false",
        ),
        ("regressor", "keras_hub", "no head for a regressor", "--drop_head"),
    ],
)
def test_heads_that_a_library_lacks_are_refused_unless_dropped(
    name, format, lacking, remedy, finished, tmp_path
):
    file, target = finished / f"{name}.keras", tmp_path / "out"
    with pytest.raises(InputError, match="drop_head") as error:
        convert_checkpoint(file, target, format)
    assert not target.exists()
    assert remedy in str(error.value)
    assert lacking in str(error.value)
    for other in ("model.pooler", "model.joint_prediction"):
        assert (other in str(error.value)) == (other in remedy)
    if format == "huggingface":
        report = convert_checkpoint(file, target, format, drop_head=True)
        assert any("head" in name for name in report.left_out)
        assert_same_networks(report)
        assert report.model.main.role == "encoder"


def test_the_encoder_of_a_tf1_checkpoint_with_a_task_is_converted(tmp_path, here):
    kernel = {"task_specific/cola/dense/kernel": np.zeros((36, 2), np.float32)}
    tiny.tf1(tmp_path / "tf1", GOLDEN, **kernel)
    flags = f"--from={tmp_path / 'tf1'}", f"--to={tmp_path / 'ours'}"
    assert "--drop_head" in failure(here("convert", *flags))
    result = here("convert", *flags, "--drop_head")
    assert result.returncode == 0, result.stderr
    assert "left out: task_specific/cola/dense/kernel" in result.stdout


def test_labels_rename_the_outputs(tagger, tmp_path):
    tags = ("O", "B-A", "I-A", "B-B", "I-B")
    convert_checkpoint(tagger, tmp_path / "ours", head=HeadOptions(labels=tags))
    assert electra_tf.load_model(tmp_path / "ours").tags == tags
    with pytest.raises(InputError, match="5 logits"):
        convert_checkpoint(tagger, tmp_path / "no", head=HeadOptions(labels=tags[:2]))


def test_export_of_a_folder_with_a_head_is_a_tagger(tagger):
    assert load_exportable(str(tagger)).kind == "token_classifier"
    assert load_exportable(str(tagger), "encoder").kind == "encoder"


def test_scheme_of_learned_tags():
    tags = {"IOB2": " ".join(TAGS), "IOB1": "O I-X", "IOE2": "O I-X E-X"}
    tags["BIOES"] = "O B-X I-X E-X S-X"
    schemes = [learned_scheme(tuple(names.split())) for names in tags.values()]
    assert schemes == [*tags]


def test_a_converted_tagger_is_trained_further_in_its_own_scheme(tagger):
    model = electra_tf.TokenClassifier.from_preset(tagger)
    sentences = [["the", "of"], ["in", "to"]] * 4
    model.fit(sentences, [["B-PER", "I-PER"], ["B-LOC", "O"]] * 4, epochs=2)
    with pytest.raises(InputError, match="B-ORG"):
        model.fit(sentences, [["B-ORG", "I-ORG"], ["O", "O"]] * 4, epochs=2)
