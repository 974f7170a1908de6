"""Read and write folders of Hugging Face's transformers, versions 4 and 5.

Sources: transformers configuration_electra.py, modeling_electra.py; published
config.json files of google, hfl and others, which leave keys out.
"""

import itertools
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop import huggingface_config
from electra_tf.interop.heads import TASK_HEADS, TaskHead
from electra_tf.interop.huggingface_config import CONFIG, OWN, SIZES
from electra_tf.interop.model import (
    Network,
    PretrainedModel,
    choose_tokenizer,
    explain_left_out,
    table_shape,
)
from electra_tf.interop.names import Prefixes, Row
from electra_tf.interop.tensors import (
    SAFETENSORS,
    SHARD,
    WEIGHTS,
    find_weights,
    read_tensors,
)
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import (
    STRIP_ACCENTS,
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    WORD_LIMIT,
    fast_tokenizer,
)
from electra_tf.text.vocab import PAD, SPECIAL_TOKENS
from electra_tf.training.checkpoint import folder_of, write_safetensors
from electra_tf.untrusted_files import read_json

TOKENIZATION = TokenizationConfig(max_word_characters=WORD_LIMIT)
"""Settings of transformers where a folder's files have none."""
GENERATOR = "generator"  # the folder of a pair's generator
# Prefixes of an encoder's names; files of a bare encoder have none.
_ENCODERS = ("electra.", "bert.", "")
_WORDS = "embeddings.word_embeddings.weight"
_SEGMENTS = "embeddings.token_type_embeddings.weight"
_TIED = "generator_lm_head.weight"
# By a weight of the head, since published configs misname the role.
_ROLES = {
    "discriminator_predictions.dense.weight": "discriminator",
    "generator_predictions.dense.weight": "generator",
}
_NOT_READ = {
    _TIED: "equal to the token table, which it is tied to",
    "position_ids": "a buffer, the numbers from 0 on",
    r"cls\.": "a head of BERT; only its encoder is read",
    r"pooler\.": "BERT's pooler, which ELECTRA does not have",
    r"classifier\.": "a head that predicts neither classes, one score, tags nor "
    "answers, or a part of one",
    r"sequence_summary\.": "the summary of a multiple-choice model",
    "qa_outputs": "a span head without two outputs",
}
_SHARED, _SUMMARY = "classifier", "sequence_summary."
_SPANS, _ENDS = "qa_outputs", (".weight", ".bias")
_CARD = """\
---
library_name: transformers
tags: [electra, electra_tf]
---

# electra {role}{steps}

```python
from transformers import AutoTokenizer, {theirs}

tokenizer = AutoTokenizer.from_pretrained(".")
model = {theirs}.from_pretrained(".")
```

```python
import electra_tf

model = electra_tf.{ours}.from_preset(".")
```
"""


def accepts(path: str) -> bool:
    """Return whether a path is a folder with a config and weights."""
    folder, weights = _find(path)
    return weights is not None and os.path.isfile(os.path.join(folder, CONFIG))


def _find(path: str) -> tuple[str, str | None]:
    """Return the folder and the weights of a path to a folder or to a file in it."""
    folder = folder_of(path, (CONFIG, *WEIGHTS))
    if folder == path and SHARD.fullmatch(os.path.basename(path)):
        folder = os.path.dirname(path) or os.curdir
    is_weights = folder != path and os.path.basename(path) in WEIGHTS
    return folder, path if is_weights else find_weights(folder)


def read(path: str, vocab: str | None = None) -> PretrainedModel:
    """Read a folder; a generator may lie in its subfolder `generator`."""
    path, weights = _find(path)
    folders, inner = {path: weights}, os.path.join(path, GENERATOR)
    if accepts(inner):
        folders[inner] = find_weights(inner)
    configs = {folder: read_json(os.path.join(folder, CONFIG)) for folder in folders}
    networks, left_out = [], {}
    for folder, file in folders.items():
        network, more = _read_network(configs[folder], folder, file)
        networks.append(network)
        left_out |= more
    tokenizer = choose_tokenizer(vocab, path, TOKENIZATION)
    entries = tokenizer.vocabulary.tokens if tokenizer else ()
    notes = [
        line
        for folder, config in configs.items()
        for line in huggingface_config.notes(config, entries, folder)
    ]
    return PretrainedModel.of_networks(
        networks, tokenizer, path, left_out=left_out, source_notes=tuple(notes)
    )


