"""Read and write this package's own checkpoints as networks."""

import dataclasses
import os
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from electra_tf.config import loader
from electra_tf.config.data import RecordsConfig, TokenizationConfig
from electra_tf.config.model import EncoderConfig, ModelConfig
from electra_tf.config.objectives import OBJECTIVE_SETTINGS
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.interop.model import Network, PretrainedModel, Role
from electra_tf.interop.names import Prefixes
from electra_tf.model.transformer import DELTA
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import VOCABULARY
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import (
    CONFIG,
    SLOTS,
    Checkpoint,
    CheckpointManager,
    is_checkpoint,
    open_checkpoint,
)

_DISCRIMINATOR, _GENERATOR = "electra/discriminator/", "electra/generator/"
_BERT, _WORDS = "bert/", "encoder/embeddings/word_embeddings"
# Prefixes of a run's main network and generator; of a single network no generator.
_GENERATORS = {
    _DISCRIMINATOR: _GENERATOR,
    "masked_lm_pair/main/": "masked_lm_pair/generator/",
    _BERT: None,
}
_HEADS: dict[Role, str] = {
    "discriminator": "head/score/kernel",
    "generator": "head/output_bias",
}
# Starts of the names of weights, and why they are not converted.
_NOT_CONVERTED = {
    "masked_lm_pair/generator/": "the generator of the main network's input",
    "electra/cloze/": "other libraries have no generator of two towers; without it the "
    "target's logits, which are energies, are not logits of `replaced`",
    "masked_lm_pair/gate/kernel": "other libraries have no copy gate",
    "electra/baseline/kernel": "it predicts the reward of an adversarial generator",
}

Place = Literal["main", "generator"]  # main: the discriminator or only network

accepts = is_checkpoint


class RunNetwork(NamedTuple):
    """A network of a run, with the prefixes of its weights in the run's paths."""

    role: Role
    shape: EncoderConfig
    prefixes: Prefixes


class TrainedRun(NamedTuple):
    """A run of pretrain, or what a run with another library's weights would have."""

    config: PretrainingConfig
    tokenizer: WordPieceTokenizer
    weights: Mapping[str, np.ndarray]  # by the paths of the run's variables
    step: int
    path: str  # for messages

    def check_discriminator(self) -> None:
        """Raise an error if the discriminator has had no update yet."""
        if self.config.restart and self.step <= self.config.restart:
            raise InputError(
                f"{self.path}, step {self.step:,}: its discriminator is untrained; "
                "name a later checkpoint"
            )


def read_run(checkpoint: Checkpoint) -> TrainedRun:
    """Read a checkpoint with all its weights."""
    config, path = checkpoint.config(), os.path.join(checkpoint.path, VOCABULARY)
    tokenizer = WordPieceTokenizer(Vocabulary.read(path), config.tokenization)
    weights, step = checkpoint.weights(), checkpoint.step
    return TrainedRun(config, tokenizer, weights, step, checkpoint.path)


def find_networks(
    model: ModelConfig, paths: Collection[str]
) -> dict[Place, RunNetwork]:
    """Return the networks of a run, by the paths of its weights."""
    main = next(
        (name for name in _GENERATORS if name + _WORDS in paths), _DISCRIMINATOR
    )
    roles = (role for role, name in _HEADS.items() if main + name in paths)
    own = _GENERATORS[main]
    networks: dict[Place, RunNetwork] = {
        "main": RunNetwork(next(roles, "encoder"), model.encoder, Prefixes.same(main))
    }
    if f"{own}{_HEADS['generator']}" in paths:
        prefixes = Prefixes.of_generator(main, own, model.sharing, own)
        networks["generator"] = RunNetwork("generator", model.generator, prefixes)
    return networks


def read(checkpoint: Checkpoint | str, _vocab: str | None = None) -> PretrainedModel:
    """Read the networks of a checkpoint, opened or by its path."""
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = open_checkpoint(checkpoint, skip=(SLOTS,))
    config, tokenizer, weights, step, _ = read_run(checkpoint)
    model, weights = plain_weights(config, step, weights)
    networks, used = [], set()
    for role, shape, prefixes in find_networks(model, weights).values():
        if any(map(prefixes.head.startswith, _NOT_CONVERTED)):
            continue
        network = Network.read(
            role, shape, weights, "electra_tf", checkpoint.path, prefixes
        )
        networks.append(network)
        used |= network.names_in("electra_tf", prefixes)
    left_out = {}
    for name in sorted(weights.keys() - used):
        start = next((s for s in _NOT_CONVERTED if name.startswith(s)), name)
        label = f"{start}*" if start.endswith("/") else start
        left_out[label] = _NOT_CONVERTED.get(start, "of no such network")
    others = {name: weights[name] for name in weights.keys() - used}
    more = {"step": step, "left_out": left_out, "others": others}
    return PretrainedModel.of_networks(networks, tokenizer, checkpoint.path, **more)


