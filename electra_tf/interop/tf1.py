"""Read and write TensorFlow 1 checkpoints of google-research/electra, and BERT's.

Source: google-research/electra model/modeling.py and model/optimization.py.
"""

import glob
import json
import os
import pathlib
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from electra_tf.config.pretraining import EncoderConfig, TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.interop.network import (
    ForeignNetwork,
    Network,
    Prefixes,
    Role,
    from_foreign,
    to_foreign,
)
from electra_tf.interop.pretrained import LeftOut, PretrainedModel, Source
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary

# adam_m and adam_v in the original, m and v with us.
_SLOTS = {"m": "adam_m", "v": "adam_v"}
_NOT_READ = {
    "generator_predictions/temperature": "a constant of the released checkpoints",
    "cls/": "a head of BERT; only its encoder is read",
    "bert/pooler/": "BERT's pooler, which ELECTRA has not",
    "beta1_power": "a state of TensorFlow's Adam",
    "beta2_power": "a state of TensorFlow's Adam",
}
_STEP = "global_step"
_SHARD = 32 * 2**20  # bytes, after which a shard of a checkpoint ends
_WORDS = "embeddings/word_embeddings"


def find_prefix(path: str) -> str | None:
    """Return the prefix of a TensorFlow 1 checkpoint's files, or None.

    Args:
        path: A prefix, one of its files, or a folder with one checkpoint or a
            `checkpoint` file that names the newest.
    """
    if os.path.isdir(path):
        newest = tf.train.latest_checkpoint(path)
        found = (
            [newest] if newest else sorted(glob.glob(f"{glob.escape(path)}/*.index"))
        )
        path = found[-1] if len(found) == 1 else path
    path = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    return path if os.path.isfile(f"{path}.index") else None


def accepts(path: str) -> bool:
    """Return whether a path is a checkpoint of ELECTRA or BERT by TensorFlow 1.

    Args:
        path: Any path.
    """
    prefix = find_prefix(path)
    return prefix is not None and any(
        name.endswith(f"/{_WORDS}") for name in read_shapes(prefix)
    )


def read(path: str) -> PretrainedModel:
    """Read the networks of a checkpoint, with optimizer slots where there are any.

    A `vocab.txt` beside the checkpoint is its vocabulary; an `electra_tf.json`, which
    `write` leaves there, its settings that the names and shapes do not show.

    Args:
        path: A prefix, one of its files, or a folder.

    Returns:
        A pair, a discriminator, a generator, or a BERT's encoder.

    Raises:
        InputError: The files are damaged, or the networks are incomplete.
    """
    prefix = find_prefix(path)
    if prefix is None:
        raise InputError(
            "A TensorFlow checkpoint must have an .index file",
            repr(path),
            "Check the path",
        )
    tensors = read_checkpoint(prefix)
    folder = os.path.dirname(prefix)
    known = _read_settings(folder)
    sources = [
        _read_network(tensors, role, prefixes, known, prefix)
        for role, prefixes in _networks(tensors, prefix)
    ]
    used = {n for s in sources for _, _, n in s.foreign.rows()}
    slots = {f"{name}/{slot}" for name in used for slot in _SLOTS.values()}
    left_out = _left_out(tensors.keys() - used - slots, prefix)
    sources[0].left_out.update(left_out)
    step = int(tensors[_STEP]) if _STEP in tensors else 0
    return PretrainedModel.of_sources(
        sources, _read_tokenizer(folder, known), prefix, step=step
    )


def read_shapes(prefix: str) -> Mapping[str, list[int]]:
    """Return the shape of each tensor of a TensorFlow checkpoint.

    Args:
        prefix: Of its files.

    Raises:
        InputError: The files are damaged.
    """
    try:
        return tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{prefix!r} must be a whole TensorFlow checkpoint",
            str(error).split("\n")[0],
            "Copy or download the .index and .data files again",
        ) from error


