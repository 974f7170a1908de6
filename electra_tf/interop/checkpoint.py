"""Read and write this package's own checkpoints as networks."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from electra_tf.config import loader
from electra_tf.config.data import RecordsConfig, TokenizationConfig
from electra_tf.config.model import EncoderConfig, ModelConfig
from electra_tf.config.pretraining import ObjectiveConfig, PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.interop.network import Network, Prefixes, Role
from electra_tf.interop.pretrained import PretrainedModel
from electra_tf.interop.run_networks import RunNetworks, plain_weights
from electra_tf.interop.tensor_files import read_safetensors
from electra_tf.text.records import VOCABULARY
from electra_tf.text.tokenizer import WordPieceTokenizer, settings_path
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    CONFIG,
    SLOTS,
    WEIGHTS,
    Checkpoint,
    CheckpointManager,
    is_checkpoint,
    open_checkpoint,
)
from electra_tf.training.metric_logger import EVALUATION, METRICS, TRAIN, read_metrics

_DISCRIMINATOR, _GENERATOR, _BERT = (
    "electra/discriminator/",
    "electra/generator/",
    "bert/",
)
_PAIR = "masked_lm_pair/"
_SLOT = "{slot}/{name}"
_CLOZE, _CORRECTOR = "electra/cloze/", "electra/corrector/"
_NOT_CONVERTED = {
    f"{_PAIR}generator/*": "the generator of the main network's input",
    f"{_CLOZE}*": "other libraries have no generator of two towers; without it the "
    "target's logits, which are energies, are no logits of `replaced`",
    f"{_CORRECTOR}*": "other libraries have no masked-LM head on a discriminator",
    f"{_PAIR}gate/kernel": "other libraries have no copy gate",
    "electra/baseline/kernel": "it predicts the reward of an adversarial generator",
}

accepts = is_checkpoint


class TrainedRun(NamedTuple):
    """A run of pretrain, or what a run with another library's weights would have."""

    config: PretrainingConfig
    tokenizer: WordPieceTokenizer
    weights: Mapping[str, np.ndarray]
    """By the paths of the run's variables."""
    slots: Mapping[str, np.ndarray]
    """Of the optimizer, by slot and path."""
    step: int


def read_run(checkpoint: Checkpoint) -> TrainedRun:
    """Read a checkpoint with all its variables."""
    config, path = checkpoint.config(), os.path.join(checkpoint.path, VOCABULARY)
    tokenizer = WordPieceTokenizer(Vocabulary.read(path), config.tokenization)
    weights, slots = (
        read_safetensors(os.path.join(checkpoint.path, name))
        for name in (WEIGHTS, SLOTS)
    )
    weights = {n: w.astype(np.float32, copy=False) for n, w in weights.items()}
    return TrainedRun(config, tokenizer, weights, slots, checkpoint.step)


def read(checkpoint: Checkpoint) -> PretrainedModel:
    """Read a checkpoint's networks and optimizer slots."""
    config, tokenizer, tensors, slots, _ = read_run(checkpoint)
    shapes, tensors = plain_weights(config, checkpoint.step, tensors)
    details: Mapping[str, Any] = checkpoint.metadata.get("source", {})
    found = [
        Network(role, shape, tensors, prefixes=prefixes, source=checkpoint.path)
        for role, shape, prefixes in _networks(shapes, tensors)
    ]
    networks = [
        one.to_ours(
            config=details.get("configs", {}).get(one.role, {}),
            dtypes=details.get("dtypes", {}).get(one.role, {}),
            slots={n: slots[s] for n, s in one.slot_names(_SLOT) if s in slots},
        )
        for one in found
    ]
    return PretrainedModel.of_networks(
        networks,
        tokenizer,
        checkpoint.path,
        step=checkpoint.step,
        left_out=_left_out(tensors.keys() - set().union(*(n.names for n in found))),
        run=_run(checkpoint, config),
    )


def _left_out(names: Iterable[str]) -> dict[str, str]:
    left_out = {}
    for name in sorted(names):
        parts = f"{_PAIR}generator/", _CLOZE, _CORRECTOR
        label = next((f"{part}*" for part in parts if name.startswith(part)), name)
        left_out[label] = _NOT_CONVERTED.get(label, "of no such network")
    return left_out


def _networks(
    model: ModelConfig, tensors: Mapping[str, np.ndarray]
) -> list[tuple[Role, EncoderConfig, Prefixes]]:
    run = RunNetworks.of(tensors)
    main, found = run.main, []
    found.append((run.main_role, model.encoder, Prefixes(main, main, main)))
    if run.generator == _GENERATOR:
        names = Prefixes.of_generator(main, _GENERATOR, model.sharing, _GENERATOR)
        found.append(("generator", model.generator, names))
    return found


