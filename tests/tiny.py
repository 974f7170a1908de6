"""Tiny configs, vocabularies, batches, records, networks and checkpoints for all tests.

Pre-training: `config`, `objective`, `batch`, `TOKENS`, `SETS` of commands,
`build_records`, `save_checkpoint`. Fine-tuning: `start`, `settings`, `texts`.
Other libraries: `huggingface`.
"""

import functools
import json
import shutil

import keras
import numpy as np
import safetensors.numpy
import tensorflow as tf

from electra_tf import sources
from electra_tf.batch import Batch
from electra_tf.config import loader, objectives
from electra_tf.config.data import RecordsConfig, TokenizationConfig
from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.config.model import EncoderConfig, ModelConfig
from electra_tf.config.pretraining import (
    MaskingConfig,
    PretrainingConfig,
)
from electra_tf.interop.names import Prefixes
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.objectives import OBJECTIVES
from electra_tf.runs.experiment import Experiment
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks import registry
from electra_tf.tasks.load import load as load_task_model
from electra_tf.tasks.task_data import Reading
from electra_tf.text.builder import build
from electra_tf.text.record_set import resolve_config
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import CONFIG, CheckpointManager
from electra_tf.training.optimizer import create_optimizer
from tests.conftest import GOLDEN

# Arguments `--set` of a small run of the commands; later ones replace earlier ones.
SETS = (
    "records.max_length=32",
    "input.batch_size=8",
    "model.depth=1",
    "model.width=32",
    "model.embedding=16",
    "model.heads=2",
    "model.generator_width=0.5",
    "model.max_positions=32",
)

# --- Pre-training on random ids -------------------------------------------------------

PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = 50
LENGTH = 16
# Every third entry is a continuation piece.
TOKENS = SpecialTokens(
    cls=CLS,
    sep=SEP,
    mask=MASK,
    vocabulary_size=VOCABULARY,
    is_continuation_V=(np.arange(VOCABULARY) > MASK) & (np.arange(VOCABULARY) % 3 == 0),
)


def batch(lengths, length=LENGTH, seed=0):
    """Return a row for each number of real tokens: [CLS] A [SEP] B [SEP], padding.

    Rows with fewer than four tokens have only special tokens; 0 is an empty row.
    """
    random = np.random.default_rng(seed)
    ids_BL, mask_BL, segments_BL = (
        np.zeros((len(lengths), length), np.int32) for _ in range(3)
    )
    for row, real in enumerate(lengths):
        ids_BL[row, :real] = random.integers(MASK + 1, VOCABULARY, real)
        mask_BL[row, :real] = 1
        middle = real // 2
        ids_BL[row, [0, middle, max(real - 1, 0)]] = CLS, SEP, SEP
        ids_BL[row, 0] = CLS
        ids_BL[row] *= mask_BL[row]
        segments_BL[row, middle + 1 : real] = 1
    return Batch(*map(tf.constant, (ids_BL, mask_BL, segments_BL)))


def masked_positions(masked):
    """Return where the masked positions are, bool [B, L], with NumPy loops."""
    used_BL = np.zeros(masked.input_ids_BL.shape, bool)
    used_BM = np.asarray(masked.weights_BM) == 1
    for row, positions in enumerate(np.asarray(masked.positions_BM)):
        used_BL[row, positions[used_BM[row]]] = True
    return used_BL


def log_softmax(logits):
    """Return log-probabilities in float64."""
    logits = np.asarray(logits).astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


ENCODER_INPUTS = ("token_ids", "segment_ids", "padding_mask")


def encoder_inputs(lengths=(12, 12, 12), length=12, seed=0):
    """Return inputs of an encoder: a row of random ids for each number of tokens."""
    random = np.random.default_rng(seed)
    mask_BL = (np.arange(length) < np.array(lengths)[:, None]).astype(np.int32)
    ids_BL = random.integers(1, VOCABULARY, mask_BL.shape).astype(np.int32)
    segments_BL = random.integers(0, 2, mask_BL.shape).astype(np.int32)
    arrays = ids_BL * mask_BL, segments_BL * mask_BL, mask_BL
    return dict(zip(ENCODER_INPUTS, arrays, strict=True))


