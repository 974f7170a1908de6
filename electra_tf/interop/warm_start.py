"""Initialize a new run with the weights of a model of any format."""

import collections
import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf.config import loader
from electra_tf.config.model import EncoderConfig, ModelConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError, format_list
from electra_tf.interop.checkpoint import (
    Place,
    RunNetwork,
    add_differences,
    find_networks,
    generator_sizes,
)
from electra_tf.interop.extension import check_vocabulary, extend_rows, new_entries
from electra_tf.interop.model import Network, PretrainedModel
from electra_tf.model.transformer import DELTA
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CONTINUATION
from electra_tf.training.checkpoint import Checkpoint, assign
from electra_tf.training.run_directory import changed_fields

# Settings that decide what weights compute. Rows of the token table are compared with
# the vocabularies.
_SIZES = ("depth", "width", "embedding", "heads", "feed_forward")  # of one network
_SHARED = ("max_positions", "segments", "layer_norm_epsilon")  # of both of a pair


class _Placed(NamedTuple):
    """Weights by the run's paths, and what has no place there, with the reason."""

    arrays: dict[str, np.ndarray]
    ignored: dict[str, str]


def load_weights(
    trainer: Any,
    model: PretrainedModel,
    checkpoint: Checkpoint | None,
    config: PretrainingConfig,
    tokenizer: WordPieceTokenizer,
) -> str:
    """Load the weights of a model into a new run, and return a summary to print.

    `checkpoint`: the one that the networks were read from; None: another library's.
    """
    # With `sharing: gdes`, the discriminator's tables are placed like any, then stored
    # as differences.
    own = {v.path: v for v in trainer.trainable_variables}
    variables = {path.removesuffix(DELTA): v for path, v in own.items()}
    run = find_networks(config.model, variables)
    check_vocabulary(model.tokenizer, tokenizer, model.path)
    placed = _place_networks(model, run, config, variables)
    placed.ignored.update(model.left_out if checkpoint is None else {})
    if config.objective.freeze_generator:
        _check_frozen(run["generator"], variables, placed, model.path)
    spare = config.model.spare_rows
    arrays = extend_rows(placed.arrays, model.tokenizer, tokenizer, spare)
    arrays = add_differences(arrays, own)
    assign({name: own[name] for name in arrays}, arrays, model.path)
    step = f", step {model.step:,}" if model.step else ""
    lines = [
        f"initial checkpoint {model.path}{step}:",
        *_describe(run.get("generator"), variables, placed),
        *_describe_extension(model, tokenizer),
        *_describe_differences(model, spare),
        "  not loaded: optimizer slots, step, learning-rate schedule, record order",
        *(_changed_settings(checkpoint, config) if checkpoint else ()),
    ]
    return "\n".join(lines)


def _place_networks(
    model: PretrainedModel,
    run: Mapping[Place, RunNetwork],
    config: PretrainingConfig,
    paths: Collection[str],
) -> _Placed:
    """Name the weights of a model as the run names them."""
    alone, placed = len(model.networks) == 1, _Placed({}, {})
    places = [(n, _place_of(n, run, config, alone)) for n in model.networks]
    check_shapes(places, config, model.path)
    for network, place in places:
        if place is None:
            placed.ignored[f"the {network.role}"] = "the run has no such network"
        else:
            _place(network, run[place], placed, model.path)
    if "generator" in run and all(place != "generator" for _, place in places):
        _place_lower_layers(model.main, run["generator"], placed, model.path)
    for name, array in model.others.items():
        if name in paths:
            placed.arrays.setdefault(name, array)
        else:
            placed.ignored[name] = "the run has no such weight"
    return placed


def _place_of(
    network: Network,
    run: Collection[Place],
    config: PretrainingConfig,
    alone: bool,
) -> Place | None:
    """Return where the weights of a network belong, or None.

    A masked LM becomes the generator, unless only the main network has its shape: a
    BERT, whose encoder initialises the discriminator. A frozen generator must come from
    the source, whatever its shape.
    """
    if network.role != "generator":
        return "main"
    if "generator" not in run:
        return "main" if alone else None
    fits_main, fits_generator = (
        not _differences(network.shape, shape)
        for shape in (config.model.encoder, config.model.generator)
    )
    if fits_main and not fits_generator and not config.objective.freeze_generator:
        return "main"
    return "generator"


def check_shapes(
    places: Sequence[tuple[Network, Place | None]],
    config: PretrainingConfig,
    source: str,
) -> None:
    """Reject networks whose shape is not the run's."""
    settings, problems = config.model, []
    for network, place in places:
        if place is not None:
            run = settings.encoder if place == "main" else settings.generator
            problems += [
                f"the {network.role}'s {name} is {there} in {source}, {here} in the run"
                for name, there, here in _differences(network.shape, run)
            ]
    if problems:
        shapes = {place: network.shape for network, place in places}
        flags = _flags(shapes, settings)
        shown = " ".join(f"--set model.{name}={value}" for name, value in flags.items())
        positions = flags.get("max_positions", settings.max_positions)
        if positions < config.records.max_length:
            shown += f", with records of at most {positions} positions"
        remedy = f"train the model of the checkpoint: {shown}"
        try:
            dataclasses.replace(settings, **flags)
        except ValueError:
            remedy = "no settings describe these networks as a pair; begin from one"
        raise InputError(f"{'; '.join(problems)}; {remedy}")


