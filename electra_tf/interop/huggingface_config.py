"""Read the config.json of transformers: sizes, and what else decides a network.

A key that would make another network of the weights stops the conversion.

Sources: transformers configuration_{electra,bert,utils}.py; config.json files
that google, hfl, klue and others published, which leave keys out.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.model import shape_of_config
from electra_tf.interop.names import Activation
from electra_tf.text.vocab import PAD

CONFIG = "config.json"
# Of sentence-transformers: its modules, and a glob of the settings of pooling.
MODULES, POOLING = "modules.json", "*_Pooling/config.json"
OWN = "electra_tf"  # key for this package's settings of a fine-tuned model
SIZES = {
    "depth": "num_hidden_layers",
    "width": "hidden_size",
    "embedding": "embedding_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "vocabulary_size": "vocab_size",
    "max_positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
    "layer_norm_epsilon": "layer_norm_eps",
}
"""Keys of an encoder's shape."""
_EXACT = ("gelu", "gelu_python")
_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
# The only values that this network has beside null, and what others mean.
_FIXED: Mapping[str, tuple[Any, str]] = {
    "is_decoder": (False, "each token attends to those before it alone"),
    "is_encoder_decoder": (False, "there is a decoder too"),
    "add_cross_attention": (False, "there is attention to another encoder"),
    "position_embedding_type": ("absolute", "positions are part of the attention"),
    "use_task_id": (False, "there is a table of tasks"),
    "norm_first": (False, "the norms stand before attention and feed-forward network"),
    "use_rms_norm": (False, "the norms do not subtract the mean"),
    "rope_theta": (None, "positions are part of the attention"),
    "pruned_heads": ({}, "layers have different numbers of heads"),
    "quantization_config": ({}, "the weights are not floating-point numbers"),
    "auto_map": ({}, "the network is computed by code of its own, which is not run"),
}


def check_network(config: Mapping[str, Any], folder: str) -> None:
    """Reject the config of a network that is neither an ELECTRA nor a BERT."""
    path, kind = os.path.join(folder, CONFIG), config.get("model_type")
    if kind is None and str(config.get("architectures")).startswith("['Roberta"):
        kind = "roberta"
    if kind not in (None, "electra", "bert"):
        raise InputError(
            f"model_type of {path} must be electra or bert, not {kind!r:.80}"
        )
    for key, (value, meaning) in _FIXED.items():
        if config.get(key) not in (None, value):
            raise InputError(
                f"{key} of {path} must be {value!r} or left out, not "
                f"{config[key]!r:.80}: {meaning}"
            )


def read_sizes(
    config: Mapping[str, Any], words: tuple[int, ...], folder: str
) -> EncoderConfig:
    """Return the shape of the encoder whose token table has the shape `words`."""
    path = os.path.join(folder, CONFIG)
    return shape_of_config(
        path,
        {**config, "vocab_size": words[0]},
        SIZES,
        embedding=words[1],
        max_positions=512,
        segments=2,
    )


def read_activation(config: Mapping[str, Any], folder: str) -> Activation:
    """Return how gelu is computed."""
    name = config.get("hidden_act", "gelu")
    if name in _EXACT:
        return "gelu"
    if name in _TANH:
        return "gelu_tanh"
    raise InputError(
        f"hidden_act of {folder}/{CONFIG} must be {', '.join(_EXACT + _TANH)}, not "
        f"{name!r}"
    )


def notes(
    config: Mapping[str, Any], entries: Sequence[str], folder: str
) -> Iterator[str]:
    """Yield notes on another [PAD], and on modules.

    `entries`: those of the vocabulary; empty if there is none.
    """
    path = f"{folder}/{CONFIG}"
    number = config.get("pad_token_id")
    if entries and number not in (None, pad := entries.index(PAD)):
        yield f"pad_token_id of {path} is {number!r:.80}; [PAD] is {pad}, and counts"
    if os.path.isfile(os.path.join(folder, MODULES)):
        yield (
            f"{folder}: the encoder alone is read, without the other modules of "
            f'{MODULES}; pass Encoder.embed the pooling of {POOLING}, "mean" or "cls"'
        )
