"""Public names, their examples, and `from_preset` of each kind of source."""

import inspect
import pickle
import pkgutil
import re
import shutil
import textwrap

import keras
import numpy as np
import pytest

import electra_tf
from electra_tf import sources
from electra_tf.tasks.defaults import complete_settings
from tests import tiny
from tests.conftest import GOLDEN, ROOT, RUN, python

SAVED = GOLDEN / "saved"
VOCABULARY = str(GOLDEN / "vocab.txt")
TASKS = {
    "classifier": "TextClassifier",
    "regressor": "TextRegressor",
    "tagger": "TokenClassifier",
    "answerer": "QuestionAnswerer",
}
NAMES = [name for name in electra_tf.__all__ if name != "__version__"]


def test_names_are_imported_without_what_they_do_not_need():
    program = (
        "import sys, electra_tf;"
        "assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules);"
        "assert 'TextClassifier' in dir(electra_tf);"
        "from electra_tf import InputError, PretrainingConfig, Tokenizer;"
        "from electra_tf import FinetuningConfig, Vocabulary, load_config;"
        "sys.exit('tensorflow' in sys.modules)"
    )
    result = python("-c", program)
    assert result.returncode == 0, result.stderr


def test_access_to_one_class_registers_all_and_compiling_logs_nothing():
    program = (
        "from electra_tf import Encoder; import keras;"
        "from keras.saving import get_registered_object as get;"
        "names = 'TextClassifier TextRegressor TokenClassifier QuestionAnswerer'"
        "' Encoder Electra MaskedLanguageModel Pretrainer Optimizer'"
        "' WarmupPolynomialDecay';"
        "missing = [n for n in names.split() if get(f'electra_tf>{n}') is None];"
        "assert not missing, missing;"
        f"keras.saving.load_model({str(SAVED / 'tagger/model.keras')!r});"
        "from electra_tf.kernels.fused_layer_ops import FusedLayerOps, xla_compiled;"
        "FusedLayerOps(None, on_cpu=True);"
        "print(xla_compiled(lambda: 1.0)().numpy())"
    )
    result = python("-c", program)
    assert (result.returncode, result.stdout) == (0, "1.0\n"), result.stderr
    assert "Compiled cluster" not in result.stderr


def test_every_public_name_exists_also_for_type_checkers():
    assert set(electra_tf.__all__) <= set(dir(electra_tf))
    for_type_checkers = inspect.getsource(electra_tf).split("__version__")[0]
    for name in NAMES:
        module = re.escape(getattr(electra_tf, name).__module__)
        assert re.search(rf"from {module} import .*\b{name}\b", for_type_checkers), name
    modules = {module.name for module in pkgutil.iter_modules(electra_tf.__path__)}
    assert not modules & set(electra_tf.__all__)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(AttributeError, match=r"'Elektra'. Did you mean 'Electra'\?"):
        _ = electra_tf.Elektra
    with pytest.raises(AttributeError, match=r"'quux'$"):
        _ = electra_tf.quux


def test_parts_of_public_models_take_texts_and_are_pickled():
    model = electra_tf.load_model(SAVED / "classifier")
    assert type(model.encoder) is electra_tf.Encoder
    assert type(model.tokenizer) is electra_tf.Tokenizer
    vectors = model.encoder.embed(["a fine film"])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.encoder.embed(["a fine film"]), vectors)
    electra = electra_tf.Electra.from_preset(
        f"{DISCRIMINATOR},{GOLDEN / 'interop' / 'huggingface_generator'}"
    )
    assert type(electra.generator) is electra_tf.MaskedLanguageModel
    assert electra.encoder.embed(["a"]).shape == (1, electra.encoder.shape.width)
    assert type(electra.encoder.tokenizer) is electra_tf.Tokenizer


@pytest.fixture(scope="module")
def workspace(pretrained, folder, tmp_path_factory):
    """Return a folder with `run`, `records` and `model.keras` for the examples."""
    workspace = tmp_path_factory.mktemp("examples")
    (workspace / "run").symlink_to(pretrained)
    (workspace / "records").symlink_to(folder)
    shutil.copy(SAVED / "classifier" / "model.keras", workspace)
    return workspace


@pytest.mark.tools
@pytest.mark.parametrize("name", NAMES)
def test_docstring_examples_run(name, workspace, monkeypatch, tmp_path):
    for path in workspace.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "model.keras").unlink()
    shutil.copy(workspace / "model.keras", tmp_path)
    docstring = inspect.getdoc(getattr(electra_tf, name))
    _, heading, example = docstring.partition("\nExample:\n")
    assert heading, f"{name} has no example"
    assert name in example
    monkeypatch.chdir(tmp_path)
    exec(compile(textwrap.dedent(example), name, "exec"), {})