def _differences(
    source: EncoderConfig, run: EncoderConfig
) -> list[tuple[str, Any, Any]]:
    names = (*_SIZES, *_SHARED)
    pairs = ((name, getattr(source, name), getattr(run, name)) for name in names)
    return [(name, there, here) for name, there, here in pairs if there != here]


def _flags(
    shapes: dict[Place | None, EncoderConfig], settings: ModelConfig
) -> dict[str, Any]:
    """Return the settings to change for these shapes."""
    main, generator = shapes.get("main"), shapes.get("generator")
    body = main or settings.encoder
    wanted = {name: getattr(main or generator, name) for name in _SHARED}
    if main:
        wanted |= {name: getattr(main, name) for name in _SIZES}
    if generator:
        own_tables = generator.embedding != body.embedding
        sharing = "none" if own_tables else settings.sharing
        if sharing == "all" and generator != body:
            sharing = "embeddings"
        wanted |= {"sharing": sharing, **generator_sizes(body, generator, sharing)}
    return {n: value for n, value in wanted.items() if getattr(settings, n) != value}


def _place(network: Network, place: RunNetwork, placed: _Placed, source: str) -> None:
    """Name the weights of a network as the run names those of a place."""
    if network.role not in ("encoder", place.role):
        head = f"the {network.role}'s head"
        placed.ignored[head] = "the run has no such head"
        network = network.without_head()
    for name, array in network.to_format("electra_tf", place.prefixes).items():
        if not np.array_equal(placed.arrays.setdefault(name, array), array):
            raise InputError(
                f"{source}: generator and discriminator have different {name}, which "
                "they share in the run; give each its own: --set model.sharing=none "
                f"--set model.generator_embedding={network.shape.embedding}; or begin "
                "from the discriminator alone"
            )


def _place_lower_layers(
    network: Network, generator: RunNetwork, placed: _Placed, source: str
) -> None:
    """Load the lower layers of the source's only network into a wide generator."""
    depth = min(generator.shape.depth, network.shape.depth)
    shape = dataclasses.replace(network.shape, depth=depth)
    if not _differences(shape, generator.shape):
        has_head = network.role == generator.role
        lower = network if has_head else network.without_head()
        _place(dataclasses.replace(lower, shape=shape), generator, placed, source)
        if has_head:
            placed.ignored.pop("the generator's head", None)


def _check_frozen(
    generator: RunNetwork, paths: Iterable[str], placed: _Placed, source: str
) -> None:
    """Reject a source without all weights of a generator that will not be trained."""
    paths = {path for path in paths if path.startswith(generator.prefixes.head)}
    if missing := sorted(paths - placed.arrays.keys()):
        raise InputError(
            f"{source} must have the whole generator that objective.freeze_generator "
            f"keeps; it has no {missing[0]} and {len(missing) - 1} other weights; pass "
            "--init_checkpoint=GENERATOR or DISCRIMINATOR,GENERATOR"
        )


def _describe(
    generator: RunNetwork | None, variables: dict[str, Any], placed: _Placed
) -> list[str]:
    """Return lines of the groups of weights, and of ignored parts of the source."""
    total, loaded = (
        collections.Counter(map(_group, paths)) for paths in (variables, placed.arrays)
    )
    lines = []
    if len(placed.arrays) == len(variables):
        lines.append(f"  loaded: all {len(variables)} weights")
    for group, number in total.items():
        new = number - loaded[group]
        states = [f"{loaded[group]} loaded"] * bool(loaded[group])
        states += [f"{new} initialised anew"] * bool(new)
        lines.append(f"  {group}: {number} weights, {', '.join(states)}")
    lines += [f"  ignored: {n}: {why}" for n, why in placed.ignored.items()]
    layer = generator and f"{generator.prefixes.encoder}encoder/layer_0/output/kernel"
    if layer and layer not in placed.arrays:
        lines.append(
            "  the generator's layers begin at random. When an encoder was continued "
            "for a short time, --set objective.name=mlm scored higher (the page "
            "Continue from a public model)"
        )
    return lines


def _group(path: str) -> str:
    """Return the network and the part of it that a variable belongs to."""
    match = re.match("(.*?(encoder|head))/", path)
    return match[1] if match else path.rpartition("/")[0]


def _describe_extension(
    model: PretrainedModel, tokenizer: WordPieceTokenizer
) -> list[str]:
    before = model.tokenizer.vocabulary
    entries = new_entries(model.tokenizer, tokenizer)
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


def _describe_differences(model: PretrainedModel, spare_rows: int) -> list[str]:
    """Return lines for rows that are not loaded, and for another gelu."""
    lines, there = [], model.main.shape.spare_rows
    if there > spare_rows:
        lines.append(
            f"  not loaded: {there - spare_rows:,} of {there:,} rows without an entry; "
            f"--set model.spare_rows={there} keeps them"
        )
    if any(network.activation != "gelu" for network in model.networks):
        lines.append(
            "  gelu: the initial checkpoint's library computes it by tanh, the run not"
        )
    return lines


def _changed_settings(checkpoint: Checkpoint, config: PretrainingConfig) -> list[str]:
    old = checkpoint.config()
    # A new run reads its config from the file that its checkpoints will have.
    new = loader.parse_config(loader.dump_config(config), "the new run's config")
    changed = changed_fields(old, new)
    lines = [f"  {name}: {a!r} -> {b!r}" for name, (a, b) in changed.items()]
    return ["changed settings:", *lines] if lines else []