def _read_network(
    config: dict[str, Any], folder: str, weights: str
) -> tuple[Network, dict[str, str]]:
    """Return the network of a folder, and its tensors that are not read."""
    huggingface_config.check_network(config, folder)
    tensors = _unstacked({_modern(n): a for n, a in read_tensors(weights).items()})
    encoder = next((p for p in _ENCODERS if p + _WORDS in tensors), None)
    if encoder is None:
        kind, found = config.get("model_type"), ", ".join(sorted(tensors)[:3])
        raise InputError(
            f"{weights!r} of model_type {kind!r:.80} must be an ELECTRA or BERT with "
            f"{_WORDS}; it has {found}"
        )
    words, segments = encoder + _WORDS, encoder + _SEGMENTS
    if config.get("type_vocab_size") == 1 and table_shape(tensors, segments, folder):
        # The second text of a pair gets the only segment too.
        config = {**config, "type_vocab_size": 2}
        tensors[segments] = np.repeat(tensors[segments], 2, axis=0)
    head = read_head(config, tensors, encoder, folder)
    shape = huggingface_config.read_sizes(
        config, table_shape(tensors, words, folder), folder
    )
    roles = (role for name, role in _ROLES.items() if name in tensors)
    role = head.role if head else next(roles, "encoder")
    prefixes = Prefixes(encoder, encoder)
    activation = huggingface_config.read_activation(config, folder)
    network = Network.read(
        role, shape, tensors, "huggingface", folder, prefixes, head, activation
    )
    if _TIED in tensors and not np.array_equal(tensors[_TIED], tensors[words]):
        raise InputError(
            f"{folder}: {_TIED} differs from the token table, which it is tied "
            "to; tie the weights in transformers and save the model again"
        )
    surplus = tensors.keys() - network.names_in("huggingface", prefixes)
    return network, explain_left_out(surplus, _NOT_READ, folder)


def _modern(name: str) -> str:
    """Return a weight's name with the words of TensorFlow-era uploads replaced."""
    name = name.removeprefix("module.")
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


