"""Forward pass in NumPy on a library's own tensors, to compare source and target.

It shares nothing with the conversion: the names and layouts of each library are written
here a second time, and each network is computed in its library's layout. A wrong
name or a wrong transpose in the table of `names.py` therefore shows as a difference.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from electra_tf.interop.network import Activation, Network

Array = np.ndarray
_ROWS = 4096  # of a token table at a time


class _Names(NamedTuple):
    """The names of an encoder's parts in one library."""

    words: str
    positions: str
    segments: str
    embeddings_norm: str
    projection: str
    layer: str
    query: str
    key: str
    value: str
    attention: str
    attention_norm: str
    inner: str
    outer: str
    norm: str
    suffixes: tuple[str, str, str, str]  # kernel, bias, gamma, beta


_BERT_LAYER = (
    "attention/self/query attention/self/key attention/self/value "
    "attention/output/dense attention/output/LayerNorm intermediate/dense "
    "output/dense output/LayerNorm"
)
_OUR_LAYER = (
    "attention/query attention/key attention/value attention/output "
    "attention_layer_norm intermediate output output_layer_norm"
)
_KERAS_HUB_LAYER = (
    "_self_attention_layer/query_dense _self_attention_layer/key_dense "
    "_self_attention_layer/value_dense _self_attention_layer/output_dense "
    "_self_attention_layer_norm _feedforward_intermediate_dense "
    "_feedforward_output_dense _feedforward_layer_norm"
)
_GARDEN_LAYER = (
    "_attention_layer/_query_dense _attention_layer/_key_dense "
    "_attention_layer/_value_dense _attention_layer/_output_dense "
    "_attention_layer_norm _intermediate_dense _output_dense _output_layer_norm"
)


def _names(network: Network) -> _Names:
    encoder, embeddings, _ = network.prefixes
    if network.format == "keras_hub":
        return _Names(
            "layers/reversible_embedding/vars/0",
            "layers/position_embedding/vars/0",
            "layers/embedding/vars/0",
            "layers/layer_normalization",
            "layers/dense",
            "layers/transformer_encoder",
            *_KERAS_HUB_LAYER.split(),
            ("/vars/0", "/vars/1", "/vars/0", "/vars/1"),
        )
    if network.format == "model_garden":
        weight = encoder + "layer_with_weights-{}"
        end = "/.ATTRIBUTES/VARIABLE_VALUE"
        return _Names(
            f"{weight.format(0)}/embeddings{end}",
            f"{weight.format(1)}/embeddings{end}",
            f"{weight.format(2)}/embeddings{end}",
            weight.format(3),
            weight.format(4),
            weight,
            *_GARDEN_LAYER.split(),
            (f"/kernel{end}", f"/bias{end}", f"/gamma{end}", f"/beta{end}"),
        )
    if network.format == "electra_tf":
        tables = f"{embeddings}encoder/embeddings/"
        return _Names(
            f"{tables}word_embeddings",
            f"{tables}position_embeddings",
            f"{tables}segment_embeddings",
            f"{tables}layer_norm",
            f"{encoder}encoder/embeddings_project",
            f"{encoder}encoder/layer_",
            *_OUR_LAYER.split(),
            ("/kernel", "/bias", "/gamma", "/beta"),
        )
    tf1 = network.format == "tf1"
    slash, table = ("/", "") if tf1 else (".", ".weight")
    parts = (part.replace("/", slash) for part in _BERT_LAYER.split())
    kernel, gamma, beta = (
        ("kernel", "gamma", "beta") if tf1 else ("weight", "weight", "bias")
    )
    return _Names(
        f"{embeddings}embeddings{slash}word_embeddings{table}",
        f"{embeddings}embeddings{slash}position_embeddings{table}",
        f"{embeddings}embeddings{slash}token_type_embeddings{table}",
        f"{embeddings}embeddings{slash}LayerNorm",
        f"{encoder}embeddings_project",
        f"{encoder}encoder{slash}layer{'_' if tf1 else '.'}",
        *parts,
        (slash + kernel, f"{slash}bias", slash + gamma, slash + beta),
    )