@pytest.mark.parametrize("kind", TASKS)
def test_from_preset_and_load_model_read_a_saved_model(kind):
    cls = getattr(electra_tf, TASKS[kind])
    for source in (SAVED / kind, str(SAVED / kind / "model.keras")):
        model = cls.from_preset(source, name="mine", trainable=False)
        assert type(model) is cls
        assert model.name == "mine"
        assert not model.trainable_variables
    other = electra_tf.load_model(SAVED / kind)
    assert type(other) is cls
    assert not other.compiled
    for one, another in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), another.numpy())


@pytest.mark.parametrize(
    ("kind", "arguments", "value"),
    [
        ("classifier", {"num_classes": 7}, "labels="),
        ("classifier", {"settings": {"training.epochs": 5}}, "'training.epochs': 5"),
        ("classifier", {"max_length": 8}, "max_length=8"),
        ("classifier", {"seed": 0}, "seed=0"),
        ("classifier", {"pairs": True}, "pairs=True"),
        ("classifier", {"dtype": "mixed_bfloat16"}, "dtype='mixed_bfloat16'"),
        ("classifier", {"vocabulary": VOCABULARY}, "vocab.txt"),
        ("regressor", {"low": -3.0}, "low=-3.0"),
        ("tagger", {"tags": ["X"]}, "tags="),
        ("answerer", {"null_threshold": 0.5}, "null_threshold=0.5"),
    ],
)
def test_conflicting_arguments_for_a_saved_model_are_errors(kind, arguments, value):
    cls = getattr(electra_tf, TASKS[kind])
    with pytest.raises(electra_tf.InputError, match=value):
        cls.from_preset(SAVED / kind, **arguments)


DISCRIMINATOR = GOLDEN / "interop" / "huggingface_discriminator"


def test_settings_of_from_preset():
    def settings(*args, **kwargs):
        cls = electra_tf.TextClassifier
        return cls.from_preset(DISCRIMINATOR, 2, *args, **kwargs).settings

    short = {"data.max_length": 16}
    load, name = electra_tf.load_config, "finetune_small"
    start = sources.open_source(DISCRIMINATOR).encoder
    chosen, _ = complete_settings(short, start, electra_tf.TextClassifier)
    assert settings(settings=short) == chosen
    optimizer = settings(settings=name, max_length=16).optimizer
    assert optimizer == load(name, root=electra_tf.FinetuningConfig).optimizer
    assert settings(settings={"data.max_length": 99}, max_length=8).data.max_length == 8
    # Files of another library have weights, but no settings of training.
    path = GOLDEN / "interop" / "huggingface_classifier"
    theirs, changed = (
        electra_tf.TextClassifier.from_preset(path, **options)
        for options in ({}, {"max_length": 8, "settings": {"training.epochs": 7}})
    )
    assert theirs.settings.data.max_length > 8
    chosen = changed.settings
    assert (chosen.data.max_length, chosen.training.epochs) == (8, 7)
    assert chosen.model == theirs.settings.model
    for one, other in zip(theirs.weights, changed.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "arguments", "known"),
    [
        ("TextClassifier", "num_labels", "num_classes, .*pairs"),
        ("TextClassifier", "c, b, a", "num_classes, .*pairs"),
        ("TokenClassifier", "num_labels", "tags"),
        ("QuestionAnswerer", "learning_rate", "settings, .*null_thr.*; settings go"),
    ],
)
def test_unknown_arguments_of_from_preset_are_named(name, arguments, known):
    given = arguments.split(", ")
    words = rf"{name}.* no argument {', '.join(sorted(given))}; .*{known}"
    with pytest.raises(TypeError, match=words):
        getattr(electra_tf, name).from_preset("anything", **dict.fromkeys(given, 1))


def test_an_encoder_of_a_preset_has_its_tokenizer(tmp_path):
    model = electra_tf.load_model(SAVED / "classifier")
    encoder = electra_tf.Encoder.from_preset(SAVED / "classifier")
    for one, other in zip(encoder.weights, model.encoder.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for source in (SAVED / "classifier", DISCRIMINATOR):
        encoder = electra_tf.Encoder.from_preset(source)
        tokenizer = electra_tf.Tokenizer.from_preset(source)
        assert encoder.tokenizer.identity() == tokenizer.identity()
        ids = encoder.tokenizer(["a fine film", "dull"])
        assert encoder(**ids).shape == (*ids["token_ids"].shape, encoder.shape.width)
        assert "tokenizer" not in encoder.get_config()
    assert model.encoder.tokenizer is model.tokenizer
    inputs = tiny.symbolic_inputs()
    keras.Model(inputs, encoder(**inputs)).save(tmp_path / "model.keras")
    again = electra_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(ids), encoder(**ids))
    vocabulary = electra_tf.Tokenizer.from_preset(VOCABULARY).vocabulary
    assert vocabulary == electra_tf.Vocabulary.read(VOCABULARY)