def _unstacked(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors with those of the start and end of answers apart."""
    wholes = {end: tensors.get(_SPANS + end) for end in _ENDS}
    if not all(w is not None and w.shape[:1] == (2,) for w in wholes.values()):
        return dict(tensors)
    others = {n: array for n, array in tensors.items() if not n.startswith(_SPANS)}
    parts = itertools.product(range(2), wholes.items())
    return others | {f"{_SPANS}[{n}]{e}": whole[n : n + 1] for n, (e, whole) in parts}


def read_head(
    config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    encoder: str,
    folder: str,
) -> TaskHead | None:
    """Return the head of a fine-tuned model, if this package has the same network."""
    role = _role_of_head(config, tensors, encoder)
    if role is None:
        return None
    kind, own = TASK_HEADS[role], config.get(OWN)
    settings = dict(own) if isinstance(own, dict) else {}
    settings |= kind.problem_types.get(str(config.get("problem_type")), {})
    rates = (config.get(key) for key in (*kind.dropout_keys, "hidden_dropout_prob"))
    rate = next((rate for rate in rates if rate is not None), None)
    return TaskHead(
        role,
        _labels(config, _units(role, tensors), folder) if kind.has_labels else (),
        head_dropout=rate if kind.dropout_keys else None,
        settings=settings,
        **kind.transformers_settings,
    )


def _role_of_head(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], encoder: str
) -> str | None:
    """Return the kind of the head that is there, but not of one of other classes."""
    classes, problem = config.get("architectures"), config.get("problem_type")
    architecture = str(classes[0]) if isinstance(classes, list) and classes else ""
    has_summary = any(name.startswith(_SUMMARY) for name in tensors)
    for role, kind in TASK_HEADS.items():
        kernels = {row.huggingface for row in _rows(role) if len(row.shape) == 2}
        is_there = all(n in tensors and tensors[n].ndim == 2 for n in kernels)
        # BERT's heads have the same names.
        is_shared = f"{_SHARED}.weight" in kernels and encoder != "electra."
        if (
            is_there
            and (architecture.endswith(kind.transformers) or not is_shared)
            and has_summary == any(n.startswith(_SUMMARY) for n in kernels)
            and (kind.has_labels or _units(role, tensors) == 1)
            and problem not in kind.other_problem_types
        ):
            return role
    return None


def _rows(role: str) -> tuple[Row, ...]:
    """Return the layers of the head in transformers."""
    return TaskHead(role, **TASK_HEADS[role].transformers_settings).rows


def _units(role: str, tensors: Mapping[str, np.ndarray]) -> int:
    """Return the number of outputs; those of spans are one each."""
    names = [row.huggingface for row in _rows(role) if row.shape[1:] == ("units",)]
    return len(tensors[names[0]]) if names else 1


def _labels(config: Mapping[str, Any], count: int, folder: str) -> tuple[str, ...]:
    stored = config.get("id2label")
    if stored is None:
        return tuple(f"LABEL_{number}" for number in range(count))
    labels = isinstance(stored, dict) and [stored.get(str(n)) for n in range(count)]
    if not labels or len(stored) != count or not all(type(n) is str for n in labels):
        raise InputError(
            f"id2label of {folder}/{CONFIG} must name each of the {count} outputs, as "
            f'{{"0": NAME, ...}}, not {stored!r:.80}'
        )
    return tuple(labels)


def write(model: PretrainedModel, path: str) -> None:
    """Write a folder, with a pair's generator in `generator`."""
    for network, folder in model.folders(path):
        prefixes = Prefixes("electra.", "electra.")
        tensors = _stacked(network.to_format("huggingface", prefixes))
        weights = os.path.join(folder, SAFETENSORS)
        write_safetensors(weights, tensors, {"format": "pt"})
        _write_json(os.path.join(folder, CONFIG), config_of(network, model))
        if model.tokenizer is not None:
            write_tokenizer(model.tokenizer, network.shape, folder)
        card = _CARD.format(
            role=network.role.replace("_", " "),
            steps=f", {model.step:,} steps" * bool(model.step),
            theirs=f"AutoModel{network.class_end.removeprefix('Model')}",
            ours=network.head.kind.model if network.head else "Encoder",
        )
        pathlib.Path(folder, "README.md").write_text(card, encoding="utf-8")


def _stacked(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors with the logits of start and end in one."""
    stacked = {n: a for n, a in tensors.items() if not n.startswith(f"{_SPANS}[")}
    for end in _ENDS:
        names = [f"{_SPANS}[{number}]{end}" for number in range(2)]
        if names[0] in tensors:
            stacked[_SPANS + end] = np.concatenate([tensors[name] for name in names])
    return stacked


def config_of(network: Network, model: PretrainedModel) -> dict[str, Any]:
    """Return the config.json of a network."""
    head = network.head
    config: dict[str, Any] = {
        **(head.kind.config if head else {}),
        **{theirs: getattr(network.shape, ours) for ours, theirs in SIZES.items()},
        "architectures": [f"Electra{network.class_end}"],
        "hidden_act": "gelu",
        "model_type": "electra",
        "tie_word_embeddings": True,
    }
    if model.tokenizer is not None:
        config["pad_token_id"] = model.tokenizer.vocabulary.ids[PAD]
    if head is None:
        return config
    config |= dict.fromkeys(head.kind.dropout_keys, head.head_dropout)
    if labels := head.labels:
        config["id2label"] = {str(n): label for n, label in enumerate(labels)}
        config["label2id"] = {label: n for n, label in enumerate(labels)}
    if head.settings:
        config[OWN] = dict(head.settings)
    for problem, arguments in head.kind.problem_types.items():
        if all(head.settings.get(n) == value for n, value in arguments.items()):
            return {**config, "problem_type": problem}
    return config


def write_tokenizer(
    tokenizer: WordPieceTokenizer, shape: EncoderConfig, folder: str
) -> None:
    """Write the files from which transformers 4 and 5 make the same tokenizer."""
    settings, ids = tokenizer.settings, tokenizer.vocabulary.ids
    strip = {ours: theirs for theirs, ours in STRIP_ACCENTS.items()}
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    special = dict(zip(names, SPECIAL_TOKENS, strict=True))
    pathlib.Path(folder, VOCABULARY).write_bytes(tokenizer.vocabulary.text.encode())
    _write_json(os.path.join(folder, "special_tokens_map.json"), special)
    config = special | {
        "do_lower_case": settings.lower_case,
        "strip_accents": strip[settings.strip_accents],
        "tokenize_chinese_chars": True,
        "model_max_length": shape.max_positions,
        "tokenizer_class": "ElectraTokenizer",
    }
    if settings.keep_whole:  # as transformers 4 stores them
        config["added_tokens_decoder"] = {
            str(ids[name]): {
                **dict.fromkeys(("lstrip", "rstrip", "single_word"), False),
                "content": name,
                "normalized": False,
                "special": name in SPECIAL_TOKENS,
            }
            for name in (*SPECIAL_TOKENS, *settings.keep_whole)
        }
    _write_json(os.path.join(folder, TOKENIZER_CONFIG), config)
    fast_tokenizer(tokenizer).save(os.path.join(folder, TOKENIZER))


def _write_json(path: str, value: Mapping[str, Any]) -> None:
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    pathlib.Path(path).write_text(text + "\n", encoding="utf-8")