def read_checkpoint(prefix: str) -> dict[str, np.ndarray]:
    """Return the tensors of a TensorFlow checkpoint.

    Args:
        prefix: Of its files.

    Raises:
        InputError: The files are damaged, or a number is not finite.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        tensors = {n: reader.get_tensor(n) for n in read_shapes(prefix)}
        # The graph of objects of a TensorFlow 2 checkpoint is bytes.
        tensors = {
            n: a for n, a in tensors.items() if isinstance(a, np.ndarray | np.generic)
        }
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{prefix!r} must be a whole TensorFlow checkpoint",
            str(error).split("\n")[0],
            "Copy or download the .index and .data files again",
        ) from error
    for name, array in tensors.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(
                "Weights must be finite numbers",
                f"{prefix}: {name!r} has NaN or infinite values",
                "Use a checkpoint from before training diverged",
            )
    return tensors


def _networks(
    tensors: Mapping[str, np.ndarray], source: str
) -> list[tuple[Role, Prefixes]]:
    """Return role and prefixes of each network in a checkpoint."""
    if f"bert/{_WORDS}" in tensors:
        return [("encoder", Prefixes("bert/", "bert/"))]
    if f"electra/{_WORDS}" not in tensors:
        raise InputError(
            f"A checkpoint must have electra/{_WORDS} or bert/{_WORDS}",
            f"{source} with {format_list(sorted(tensors), 3)}",
            "Name a checkpoint of google-research/electra or google-research/bert",
        )
    found: list[tuple[Role, Prefixes]] = []
    has_head = "discriminator_predictions/dense/kernel" in tensors
    has_generator = "generator_predictions/dense/kernel" in tensors
    if has_head or not has_generator:
        role: Role = "discriminator" if has_head else "encoder"
        found.append((role, Prefixes("electra/", "electra/")))
    if has_generator:
        own = "generator/encoder/layer_0/output/dense/kernel" in tensors
        body = "generator/" if own else "electra/"
        tables = "generator/" if f"generator/{_WORDS}" in tensors else "electra/"
        found.append(("generator", Prefixes(body, tables)))
    return found


def _read_network(
    tensors: Mapping[str, np.ndarray],
    role: Role,
    prefixes: Prefixes,
    known: Mapping,
    source: str,
) -> Source:
    words = tensors[prefixes.embeddings + _WORDS]
    layers = [
        int(match[1])
        for name in tensors
        if (match := re.match(rf"{prefixes.encoder}encoder/layer_(\d+)/", name))
    ]
    inner = tensors[f"{prefixes.encoder}encoder/layer_0/intermediate/dense/kernel"]
    width = inner.shape[0]
    shape = EncoderConfig(
        depth=max(layers) + 1,
        width=width,
        embedding=words.shape[1],
        heads=known.get("heads", {}).get(role, max(1, width // 64)),
        feed_forward=inner.shape[1],
        vocabulary_size=words.shape[0],
        max_positions=len(
            tensors[f"{prefixes.embeddings}embeddings/position_embeddings"]
        ),
        segments=len(tensors[f"{prefixes.embeddings}embeddings/token_type_embeddings"]),
        dropout=0.1,
        attention_dropout=0.1,
        layer_norm_epsilon=known.get("layer_norm_epsilon", 1e-12),
    )
    foreign = ForeignNetwork("tf1", role, shape, tensors, prefixes, "gelu", source)
    network = from_foreign(foreign)
    slots = {
        f"{slot}/{ours}": tensors[f"{theirs}/{suffix}"]
        for ours, _, theirs in foreign.rows()
        for slot, suffix in _SLOTS.items()
        if f"{theirs}/{suffix}" in tensors
    }
    return Source(network, foreign, slots=slots)


def _left_out(names: set[str], source: str) -> LeftOut:
    left_out: LeftOut = {}
    unknown = []
    for name in sorted(names):
        reasons = [why for part, why in _NOT_READ.items() if name.startswith(part)]
        if name == _STEP:
            reasons = ["the number of the step"]
        if name.rsplit("/", 1)[-1] in _SLOTS.values():
            reasons = reasons or ["a slot of a weight that is left out"]
        if reasons:
            left_out[name] = reasons[0]
        else:
            unknown.append(name)
    if unknown:
        raise InputError(
            "Every tensor of a checkpoint must be known",
            f"{source}: {format_list(unknown, 4)}",
            "Name a checkpoint of google-research/electra or google-research/bert",
        )
    return left_out


def _read_settings(folder: str) -> Mapping:
    path = pathlib.Path(folder, "electra_tf.json")
    return json.loads(path.read_bytes()) if path.is_file() else {}


def _read_tokenizer(folder: str, known: Mapping) -> Tokenizer | None:
    path = os.path.join(folder, "vocab.txt")
    if not os.path.isfile(path):
        return None
    settings = TokenizationConfig(**known.get("tokenization", {}))
    return Tokenizer(Vocabulary.read(path), settings)


def write(model: PretrainedModel, path: str) -> list[ForeignNetwork]:
    """Write a checkpoint that google-research/electra fine-tunes.

    Args:
        model: One network or a pair.
        path: A folder; gets `model.ckpt-STEP.*`, `checkpoint` and `vocab.txt`.

    Returns:
        The networks as they were written, read again from the files.

    Raises:
        InputError: The original derives another number of heads from the width.
    """
    os.makedirs(path, exist_ok=True)
    tensors: dict[str, np.ndarray] = {_STEP: np.int64(model.step)}
    sharing = model.sharing() if len(model.networks) == 2 else "embeddings"
    for source in model.sources:
        network = source.network
        prefixes = _prefixes(network, sharing, len(model.networks))
        foreign = to_foreign(network, "tf1", prefixes)
        tensors |= foreign.tensors
        for ours, _, theirs in foreign.rows():
            for slot, suffix in _SLOTS.items():
                if f"{slot}/{ours}" in source.slots:
                    tensors[f"{theirs}/{suffix}"] = source.slots[f"{slot}/{ours}"]
    prefix = os.path.join(path, f"model.ckpt-{model.step}")
    _save(prefix, tensors)
    name = os.path.basename(prefix)
    pathlib.Path(path, "checkpoint").write_text(
        f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
    )
    settings: dict = {
        "heads": {n.role: n.shape.heads for n in model.networks},
        "layer_norm_epsilon": model.networks[0].shape.layer_norm_epsilon,
    }
    if model.tokenizer is not None:
        text = model.tokenizer.vocabulary.text
        pathlib.Path(path, "vocab.txt").write_bytes(text.encode())
        settings["tokenization"] = tokenization_settings(model.tokenizer)
    pathlib.Path(path, "electra_tf.json").write_text(json.dumps(settings, indent=1))
    return [source.foreign for source in read(prefix).sources]


def tokenization_settings(tokenizer: Tokenizer) -> dict[str, str | bool]:
    """Return a tokenizer's settings by name, for JSON.

    Args:
        tokenizer: The tokenizer.
    """
    names = TokenizationConfig.__dataclass_fields__
    return {name: getattr(tokenizer.settings, name) for name in names}


def _prefixes(network: Network, sharing: str, networks: int) -> Prefixes:
    if network.role != "generator" or networks == 1 or sharing == "all":
        return Prefixes("electra/", "electra/")
    tables = "electra/" if sharing == "embeddings" else "generator/"
    return Prefixes("generator/", tables)


def _save(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write shards of some tensors each, because TensorFlow copies its arguments."""
    shards: list[list[str]] = [[]]
    size = 0
    for name in sorted(tensors):
        if size > _SHARD:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensors[name].nbytes
    folder = f"{prefix}.unfinished"
    parts = [f"{folder}/{number}" for number in range(len(shards))]
    for part, names in zip(parts, shards, strict=True):
        tf.raw_ops.SaveV2(
            prefix=part,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tensors[name] for name in names],
        )
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=True
    )