def test_a_config_name_gives_random_weights_that_depend_on_the_seed():
    def encoder(seed):
        return electra_tf.Encoder.from_preset("tiny", VOCABULARY, seed=seed)

    one, same, other = (encoder(seed).get_weights() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one[0], same[0])
    assert not np.array_equal(one[0], other[0])
    path = ROOT / "configs" / "tiny.yaml"
    tagger = electra_tf.TokenClassifier.from_preset(
        path, labels=["O", "S-X"], vocabulary=VOCABULARY
    )
    assert tagger.tags == ("O", "S-X")
    with pytest.raises(electra_tf.InputError, match=r"'tiny'.*vocabulary=PATH"):
        electra_tf.Encoder.from_preset("tiny")


def test_name_dtype_trainable_and_seed_are_saved(tmp_path):
    model = electra_tf.TextClassifier.from_preset(
        RUN, 2, name="mine", dtype="mixed_bfloat16", trainable=False, seed=3
    )
    assert model.encoder.compute_dtype == "bfloat16"
    model.save(tmp_path / "model.keras")
    for load in (electra_tf.load_model, keras.saving.load_model):
        again = load(tmp_path / "model.keras")
        assert (again.name, again.trainable, int(again.seed)) == ("mine", False, 3)
        assert again.encoder.compute_dtype == "bfloat16"
    with pytest.raises(electra_tf.InputError, match="'float16'"):
        electra_tf.TextClassifier.from_preset(RUN, 2, dtype="float16")


@pytest.fixture
def small():
    sets = ["model.depth=1", "model.width=16", "model.heads=2", "model.embedding=8"]
    sets += ["records.max_length=32", "input.batch_size=8", "model.max_positions=32"]
    return electra_tf.load_config("tiny", sets)


@pytest.mark.parametrize(
    ("create", "words"),
    [
        (
            lambda c: electra_tf.Pretrainer.from_vocabulary(
                electra_tf.FinetuningConfig(), electra_tf.Vocabulary.read(VOCABULARY)
            ),
            "PretrainingConfig.*FinetuningConfig",
        ),
        (lambda c: electra_tf.Electra(c), "ModelConfig, not Pretr.*config.model"),
        (lambda c: electra_tf.Encoder("tiny"), r"EncoderConfig.*'tiny'.*model.encoder"),
        (lambda c: electra_tf.MaskedLanguageModel("tiny"), "Encoder.from_preset"),
        (
            lambda c: electra_tf.Pretrainer.from_vocabulary(
                electra_tf.load_config("tiny", ["model.vocabulary_size=77"]),
                electra_tf.Vocabulary.read(VOCABULARY),
            ),
            "77.*1000",
        ),
        (
            lambda c: electra_tf.export_saved_model(
                electra_tf.Encoder.from_preset(DISCRIMINATOR), "served"
            ),
            "Encoder",
        ),
        (lambda c: electra_tf.create_optimizer(c, 10), "config.optimizer"),
        (lambda c: electra_tf.Tokenizer(VOCABULARY), "Tokenizer.read"),
        (lambda c: electra_tf.load_config(c), "PretrainingConfig"),
        (
            lambda c: electra_tf.TextClassifier.from_preset(
                SAVED / "regressor", num_classes=2
            ),
            "a TextRegressor",
        ),
        (
            lambda c: electra_tf.TextClassifier("run", num_classes=2),
            r"call TextClassifier.from_preset\('run', ...\)",
        ),
    ],
)
def test_arguments_that_are_errors(create, words, small):
    with pytest.raises(electra_tf.InputError, match=f"(?s){words}"):
        create(small)


def test_an_encoder_refuses_more_positions_than_it_has():
    encoder = electra_tf.Encoder.from_preset(DISCRIMINATOR)
    long = "a " * 40
    with pytest.raises(electra_tf.InputError, match=r"42 positions.*max_length=16"):
        encoder(encoder.tokenizer([long]))
    ids = encoder.tokenizer([long], max_length=16)
    assert encoder(ids).shape == (1, 16, encoder.shape.width)


def test_a_pretrainer_is_saved_as_a_layer(small, tmp_path):
    vocabulary = electra_tf.Vocabulary.read(VOCABULARY)
    pretrainer = electra_tf.Pretrainer.from_vocabulary(small, vocabulary)
    assert pretrainer.config.model.vocabulary_size == len(vocabulary)
    inputs = tiny.symbolic_inputs()
    model = keras.Model(inputs, pretrainer(inputs))
    model.save(tmp_path / "model.keras")
    again = electra_tf.load_model(tmp_path / "model.keras")
    ids = {name: np.ones([2, 8], np.int32) for name in inputs}
    np.testing.assert_array_equal(again(ids), model(ids))
    assert again.get_layer("pretrainer").config == pretrainer.config
