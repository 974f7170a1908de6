"""Read and write TensorFlow 1 checkpoints of google-research/electra, and BERT's.

Source: google-research/electra model/modeling.py and model/optimization.py.
"""

import dataclasses
import glob
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list, report_damage
from electra_tf.interop.network import Network, Prefixes, Role, read_shape, table_shape
from electra_tf.interop.pretrained import (
    PretrainedModel,
    choose_tokenizer,
    explain_left_out,
)
from electra_tf.interop.task_heads import (
    TASK_HEADS,
    HeadOptions,
    TaskHead,
    released_task,
)
from electra_tf.interop.tensor_bundle import read_bundle, read_shapes, write_bundle
from electra_tf.interop.tensor_files import check_finite
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.training.checkpoint import folder_of
from electra_tf.untrusted_files import read_json

_SLOT = "{name}/adam_{slot}"
_STEP = "global_step"
_NOT_READ = {
    "/adam_[mv]$": "a slot of a weight that is left out",
    "^task_specific/": "a task's head: --task chooses one of several, and --head names "
    "its kind where the released code has no task of that name",
    "^generator_predictions/temperature": "a constant of the released checkpoints",
    "^cls/": "a head of BERT; only its encoder is read",
    "^bert/pooler/": "BERT's pooler, which ELECTRA has not",
    "^beta[12]_power": "a state of TensorFlow's Adam",
    f"^{_STEP}": "the number of the step",
}
TF1_SETTINGS = "electra_tf.json"  # beside a checkpoint: what tensors do not show
_NO_OPTIONS = HeadOptions()
_TASK = re.compile(r"task_specific/([^/]+)/")
_IS_SLOT = re.compile("/adam_[mv]$")
_WORDS = "embeddings/word_embeddings"


def find_prefix(path: str) -> str | None:
    """Return the prefix of a TensorFlow 1 checkpoint's files, or None."""
    path = folder_of(path, ("checkpoint",))
    if os.path.isdir(path):
        path = _newest(path) or path
    path = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    return path if os.path.isfile(f"{path}.index") else None


def _newest(folder: str) -> str | None:
    """Return the prefix that a folder's `checkpoint` file names, or the only one.

    Of a path in the file only the last part counts: a folder names files of its own.
    """
    try:
        state = tf.train.get_checkpoint_state(folder)
    except UnicodeDecodeError:
        state = None
    if state is not None:
        name = os.path.basename(state.model_checkpoint_path)
        if os.path.isfile(os.path.join(folder, f"{name}.index")):
            return os.path.join(folder, name)
    found = glob.glob(f"{glob.escape(folder)}/*.index")
    return found[0] if len(found) == 1 else None


def accepts(path: str) -> bool:
    """Return whether a path is a checkpoint of ELECTRA or BERT by TensorFlow 1."""
    prefix = find_prefix(path)
    return prefix is not None and any(
        name.endswith(f"/{_WORDS}") for name in read_shapes(prefix)
    )


def read(
    path: str, vocab: str | None = None, options: HeadOptions = _NO_OPTIONS
) -> PretrainedModel:
    """Read the networks of a checkpoint, with optimizer slots where there are any.

    Beside it are `vocab.txt`, and settings of `write` that names and shapes do not
    show.
    """
    prefix = find_prefix(path) or path
    tensors, folder = read_checkpoint(prefix), os.path.dirname(prefix)
    known = read_settings(folder)
    networks = [
        _read_network(tensors, role, prefixes, known, prefix, options)
        for role, prefixes in _networks(tensors, prefix)
    ]
    used = set().union(*(network.origin.names for network in networks))
    slots = {s for one in networks for _, s in one.origin.slot_names(_SLOT)}
    return PretrainedModel.of_networks(
        networks,
        choose_tokenizer(vocab, folder, read_tokenization(folder)),
        prefix,
        step=int(tensors[_STEP]) if _STEP in tensors else 0,
        left_out=explain_left_out(tensors.keys() - used - slots, _NOT_READ, prefix),
    )