def hidden_states(
    network: Network,
    token_ids: Array,
    segment_ids: Array,
    padding_mask: Array,
    activation: Activation | None = None,
) -> list[Array]:
    """Compute the embeddings' output and the hidden states of each layer.

    Args:
        network: With its library's tensors.
        token_ids: int [B, L].
        segment_ids: int [B, L].
        padding_mask: int [B, L], 1 at real tokens.
        activation: In place of the network's own.

    Returns:
        float64 [B, L, D], depth + 1 of them; rounding errors do not hide a difference.
    """
    names = _names(network)
    act = _activation(activation or network.activation)
    x = network.weights[names.words][token_ids].astype(np.float64)
    x += _get(network, names.segments)[segment_ids]
    x += _get(network, names.positions)[: x.shape[1]]
    x = _norm(network, names, names.embeddings_norm, x)
    if network.has_projection:
        x = _dense(network, names, names.projection, x)
    bias = (1.0 - padding_mask[:, None, None, :]) * -10000.0
    states = [x]
    for number in range(network.shape.depth):
        layer = _layer(network, names, number)
        x = _attend(network, names, layer, x, bias)
        inner = act(_dense(network, names, layer + names.inner, x))
        x = _norm(
            network, names, layer + names.norm,
            x + _dense(network, names, layer + names.outer, inner),
        )  # fmt: skip
        states.append(x)
    return states


def logits(
    network: Network, x: Array, activation: Activation | None = None
) -> Array | None:
    """Compute the head's logits, or None where the network has no head.

    Args:
        network: With its library's tensors.
        x: Hidden states of the last layer, [B, L, D].
        activation: In place of the network's own.

    Returns:
        float64 [B, L] of a discriminator, [B, L, V] of a masked LM, [B, C] or
        [B, L, C] of a classifier; [B, L, 2] of a question answerer, start and end, or
        [B, L, 3] with the logit of no answer.
    """
    if network.role == "encoder" or network.format in ("keras_hub", "model_garden"):
        return None
    names, act = _names(network), _activation(activation or network.activation)
    if network.head is not None:
        return _task_logits(network, names, act, x)
    dense, score, norm, bias = (
        network.prefixes.head + part
        for part in _HEAD_NAMES[network.format][network.role]
    )
    x = act(_dense(network, names, dense, x))
    if network.role == "discriminator":
        return _dense(network, names, score, x)[..., 0]
    x = _norm(network, names, norm, x)
    words_VE = network.weights[names.words]
    # In parts: in float64 the whole table would be twice its size.
    parts = (
        words_VE[start : start + _ROWS].astype(np.float64)
        for start in range(0, len(words_VE), _ROWS)
    )
    scores = np.concatenate([x @ part_XE.T for part_XE in parts], axis=-1)
    return scores + _get(network, bias)


def _task_logits(
    network: Network, names: _Names, act: Callable[[Array], Array], x: Array
) -> Array:
    """Compute the logits of a task; those of an end are given the second position."""
    kind, prefix, head = network.format, network.prefixes.head, network.head
    if head.role != "question_answerer":
        layer = {
            "electra_tf": "head/dense",
            "tf1": "dense",
            "huggingface": "classifier",
        }
        x = x if head.role == "token_classifier" else x[:, 0]
        return _dense(network, names, prefix + layer[kind], x)
    if kind == "huggingface":
        return _dense(network, names, "qa_outputs", x)
    start, hidden, end, no_answer, score = (
        prefix + name for name in _SPAN_NAMES[kind].split()
    )
    start_BL1 = _dense(network, names, start, x)
    ends = x
    if head.joint_prediction:
        given = np.broadcast_to(x[:, 1:2], x.shape)
        ends = act(_dense(network, names, hidden, np.concatenate([given, x], -1)))
    outputs = [start_BL1, _dense(network, names, end, ends)]
    if head.answerable:
        start_BD = (special.softmax(start_BL1, 1) * x).sum(1)
        pair = np.concatenate([x[:, 0], start_BD], -1)
        logit = _dense(
            network, names, score, act(_dense(network, names, no_answer, pair))
        )
        outputs.append(np.broadcast_to(logit[:, None], start_BL1.shape))
    return np.concatenate(outputs, -1)