def _run(checkpoint: Checkpoint, config: PretrainingConfig) -> dict[str, Any]:
    """Return what is known of the training: settings, facts, and the last metrics."""
    details = checkpoint.metadata
    if "source" in details:
        return {"facts": {"Converted from": details["source"].get("path", "a file")}}
    facts = {}
    if details.get("records"):
        length, digest = config.records.max_length, details.get("records_sha256")
        facts["Records"] = (
            f"{details['records']:,} of {length} positions, SHA-256 {digest}"
        )
    if details.get("init_checkpoint"):
        facts["Continued from"] = os.path.basename(
            os.path.normpath(str(details["init_checkpoint"]))
        )
    return {
        "settings": loader.dump_config(config),
        "facts": facts,
        "metrics": _metrics(checkpoint),
    }


def _metrics(checkpoint: Checkpoint) -> dict[str, Mapping[str, Any]]:
    """Return the last metrics up to the checkpoint's step, by the kind of records."""
    folder = pathlib.Path(checkpoint.path).resolve().parent
    path = folder.parent / METRICS
    if folder.name != CHECKPOINTS or not path.is_file():
        return {}
    rows = read_metrics(str(folder.parent))
    last = {row["kind"]: row for row in rows if row["step"] <= checkpoint.step}
    names = {EVALUATION: "held-out records", TRAIN: "training"}
    return {
        f"{names[kind]}, step {last[kind]['step']:,}": last[kind]
        for kind in names
        if kind in last
    }


def write(model: PretrainedModel, path: str) -> list[Network]:
    """Write a checkpoint that every command of this package takes, and read it."""
    run = as_run(model)
    vocabulary = run.tokenizer.vocabulary
    files = {
        CONFIG: loader.dump_config(run.config).encode(),
        VOCABULARY: vocabulary.text.encode(),
        settings_path(VOCABULARY).name: run.tokenizer.identity_text.encode(),
    }
    metadata = {
        "vocabulary": vocabulary.sha256,
        "source": {
            "path": os.path.basename(os.path.normpath(model.path)),
            "configs": {n.role: dict(n.config) for n in model.networks},
            "dtypes": {n.role: dict(n.dtypes) for n in model.networks},
        },
    }
    manager = CheckpointManager(path)
    manager.save(run.step, run.weights, run.slots, files, metadata)
    return [network.origin for network in read(open_checkpoint(path)).networks]


def as_run(model: PretrainedModel) -> TrainedRun:
    """Return a model's networks with the names, and the settings, of a run."""
    tokenizer, sharing = model.require_tokenizer(), model.sharing()
    weights: dict[str, np.ndarray] = {}
    slots: dict[str, np.ndarray] = {}
    for network in model.networks:
        prefixes = _prefixes(network, len(model.networks), sharing)
        target = network.to_format("electra_tf", prefixes)
        weights |= target.weights
        names = target.slot_names(_SLOT)
        slots |= {s: network.slots[n] for n, s in names if n in network.slots}
    config = pretraining_config(model, sharing)
    return TrainedRun(config, tokenizer, weights, slots, model.step)


def _prefixes(network: Network, networks: int, sharing: str) -> Prefixes:
    if network.role != "generator":
        return Prefixes(_DISCRIMINATOR, _DISCRIMINATOR, _DISCRIMINATOR)
    if networks == 1:
        return Prefixes(_BERT, _BERT, _BERT)
    return Prefixes.of_generator(_DISCRIMINATOR, _GENERATOR, sharing, _GENERATOR)


def pretraining_config(model: PretrainedModel, sharing: str) -> PretrainingConfig:
    """Return settings whose model has the shapes of a converted one."""
    main = model.main.shape
    sizes: dict[str, Any] = {**dataclasses.asdict(main), "sharing": sharing}
    if len(model.networks) == 2:
        sizes |= _generator_sizes(main, model.networks[1].shape, sharing, model.path)
    name = "mlm" if model.main.role == "generator" else "electra"
    settings = model.tokenizer.settings if model.tokenizer else TokenizationConfig()
    return PretrainingConfig(
        model=ModelConfig(**sizes),
        objective=ObjectiveConfig(name=name),
        records=RecordsConfig(max_length=min(128, main.max_positions)),
        tokenization=settings,
    )


def _generator_sizes(
    main: EncoderConfig, generator: EncoderConfig, sharing: str, path: str
) -> dict[str, Any]:
    one, other = map(dataclasses.asdict, (main, generator))
    alike = ("vocabulary_size", "max_positions", "segments", "layer_norm_epsilon")
    names = [name for name in alike if one[name] != other[name]]
    names += [name for name in ("depth", "width") if one[name] < other[name]]
    if names:
        raise InputError(
            "Discriminator and generator must be halves of one model: the same tables' "
            "rows and epsilon, and no larger generator",
            f"{path}: {'; '.join(f'{n} {one[n]} and {other[n]}' for n in names)}",
            "Convert each network apart with --part",
        )
    return {
        "generator_width": generator.width / main.width,
        "generator_depth": generator.depth / main.depth,
        "generator_heads": generator.heads,
        "generator_feed_forward": generator.feed_forward,
        "generator_embedding": generator.embedding if sharing == "none" else None,
    }