def write(model: PretrainedModel, path: str) -> None:
    """Write a checkpoint that every command of this package takes."""
    run = as_run(model)
    texts = {CONFIG: loader.dump_config(run.config), **run.tokenizer.files(VOCABULARY)}
    files = {name: text.encode() for name, text in texts.items()}
    metadata = {
        "vocabulary": run.tokenizer.vocabulary.sha256,
        "source": {"path": os.path.basename(os.path.normpath(model.path))},
    }
    manager = CheckpointManager(path)
    manager.save(run.step, run.weights, {}, files, metadata)


def as_run(model: PretrainedModel) -> TrainedRun:
    """Return a model's networks with the names, and the settings, of a run."""
    tokenizer, sharing = model.require_tokenizer(), model.sharing()
    weights: dict[str, np.ndarray] = {}
    for network in model.networks:
        if network.role != "generator":
            prefixes = Prefixes.same(_DISCRIMINATOR)
        elif len(model.networks) == 1:
            prefixes = Prefixes.same(_BERT)
        else:
            prefixes = Prefixes.of_generator(
                _DISCRIMINATOR, _GENERATOR, sharing, _GENERATOR
            )
        weights |= network.to_format("electra_tf", prefixes)
    config = pretraining_config(model, sharing)
    return TrainedRun(config, tokenizer, weights, model.step, model.path)


def pretraining_config(model: PretrainedModel, sharing: str) -> PretrainingConfig:
    """Return settings whose model has the shapes of a converted one."""
    main = model.main.shape
    sizes: dict[str, Any] = {**dataclasses.asdict(main), "sharing": sharing}
    if len(model.networks) == 2:
        generator = model.networks[1].shape
        _check_pair(main, generator, model.path)
        sizes |= generator_sizes(main, generator, sharing)
    name = "mlm" if model.main.role == "generator" else "electra"
    settings = model.tokenizer.settings if model.tokenizer else TokenizationConfig()
    return PretrainingConfig(
        model=ModelConfig(**sizes),
        objective=OBJECTIVE_SETTINGS[name](),
        records=RecordsConfig(max_length=min(128, main.max_positions)),
        tokenization=settings,
    )


def _check_pair(main: EncoderConfig, generator: EncoderConfig, path: str) -> None:
    """Reject two networks that no settings describe."""
    one, other = map(dataclasses.asdict, (main, generator))
    alike = ("vocabulary_size", "max_positions", "segments", "layer_norm_epsilon")
    names = [name for name in alike if one[name] != other[name]]
    names += [name for name in ("depth", "width") if one[name] < other[name]]
    if names:
        raise InputError(
            f"{path}: discriminator and generator must be halves of one model, but "
            f"{'; '.join(f'{n} is {one[n]} and {other[n]}' for n in names)}; convert "
            "each alone with --part"
        )


def generator_sizes(
    main: EncoderConfig, generator: EncoderConfig, sharing: str
) -> dict[str, Any]:
    """Return the settings of a generator's shape beside a main network."""
    return {
        "generator_width": generator.width / main.width,
        "generator_depth": generator.depth / main.depth,
        "generator_heads": generator.heads,
        "generator_feed_forward": generator.feed_forward,
        "generator_embedding": generator.embedding if sharing == "none" else None,
    }


def plain_weights(
    config: PretrainingConfig, step: int, weights: Mapping[str, np.ndarray]
) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Return the settings and weights of an equal model that needs no training state.

    With `sharing: gdes`, the difference is added to the generator's tables; the result
    has `sharing: none`. In the first stage of `two_stage`, the discriminator's encoder
    gets the generator's weights, as it will when the second begins.
    """
    model, plain = config.model, dict(weights)
    if config.restart and step < config.restart:
        for name in weights:
            source = name.replace(_DISCRIMINATOR, _GENERATOR)
            if name.startswith(f"{_DISCRIMINATOR}encoder/") and source in weights:
                plain[name] = weights[source]
    for name in [name for name in weights if name.endswith(DELTA)]:
        table = name.removesuffix(DELTA)
        base = weights[table.replace(_DISCRIMINATOR, _GENERATOR)]
        plain[table] = base + plain.pop(name)
    if model.sharing == "gdes":
        width = model.encoder.embedding
        model = dataclasses.replace(model, sharing="none", generator_embedding=width)
    return model, plain


def add_differences(
    arrays: Mapping[str, np.ndarray], variables: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return weights for `sharing: gdes`, the reverse of `plain_weights`."""
    result = dict(arrays)
    for name in variables:
        table = name.removesuffix(DELTA)
        if name.endswith(DELTA) and table in result:
            base = table.replace(_DISCRIMINATOR, _GENERATOR)
            base_table = arrays[base] if base in arrays else np.asarray(variables[base])
            result[name] = result.pop(table) - base_table
    return result
