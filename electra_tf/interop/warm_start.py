"""Initialize a new run with the weights of a model of any format."""

import collections
from typing import Any, NamedTuple

import numpy as np

from electra_tf.config import loader
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError, format_list
from electra_tf.interop.extension import check_vocabulary, extend_rows, new_entries
from electra_tf.interop.network import Network
from electra_tf.interop.placement import Parts, Place, check_shapes, place_of
from electra_tf.interop.plain_weights import add_differences, plain_weights
from electra_tf.interop.pretrained import PretrainedModel
from electra_tf.model.transformer import DELTA
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CONTINUATION
from electra_tf.training.checkpoint import Checkpoint, assign
from electra_tf.training.run_directory import changed_fields


class _Placed(NamedTuple):
    """Weights by the run's paths, and what has no place there, with the reason."""

    arrays: dict[str, np.ndarray]
    ignored: dict[str, str]


def load_weights(
    trainer: Any,
    model: PretrainedModel,
    checkpoint: Checkpoint | None,
    config: PretrainingConfig,
    tokenizer: Tokenizer,
) -> str:
    """Load the weights of a model into a new run; others keep their initial values.

    Args:
        trainer: The new run's trainer.
        model: The networks to begin from.
        checkpoint: The checkpoint that they were read from; None: another library's.
        config: Settings of the new run.
        tokenizer: Tokenizer of the new run.

    Returns:
        A summary to print: loaded, new and ignored weights.
    """
    # With `sharing: gdes`, the discriminator's tables are placed like any, then stored
    # as differences.
    own = {v.path: v for v in trainer.trainable_variables}
    variables = {path.removesuffix(DELTA): v for path, v in own.items()}
    parts = Parts.of(variables)
    check_vocabulary(model.tokenizer, tokenizer, model.path)
    alone, frozen = len(model.networks) == 1, config.objective.freeze_generator
    places = [place_of(n, parts, config.model, alone, frozen) for n in model.networks]
    found = list(zip(model.networks, places, strict=True))
    check_shapes(found, config, model.path)
    placed = _place(found, parts, model.path)
    settings = []
    if checkpoint is not None:
        _add_other_weights(placed, model, checkpoint, variables)
        settings = _changed_settings(checkpoint, config)
    else:
        placed.ignored.update(model.left_out)
    if frozen:
        _check_frozen(parts, placed, model.path)
    spare = config.model.spare_rows
    arrays = extend_rows(placed.arrays, model.tokenizer, tokenizer, spare)
    arrays = add_differences(arrays, own)
    assign({name: own[name] for name in arrays}, arrays, model.path)
    step = f", step {model.step:,}" if model.step else ""
    lines = [
        f"initial checkpoint {model.path}{step}:",
        *_describe(parts, variables, placed),
        *_describe_extension(model, tokenizer),
        *_describe_spare_rows(model, spare),
        *_describe_activation(model),
        "  not loaded: optimizer slots, step, learning-rate schedule, record order",
        *settings,
    ]
    return "\n".join(lines)


def _place(
    found: list[tuple[Network, Place | None]], parts: Parts, source: str
) -> _Placed:
    """Name the weights of networks as the run names them."""
    placed = _Placed({}, {})
    for network, place in found:
        if place is None:
            placed.ignored[f"the {network.role}"] = "the run has no such network"
            continue
        for name, array in network.weights.items():
            target = parts.path(place, network.role, name)
            if target is None:
                head = f"the {network.role}'s head"
                placed.ignored[head] = "the run has no such head"
            elif not np.array_equal(placed.arrays.setdefault(target, array), array):
                raise InputError(
                    "Weights that generator and discriminator of the run share must be "
                    "equal in the initial checkpoint",
                    f"{source}: two different {name}",
                    "Give each network its own: --set model.sharing=none, and "
                    f"--set model.generator_embedding={network.shape.embedding}; or "
                    "begin from the discriminator alone",
                )
    return placed