def symbolic_inputs(prefix=""):
    """Return Keras inputs of an encoder, by name without the prefix."""
    return {
        name: keras.Input((None,), dtype="int32", name=prefix + name)
        for name in ENCODER_INPUTS
    }


def functional_model(encoder):
    """Return a Keras classifier of texts of any length, with the encoder as a layer."""
    inputs = symbolic_inputs()
    logits = keras.layers.Dense(2, dtype="float32")(encoder(**inputs)[:, 0])
    return keras.Model(inputs, logits)


def rng(step=0):
    """Return the random numbers of a step."""
    return make_rng(0, TRAINING, step)


def objective_settings(name="electra", **settings):
    """Return the settings of an objective, which need not have those at defaults."""
    values = {"name": name, **settings}
    objectives.drop_foreign(values)
    return objectives.OBJECTIVE_SETTINGS[name](**values)


def model_of(name):
    """Return the settings of `config` that an objective's networks need."""
    if objectives.OBJECTIVE_SETTINGS[name].stages == 1:
        return {}
    same = {"generator_heads": 2, "generator_embedding": 8}
    return {"sharing": "none", "generator_width": 1.0, **same}


def config(*, masking=None, objective=None, length=LENGTH, **model):
    """Return the config of a small generator and discriminator without dropout."""
    shape = {
        "depth": 1,
        "width": 16,
        "embedding": 8,
        "heads": 2,
        "vocabulary_size": VOCABULARY,
        "max_positions": 32,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "generator_width": 0.5,
    }
    return PretrainingConfig(
        records=RecordsConfig(max_length=length),
        model=ModelConfig(**{**shape, **model}),
        masking=MaskingConfig(**(masking or {})),
        objective=objective_settings(**(objective or {})),
    )


def objective(name="electra", *, masking=None, objective=None, tokens=TOKENS, **model):
    """Return an objective of these small networks, built, that masks 30%."""
    settings = config(
        masking={"rate": 0.3, **(masking or {})},
        objective={"name": name, **(objective or {})},
        **model,
    )
    result = OBJECTIVES[name](settings, tokens)
    result.model.build()
    return result


def losses_and_text(objective, masked):
    """Return the losses, and the text that the main network's encoder reads."""
    encoder, read = objective.model.encoder, []
    call = encoder.call

    def record(ids_BL, *args, **kwargs):
        read.append(ids_BL.numpy())
        return call(ids_BL, *args, **kwargs)

    encoder.call = record
    losses = objective.losses(masked, objective.context(rng(), False))
    encoder.call = call
    return losses, read[-1]


def in_every_mode(function, *arguments, xla=True):
    """Return the results of `function` in eager mode, in a graph and with `xla`."""
    modes = (
        function,
        tf.function(function, autograph=False),
        tf.function(function, autograph=False, jit_compile=True),
    )
    modes = modes if xla else modes[:2]
    return [tf.nest.map_structure(np.asarray, mode(*arguments)) for mode in modes]


def chi_square(counts, expected):
    """Return Pearson's statistic as a distance from its mean in standard deviations.

    `counts` and `expected` must have the same sum.
    """
    counts, expected = np.ravel(counts), np.ravel(expected)
    np.testing.assert_allclose(counts.sum(), expected.sum(), rtol=1e-4)
    freedom = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    return (statistic - freedom) / (2 * freedom) ** 0.5


# --- Records and checkpoints on disk --------------------------------------------------


@functools.cache
def vocabulary():
    """Return the golden vocabulary of 1,000 entries."""
    return Vocabulary.read(GOLDEN / "vocab.txt")