def read_checkpoint(prefix: str) -> dict[str, np.ndarray]:
    """Return the tensors of a TensorFlow checkpoint, as views of its files."""
    tensors = read_bundle(prefix)
    for name, array in tensors.items():
        check_finite(array, name, prefix)
    return tensors


def _networks(
    tensors: Mapping[str, np.ndarray], source: str
) -> list[tuple[Role, Prefixes]]:
    """Return role and prefixes of each network in a checkpoint."""
    if f"bert/{_WORDS}" in tensors:
        return [("encoder", Prefixes("bert/", "bert/"))]
    if f"electra/{_WORDS}" not in tensors:
        raise InputError(
            f"{source} has neither electra/{_WORDS} nor bert/{_WORDS}, but "
            f"{format_list(sorted(tensors), 3)}"
        )
    found: list[tuple[Role, Prefixes]] = []
    has_head = "discriminator_predictions/dense/kernel" in tensors
    has_generator = "generator_predictions/dense/kernel" in tensors
    if has_head or not has_generator:
        role = "discriminator" if has_head else "encoder"
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
    options: HeadOptions,
) -> Network:
    def size(name: str) -> tuple[int, ...]:
        return table_shape(tensors, name, source)

    head = None
    if role != "generator":
        head = _read_head(tensors, known.get("task", {}), options, source)
    if head is not None:
        role = head.role
        prefixes = prefixes._replace(head=f"task_specific/{head.name}/")
    pattern = rf"{prefixes.encoder}encoder/layer_(\d{{1,9}})/"
    layers = (int(m[1]) for name in tensors if (m := re.match(pattern, name)))
    rows, embedding = size(prefixes.embeddings + _WORDS)
    tables = f"{prefixes.embeddings}embeddings/"
    width, inner = size(f"{prefixes.encoder}encoder/layer_0/intermediate/dense/kernel")
    # The heads of a fine-tuned encoder may be those of its source.
    roles = (role, "encoder", "discriminator") if role in TASK_HEADS else (role,)
    heads = (known["heads"][n] for n in roles if n in known.get("heads", {}))
    shape = read_shape(
        source,
        depth=max(layers) + 1,
        width=width,
        embedding=embedding,
        heads=next(heads, max(1, width // 64)),
        feed_forward=inner,
        vocabulary_size=rows,
        max_positions=size(f"{tables}position_embeddings")[0],
        segments=size(f"{tables}token_type_embeddings")[0],
        layer_norm_epsilon=known.get("layer_norm_epsilon", 1e-12),
    )
    network = Network(role, shape, tensors, head, "tf1", prefixes, source=source)
    names = network.slot_names(_SLOT)
    return network.to_ours(slots={n: tensors[s] for n, s in names if s in tensors})


def _read_head(
    tensors: Mapping[str, np.ndarray],
    known: Mapping[str, Any],
    options: HeadOptions,
    source: str,
) -> TaskHead | None:
    """Return the head of the only task, or of the one that the options name."""
    names = sorted({match[1] for name in tensors if (match := _TASK.match(name))})
    if options.task is not None and options.task not in names:
        raise InputError(
            f"--task must be one of {format_list(names) or 'none'}, which have a head "
            f"in {source}, not {options.task!r}"
        )
    if not names or (len(names) > 1 and options.task is None):
        return None
    name = options.task or names[0]
    if known.get("name") != name:
        return _named_head(tensors, name, options, source)
    with report_damage(f"'task' of {TF1_SETTINGS} beside {source}"):
        head = TaskHead(**{**known, "labels": tuple(known.get("labels", ()))})
        is_text = all(type(n) is str for n in head.labels)
        if not head.form.exists_in("tf1") or not is_text:
            raise TypeError(f"role {head.role!r} with labels {head.labels!r:.60}")
        return head


def _named_head(
    tensors: Mapping[str, np.ndarray], name: str, options: HeadOptions, source: str
) -> TaskHead | None:
    """Return the head that its layers, or the task's name, imply."""
    scope = f"task_specific/{name}/"
    layers = {n.removeprefix(scope) for n in tensors if n.startswith(scope)}
    layers = {n for n in layers if not _IS_SLOT.search(n)}
    possible = {
        role: form
        for role, kind in TASK_HEADS.items()
        for form in kind.forms
        if form.exists_in("tf1") and {row.tf1 for row in form.rows} == layers
    }
    named, task = released_task(name)
    role = next(iter(possible)) if len(possible) == 1 else options.kind or named
    if role is None:
        return None
    kind = TASK_HEADS[role]
    form = possible.get(role, kind.forms[0])
    if not kind.has_labels:
        return TaskHead(role, name=name, **form.options)
    rows = [row.tf1 for row in form.rows if row.shape[1:] == ("units",)]
    units = table_shape(tensors, f"{scope}{rows[0]}", source)[1]
    labels = options.labels or task.labels
    if kind.needs_labels and not labels:
        raise InputError(
            f"{source} does not store the names of the {units} tags of the task "
            f"{name!r}; run `electra-tf convert` with --labels=TAG,TAG,... in the "
            f"order of the ids in {name}_label_mapping.pkl, which the fine-tuning "
            "wrote, and name its result"
        )
    if len(labels) != units:  # `renamed` raises for other numbers of names
        labels = tuple(map(str, range(units)))
    return TaskHead(role, labels, name=name, **form.options)


def read_settings(folder: str) -> Mapping[str, Any]:
    """Return what `write` left beside a checkpoint, which its tensors do not show."""
    path = os.path.join(folder, TF1_SETTINGS)
    known = read_json(path) if os.path.isfile(path) else {}
    for name in ("heads", "tokenization", "task"):
        if not isinstance(known.get(name, {}), dict):
            raise InputError(f"{name!r} of {path} is no object: {known[name]!r:.80}")
    return known


def read_tokenization(folder: str) -> TokenizationConfig:
    """Return the tokenizer's settings that `write` left, or else the defaults."""
    with report_damage(f"'tokenization' of {os.path.join(folder, TF1_SETTINGS)}"):
        stored = read_settings(folder).get("tokenization", {})
        return TokenizationConfig(**TokenizationConfig.complete(stored))


def write(model: PretrainedModel, path: str) -> list[Network]:
    """Write a checkpoint that google-research/electra fine-tunes, and read it again."""
    os.makedirs(path, exist_ok=True)
    tensors: dict[str, np.ndarray] = {_STEP: np.int64(model.step)}
    settings: dict[str, Any] = {
        "heads": {n.role: n.shape.heads for n in model.networks},
        "layer_norm_epsilon": model.main.shape.layer_norm_epsilon,
    }
    for network in model.networks:
        prefixes = Prefixes("electra/", "electra/")
        if network is not model.main:
            sharing = model.sharing()
            prefixes = Prefixes.of_generator("electra/", "generator/", sharing)
        if network.head is not None:
            name = network.head.name or network.head.role
            prefixes = prefixes._replace(head=f"task_specific/{name}/")
            settings["task"] = dataclasses.asdict(network.head) | {"name": name}
        target = network.to_format("tf1", prefixes)
        tensors |= target.weights
        names = target.slot_names(_SLOT)
        tensors |= {s: network.slots[n] for n, s in names if n in network.slots}
    name = f"model.ckpt-{model.step}"
    prefix = os.path.join(path, name)
    write_bundle(prefix, tensors)
    state = f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
    pathlib.Path(path, "checkpoint").write_text(state)
    write_settings(path, model.tokenizer, settings)
    return [network.origin for network in read(prefix).networks]


def write_settings(
    folder: str, tokenizer: WordPieceTokenizer | None, settings: Mapping[str, Any]
) -> None:
    """Write the vocabulary and the settings of a folder with a checkpoint."""
    if tokenizer is not None:
        vocabulary = tokenizer.original_text.encode()
        pathlib.Path(folder, "vocab.txt").write_bytes(vocabulary)
        tokenization = dataclasses.asdict(tokenizer.settings)
        del tokenization["pad_id"]  # that of the file
        settings = {**settings, "tokenization": tokenization}
    pathlib.Path(folder, TF1_SETTINGS).write_text(json.dumps(settings, indent=1))