def _check_frozen(parts: Parts, placed: _Placed, source: str) -> None:
    """Reject a source without all weights of a generator that will not be trained."""
    paths = {path for path in parts.paths if path.startswith(parts.generator)}
    if missing := sorted(paths - placed.arrays.keys()):
        raise InputError(
            "With objective.freeze_generator the initial checkpoint must have the "
            "generator with its head",
            f"{source} without {missing[0]} and {len(missing) - 1} other weights",
            "Pass --init_checkpoint=GENERATOR or DISCRIMINATOR,GENERATOR",
        )


def _add_other_weights(
    placed: _Placed,
    model: PretrainedModel,
    checkpoint: Checkpoint,
    variables: dict[str, Any],
) -> None:
    """Add weights of a checkpoint of this package that no network contains, by path."""
    in_networks = set().union(*(network.origin.names for network in model.networks))
    config = checkpoint.config()
    weights = plain_weights(config, checkpoint.step, checkpoint.weights())[1]
    for name, array in weights.items():
        if name in variables:
            placed.arrays.setdefault(name, array)
        elif name not in in_networks:
            placed.ignored[name] = "the run has no such weight"


def _describe(parts: Parts, variables: dict[str, Any], placed: _Placed) -> list[str]:
    """Return a line per group of weights, and one per ignored part of the source."""
    total, loaded = (
        collections.Counter(map(parts.group, paths))
        for paths in (variables, placed.arrays)
    )
    lines = []
    if len(placed.arrays) == len(variables):
        lines.append(f"  loaded: all {len(variables)} weights")
    for group, number in total.items():
        new = number - loaded[group]
        states = [f"{loaded[group]} loaded"] * bool(loaded[group])
        states += [f"{new} initialised anew"] * bool(new)
        lines.append(f"  {group}: {number} weights, {', '.join(states)}")
    return [*lines, *(f"  ignored: {n}: {why}" for n, why in placed.ignored.items())]


def _describe_extension(model: PretrainedModel, tokenizer: Tokenizer) -> list[str]:
    before, entries = (
        model.tokenizer.vocabulary,
        new_entries(model.tokenizer, tokenizer),
    )
    if not entries:
        return []
    appended = sum(number >= len(before) for number in entries)
    lines = [
        f"  vocabulary: {appended:,} entries appended to {len(before):,} and "
        f"{len(entries) - appended:,} written over [unusedN]; each starts as the mean "
        "of the wordpieces that spelt it before"
    ]
    absent = [
        entry for number, entry in entries.items()
        if not entry.startswith(CONTINUATION) and tokenizer.encode(entry) != [number]
    ]  # fmt: skip
    if absent:
        lines.append(
            f"  {len(absent):,} of them occur in no text, because texts are "
            f"{tokenizer.settings} and split at signs: {format_list(absent, 3)}. Build "
            "the records with --keep_whole=ENTRY,... to find them"
        )
    return lines


def _describe_spare_rows(model: PretrainedModel, spare_rows: int) -> list[str]:
    there = model.main.shape.spare_rows
    if there <= spare_rows:
        return []
    return [
        f"  not loaded: {there - spare_rows:,} of {there:,} rows without an entry; "
        f"--set model.spare_rows={there} keeps them"
    ]


def _describe_activation(model: PretrainedModel) -> list[str]:
    if all(network.origin.activation == "gelu" for network in model.networks):
        return []
    return ["  gelu: the initial checkpoint's library computes it by tanh, the run not"]


def _changed_settings(checkpoint: Checkpoint, config: PretrainingConfig) -> list[str]:
    old = checkpoint.config()
    # A new run reads its config from the file that its checkpoints will have.
    new = loader.parse_config(loader.dump_config(config), "the new run's config")
    changed = changed_fields(old, new)
    lines = [f"  {name}: {a!r} -> {b!r}" for name, (a, b) in changed.items()]
    return ["changed settings:", *lines] if lines else []