def moved_padding():
    """Return the golden vocabulary with "the" as entry 0 and [PAD] in its place."""
    tokens, word = list(vocabulary().tokens), vocabulary().ids["the"]
    tokens[0], tokens[word] = tokens[word], tokens[0]
    return Vocabulary(tuple(tokens))


def build_records(corpus_file, output, vocabulary, *, workers=1, **settings):
    """Build records through the library, as the command line does."""
    overwrite = settings.pop("overwrite", False)
    settings = {"order": "original"} | settings  # not measured
    config = PretrainingConfig(records=RecordsConfig(**settings))
    return build(
        [str(corpus_file)],
        vocabulary,
        config,
        str(output),
        workers=workers,
        overwrite=overwrite,
    )


def pretraining_settings(name="electra", sharing="embeddings", vocabulary_size=None):
    """Return a config of the golden vocabulary for `save_checkpoint`."""
    whole = {"generator_width": 1.0, "generator_depth": 1.0}
    model = ModelConfig(
        depth=2,
        width=16,
        heads=2,
        feed_forward=32,
        embedding=8,
        vocabulary_size=vocabulary_size,
        max_positions=32,
        sharing=sharing,
        **(whole if sharing == "all" else {}),
    )
    return PretrainingConfig(
        records=RecordsConfig(max_length=32),
        model=model,
        objective=objective_settings(name),
        tokenization=TokenizationConfig(lower_case=False),
    )


SMALL = (*SETS, "model.depth=2", "training.steps=1000")


def resolve(data, *sets, vocab=None):
    """Return an experiment of a run of `SMALL` and other settings."""
    sets = [*SMALL, *sets]
    make = lambda stored: loader.load_config(overrides=sets, base=stored)  # noqa: E731
    return Experiment(*resolve_config(str(data), vocab, make))


def save_checkpoint(folder, settings, weights, vocabulary=None):
    """Save weights as a checkpoint of pre-training; return its path."""
    if vocabulary is None:
        vocabulary = (GOLDEN / "vocab.txt").read_bytes()
    files = {CONFIG: loader.dump_config(settings).encode(), "vocab.txt": vocabulary}
    checkpoints = CheckpointManager(str(folder / "checkpoints"))
    return checkpoints.save(10, weights, {}, files, {})


# --- Fine-tuning on the golden vocabulary ---------------------------------------------

GOOD, BAD = "the", "of"
FILLERS = ("in", "and", "to", "for", "with", "on")
NO_DROPOUT = {
    "model_dropout": 0.0,
    "model_attention_dropout": 0.0,
    "model_head_dropout": 0.0,
}