_SPAN_NAMES = {
    "electra_tf": "head/start head/end_hidden head/end head/answerable_hidden "
    "head/answerable",
    "tf1": "dense qa_hidden dense_1 dense_2 dense_3",
}
# The names of a head's layer, score, layer norm and output bias.
_HEAD_NAMES = {
    "electra_tf": {
        "discriminator": ("head/dense", "head/score", "", ""),
        "generator": ("head/dense", "", "head/layer_norm", "head/output_bias"),
    },
    "tf1": {
        "discriminator": (
            "discriminator_predictions/dense",
            "discriminator_predictions/dense_1",
            "",
            "",
        ),
        "generator": (
            "generator_predictions/dense",
            "",
            "generator_predictions/LayerNorm",
            "generator_predictions/output_bias",
        ),
    },
    "huggingface": {
        "discriminator": (
            "discriminator_predictions.dense",
            "discriminator_predictions.dense_prediction",
            "",
            "",
        ),
        "generator": (
            "generator_predictions.dense",
            "",
            "generator_predictions.LayerNorm",
            "generator_lm_head.bias",
        ),
    },
}


def _get(network: Network, name: str) -> Array:
    return network.weights[name].astype(np.float64)


def _layer(network: Network, names: _Names, number: int) -> str:
    if network.format == "keras_hub":
        return f"{names.layer}{f'_{number}' if number else ''}/"
    if network.format == "model_garden":
        return f"{names.layer.format(number + 4 + network.has_projection)}/"
    return f"{names.layer}{number}{'.' if network.format == 'huggingface' else '/'}"


def _attend(
    network: Network, names: _Names, layer: str, x: Array, bias: Array
) -> Array:
    query, key, value = (
        _heads(network, names, layer + part, x)
        for part in (names.query, names.key, names.value)
    )
    scores = np.einsum("bqhk,bshk->bhqs", query, key) / np.sqrt(query.shape[-1])
    mixed = np.einsum("bhqs,bshk->bqhk", special.softmax(scores + bias, -1), value)
    kernel = _get(network, layer + names.attention + names.suffixes[0])
    if kernel.ndim == 3:
        out = np.einsum("bqhk,hkd->bqd", mixed, kernel)
        out += _get(network, layer + names.attention + names.suffixes[1])
    else:
        flat = mixed.reshape(*mixed.shape[:2], -1)
        out = _dense(network, names, layer + names.attention, flat)
    return _norm(network, names, layer + names.attention_norm, x + out)


def _heads(network: Network, names: _Names, name: str, x: Array) -> Array:
    kernel = _get(network, name + names.suffixes[0])
    if kernel.ndim == 3:
        out = np.einsum("bld,dhk->blhk", x, kernel)
        return out + _get(network, name + names.suffixes[1])
    out = _dense(network, names, name, x)
    return out.reshape(*x.shape[:2], network.shape.heads, -1)


def _dense(network: Network, names: _Names, name: str, x: Array) -> Array:
    kernel = _get(network, name + names.suffixes[0])
    kernel = kernel.T if network.format == "huggingface" else kernel
    return x @ kernel + _get(network, name + names.suffixes[1])


def _norm(network: Network, names: _Names, name: str, x: Array) -> Array:
    epsilon = network.shape.layer_norm_epsilon
    gamma, beta = (_get(network, name + end) for end in names.suffixes[2:])
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma + beta


def _activation(name: Activation) -> Callable[[Array], Array]:
    if name == "gelu":
        return lambda x: x * 0.5 * (1.0 + special.erf(x / np.sqrt(2.0)))
    return lambda x: (
        x * 0.5 * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    )