@functools.cache
def start(max_positions=64, depth=1, embedding=8):
    """Return an encoder of width 16, without weights."""
    shape = EncoderConfig(
        depth=depth, width=16, embedding=embedding, heads=2, feed_forward=32,
        vocabulary_size=len(vocabulary()), max_positions=max_positions, segments=2,
        dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    tokenizer = WordPieceTokenizer(vocabulary(), TokenizationConfig())
    return PretrainedEncoder(shape, tokenizer, None, "test")


def settings(**changes):
    """Return settings; `training_epochs=2` sets `training.epochs`."""
    overrides = {
        "data.max_length": 48,
        "training.batch_size": 8,
        "training.epochs": 2,
        "optimizer.learning_rate": 1e-2,
        "optimizer.layer_decay": 1.0,
    }
    overrides |= {name.replace("_", ".", 1): value for name, value in changes.items()}
    return loader.load_config(overrides=overrides, root=FinetuningConfig)


def windows(max_length, max_query_length, doc_stride, labels="exact"):
    """Return the settings of the windows of a context."""
    return DataConfig(
        max_length=max_length,
        max_query_length=max_query_length,
        doc_stride=doc_stride,
        window_labels=labels,
    )


def texts(count=40, seed=0, longest=19, shortest=1):
    """Return texts of various lengths, and a label that depends on one of two words."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    rows = []
    for label in labels:
        words = rng.choice(FILLERS, rng.integers(shortest, longest + 1)).tolist()
        words.insert(rng.integers(0, len(words) + 1), (BAD, GOOD)[label])
        rows.append(" ".join(words))
    return rows, labels.tolist()


def weights(model):
    return {v.path: v.numpy() for v in model.trainable_variables}


def slots(model):
    return [variable.numpy() for variable in model.optimizer.variables]


def assert_same_bits(model, other):
    first, second = weights(model), weights(other)
    assert first.keys() == second.keys()
    for path, values in first.items():
        np.testing.assert_array_equal(values, second[path], path)


def distance(one, other):
    assert one.keys() == other.keys()
    return max(float(np.abs(one[path] - other[path]).max()) for path in one)


def compiled(model, steps=10):
    """Compile with the published optimizer, and build it."""
    settings, depth = model.settings.optimizer, model.shape.depth
    model.compile(create_optimizer(settings, steps, depth))
    model.optimizer.build(model.trainable_variables)
    return model


def reset(model, seed=0):
    """Give a model and its optimizer the state of new ones, without compiling."""
    model.set_weights(model.clone_with_seed(start(), seed).get_weights())
    if model.compiled and (optimizer := model.optimizer) is not None:
        new = type(optimizer).from_config(optimizer.get_config())
        new.build(model.trainable_variables)
        for variable, value in zip(optimizer.variables, new.variables, strict=True):
            variable.assign(value)
    return model


def tensors(batch):
    return tf.nest.map_structure(tf.convert_to_tensor, batch)


def huggingface(folder, change=None, source="discriminator", **config):
    """Write a golden Hugging Face model with changed tensors, which are returned.

    `change` is a function of the tensors by name. Keys of its config that are None are
    left out.
    """
    shutil.copytree(GOLDEN / "interop" / f"huggingface_{source}", folder)
    path, config_path = folder / "model.safetensors", folder / "config.json"
    arrays = safetensors.numpy.load_file(path)
    if change is not None:
        arrays = {n: np.ascontiguousarray(a) for n, a in change(arrays).items()}
        safetensors.numpy.save_file(arrays, path)
    stored = json.loads(config_path.read_text()) | config
    stored = {name: value for name, value in stored.items() if value is not None}
    config_path.write_text(json.dumps(stored))
    return arrays


def write_bundle(prefix, tensors):
    """Write a checkpoint in the format of TensorFlow 1."""
    names = list(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tensors[name] for name in names],
    )


def tf1(folder, source, **more):
    """Write the networks of a source, and more tensors, as the released code does."""
    model = networks(source)
    folder.mkdir(parents=True)
    tensors = {"global_step": np.int64(0), **more}
    for network in model.networks:
        prefixes = Prefixes("electra/", "electra/")
        if network is not model.main:
            prefixes = Prefixes.of_generator("electra/", "generator/", model.sharing())
        tensors |= network.to_format("tf1", prefixes)
    write_bundle(folder / "model.ckpt-0", tensors)
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-0"\n')
    (folder / "vocab.txt").write_text(model.tokenizer.vocabulary.text)
    return str(folder / "model.ckpt-0")


def networks(path, vocabulary=None):
    """Read all networks of a model, without the head of a task."""
    return sources.open_source(path, vocabulary).pretrained


def encoder(path):
    """Read the encoder of a pre-trained model."""
    return sources.open_pretrained(path).encoder


def load(path):
    """Load a fine-tuned model."""
    return load_task_model(sources.open_source(path))


def read_task(name, data, settings, notify=print, tokenizer=None):
    """Return the training data of a value of --task."""
    reading = Reading(settings, notify, tokenizer)
    return registry.named(name).training_data(name, data, reading)


def read_items(model, path, columns=None, stored=(), **settings):
    """Return what a model predicts for in a file, as a split."""
    settings = DataConfig(text_columns=tuple(columns or stored), **settings)
    given = ["text_columns"] if columns else []
    reading = Reading(settings, print, model.tokenizer, given)
    return registry.of(model).inputs(model, path, reading)
