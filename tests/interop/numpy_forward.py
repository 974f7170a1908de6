"""Compare source and target of a conversion by a forward pass in NumPy.

It shares nothing with the conversion: the names and layouts of each library are written
here a second time, and each network is computed in its library's layout. A wrong
name or a wrong transpose in the table of `names.py` therefore shows as a difference.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from electra_tf import sources
from electra_tf.interop.network import (
    BIAS,
    COUNTS,
    TABLE,
    Activation,
    Network,
    Role,
    exchange_rows,
)
from electra_tf.runs.conversion import Conversion

Array = np.ndarray
_ROWS = 4096  # of a token table at a time
_END = "/.ATTRIBUTES/VARIABLE_VALUE"
# Tables of words, positions and segments; their layer norm, projection, layer n. {t} is
# the prefix of tables and {e} of the encoder.
_ENCODER = {
    "electra_tf": (
        "{t}encoder/embeddings/word_embeddings",
        "{t}encoder/embeddings/position_embeddings",
        "{t}encoder/embeddings/segment_embeddings",
        "{t}encoder/embeddings/layer_norm",
        "{e}encoder/embeddings_project",
        "{e}encoder/layer_{n}/",
    ),
    "tf1": (
        "{t}embeddings/word_embeddings",
        "{t}embeddings/position_embeddings",
        "{t}embeddings/token_type_embeddings",
        "{t}embeddings/LayerNorm",
        "{e}embeddings_project",
        "{e}encoder/layer_{n}/",
    ),
    "huggingface": (
        "{t}embeddings.word_embeddings.weight",
        "{t}embeddings.position_embeddings.weight",
        "{t}embeddings.token_type_embeddings.weight",
        "{t}embeddings.LayerNorm",
        "{e}embeddings_project",
        "{e}encoder.layer.{n}.",
    ),
    "keras_hub": (
        "layers/reversible_embedding/vars/0",
        "layers/position_embedding/vars/0",
        "layers/embedding/vars/0",
        "layers/layer_normalization",
        "layers/dense",
        "layers/transformer_encoder{_n}/",
    ),
    "model_garden": (
        "{e}layer_with_weights-0/embeddings" + _END,
        "{e}layer_with_weights-1/embeddings" + _END,
        "{e}layer_with_weights-2/embeddings" + _END,
        "{e}layer_with_weights-3",
        "{e}layer_with_weights-4",
        "{e}layer_with_weights-{garden}/",
    ),
}
_BERT_LAYER = (
    "attention/self/query attention/self/key attention/self/value "
    "attention/output/dense attention/output/LayerNorm intermediate/dense "
    "output/dense output/LayerNorm"
)
# Query, key, value, output and layer norm of attention; inner and outer layer, norm.
_LAYER = {
    "electra_tf": "attention/query attention/key attention/value attention/output "
    "attention_layer_norm intermediate output output_layer_norm",
    "tf1": _BERT_LAYER,
    "huggingface": _BERT_LAYER.replace("/", "."),
    "keras_hub": "_self_attention_layer/query_dense _self_attention_layer/key_dense "
    "_self_attention_layer/value_dense _self_attention_layer/output_dense "
    "_self_attention_layer_norm _feedforward_intermediate_dense "
    "_feedforward_output_dense _feedforward_layer_norm",
    "model_garden": "_attention_layer/_query_dense _attention_layer/_key_dense "
    "_attention_layer/_value_dense _attention_layer/_output_dense "
    "_attention_layer_norm _intermediate_dense _output_dense _output_layer_norm",
}
# Kernel, bias, gamma, beta.
_SUFFIXES = {
    "electra_tf": ("/kernel", "/bias", "/gamma", "/beta"),
    "tf1": ("/kernel", "/bias", "/gamma", "/beta"),
    "huggingface": (".weight", ".bias", ".weight", ".bias"),
    "keras_hub": ("/vars/0", "/vars/1", "/vars/0", "/vars/1"),
    "model_garden": tuple(f"/{n}{_END}" for n in ("kernel", "bias", "gamma", "beta")),
}
# Layer and score of a discriminator; layer, layer norm and output bias of a masked LM;
# layer of a classifier; hidden layer and output of one with a pooler, by its
# activation; start, hidden and end, hidden and answerable of an answerer.
_HEADS = {
    "electra_tf": {
        "discriminator": "head/dense head/score",
        "generator": "head/dense head/layer_norm head/output_bias",
        "classifier": "head/dense",
        "gelu": "head/pooler head/dense",
        "question_answerer": "head/start head/end_hidden head/end "
        "head/answerable_hidden head/answerable",
    },
    "tf1": {
        "discriminator": "discriminator_predictions/dense "
        "discriminator_predictions/dense_1",
        "generator": "generator_predictions/dense generator_predictions/LayerNorm "
        "generator_predictions/output_bias",
    },
    "huggingface": {
        "discriminator": "discriminator_predictions.dense "
        "discriminator_predictions.dense_prediction",
        "generator": "generator_predictions.dense generator_predictions.LayerNorm "
        "generator_lm_head.bias",
        "classifier": "classifier",
        "gelu": "classifier.dense classifier.out_proj",
    },
}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Largest absolute differences between a source's network and the target's."""

    role: Role
    hidden: float
    """Over the hidden states of all layers."""
    logits: float | None
    """None where the target has no head."""
    exact_hidden: float | None = None
    """Difference with each library's own gelu, if one computes it by tanh; `hidden` and
    `logits` then use tanh on both sides."""

    @property
    def largest(self) -> float:
        """The larger of the two."""
        return max(self.hidden, self.logits or 0.0)


def prove(report: Conversion) -> list[Comparison]:
    """Compare the networks of a conversion's source with those of its target.

    Their weights are equal to the bit, and their sizes too.
    """
    target = sources.open_source(report.target)
    written = (target.fine_tuned or target.pretrained).networks
    if len(written) < len(report.model.networks):  # of a format without pairs
        written += sources.open_source(f"{report.target}/generator").pretrained.networks
    pairs = list(zip(report.model.networks, written, strict=True))
    for old, new in pairs:
        for name, weight in new.weights.items():
            np.testing.assert_array_equal(weight, old.weights[name], err_msg=name)
        assert _sizes(old) == _sizes(new)
    return [compare(old.origin, new.origin) for old, new in pairs]


def _sizes(network: Network) -> list[int]:
    return [getattr(network.shape, name) for name in COUNTS]


def compare(source: Network, target: Network) -> Comparison:
    """Compute both networks on a probe batch."""
    batch = _probe(source)
    by_tanh = source.activation != target.activation
    common: Activation | None = "gelu_tanh" if by_tanh else None
    ours, theirs = (
        hidden_states(n, *_ids_of(n, batch), common) for n in (source, target)
    )
    hidden = max(_distance(a, b) for a, b in zip(ours, theirs, strict=True))
    one, other = (
        _logits(n, states[-1], common)
        for n, states in ((source, ours), (target, theirs))
    )
    difference = None if one is None or other is None else _distance(one, other)
    exact = None
    if by_tanh:
        own = (hidden_states(n, *_ids_of(n, batch)) for n in (source, target))
        exact = max(_distance(a, b) for a, b in zip(*own, strict=True))
    return Comparison(source.role, hidden, difference, exact)


def _ids_of(network: Network, batch: Sequence[Array]) -> tuple[Array, ...]:
    """Return the batch with the ids that the network's own table has."""
    token_ids, *others = batch
    ids_V = np.arange(network.shape.vocabulary_size)
    ids_V = exchange_rows({TABLE: ids_V}, network.pad_id)[TABLE]
    return ids_V[token_ids], *others


def _logits(network: Network, x: Array, activation: Activation | None) -> Array | None:
    """Return the head's logits; those of a masked LM in this package's order."""
    values = logits(network, x, activation)
    if network.role != "generator" or values is None:
        return values
    exchanged = exchange_rows({BIAS: np.moveaxis(values, -1, 0)}, network.pad_id)
    return np.moveaxis(exchanged[BIAS], 0, -1)


def _distance(a: Array, b: Array) -> float:
    return float(np.abs(a - b).max())


def _probe(network: Network) -> tuple[Array, Array, Array]:
    """Return ids of all parts of the vocabulary, both segments, and padding."""
    shape, rng = network.shape, np.random.default_rng(0)
    length = min(24, shape.max_positions)
    token_ids = rng.integers(0, shape.vocabulary_size, (2, length))
    segment_ids = np.zeros_like(token_ids)
    segment_ids[:, length // 2 :] = shape.segments - 1
    padding_mask = np.ones_like(token_ids)
    padding_mask[1, length - length // 4 :] = 0
    return token_ids, segment_ids, padding_mask


def hidden_states(
    network: Network,
    token_ids: Array,
    segment_ids: Array,
    padding_mask: Array,
    activation: Activation | None = None,
) -> list[Array]:
    """Compute the embeddings' output and the hidden states of each layer.

    Returns:
        float64 [B, L, D], depth + 1 of them; rounding errors do not hide a difference.
    """
    net, act = _Layers(network), _activation(activation or network.activation)
    words, positions, segments, norm, projection, _ = net.encoder_names(0)
    x = network.weights[words][token_ids].astype(np.float64)
    x += net.get(segments)[segment_ids]
    x += net.get(positions)[: x.shape[1]]
    x = net.norm(norm, x)
    if network.has_projection:
        x = net.dense(projection, x)
    bias = (1.0 - padding_mask[:, None, None, :]) * -10000.0
    states = [x]
    for number in range(network.shape.depth):
        *_, layer = net.encoder_names(number)
        names = (layer + part for part in _LAYER[network.format].split())
        query, key, value, output, attention_norm, inner, outer, norm = names
        mixed = _attend(*(net.heads(name, x) for name in (query, key, value)), bias)
        x = net.norm(attention_norm, x + net.merge(output, mixed))
        x = net.norm(norm, x + net.dense(outer, act(net.dense(inner, x))))
        states.append(x)
    return states


def _attend(query: Array, key: Array, value: Array, bias: Array) -> Array:
    scores = np.einsum("bqhk,bshk->bhqs", query, key) / np.sqrt(query.shape[-1])
    return np.einsum("bhqs,bshk->bqhk", special.softmax(scores + bias, -1), value)


def logits(
    network: Network, x: Array, activation: Activation | None = None
) -> Array | None:
    """Compute the head's logits, or None where the network has no head.

    `x` are the hidden states of the last layer, [B, L, D].

    Returns:
        float64 [B, L] of a discriminator, [B, L, V] of a masked LM, [B, C] or
        [B, L, C] of a classifier; [B, L, 2] of a question answerer, start and end, or
        [B, L, 3] with the logit of no answer.
    """
    role, heads = network.role, _HEADS.get(network.format)
    if role == "encoder" or heads is None:
        return None
    net, act = _Layers(network), _activation(activation or network.activation)
    if role == "question_answerer":
        return _span_logits(network, net, act, x)
    if network.head is not None and network.head.pooler != "none":
        # This gelu is exact in transformers, whatever `hidden_act` is.
        pooler, output = heads[network.head.pooler].split()
        return net.dense(output, _activation("gelu")(net.dense(pooler, x[:, 0])))
    known = role in ("discriminator", "generator")
    names = heads[role if known else "classifier"].split()
    dense, *others = (network.prefixes.head + name for name in names)
    if not known:
        return net.dense(dense, x if role == "token_classifier" else x[:, 0])
    x = act(net.dense(dense, x))
    if role == "discriminator":
        return net.dense(others[0], x)[..., 0]
    x = net.norm(others[0], x)
    words_VE = network.weights[net.encoder_names(0)[0]]
    # In parts: in float64 the whole table would be twice its size.
    parts = (
        words_VE[start : start + _ROWS].astype(np.float64)
        for start in range(0, len(words_VE), _ROWS)
    )
    scores = np.concatenate([x @ part_XE.T for part_XE in parts], axis=-1)
    return scores + net.get(others[1])


def _span_logits(
    network: Network, net: "_Layers", act: Callable[[Array], Array], x: Array
) -> Array:
    """Compute the logits of spans; those of an end are given the second position."""
    if network.format == "huggingface":
        return net.dense("qa_outputs", x)
    names = _HEADS[network.format]["question_answerer"].split()
    start, hidden, end, no_answer, score = (network.prefixes.head + n for n in names)
    start_BL1, ends = net.dense(start, x), x
    if network.head.joint_prediction:
        given = np.broadcast_to(x[:, 1:2], x.shape)
        ends = act(net.dense(hidden, np.concatenate([given, x], -1)))
    outputs = [start_BL1, net.dense(end, ends)]
    if network.head.answerable:
        start_BD = (special.softmax(start_BL1, 1) * x).sum(1)
        pair = np.concatenate([x[:, 0], start_BD], -1)
        logit = net.dense(score, act(net.dense(no_answer, pair)))
        outputs.append(np.broadcast_to(logit[:, None], start_BL1.shape))
    return np.concatenate(outputs, -1)


class _Layers:
    """Layers of a network by the names and in the layouts of its library."""

    def __init__(self, network: Network):
        self.network = network
        self.kernel, self.bias, *self.scales = _SUFFIXES[network.format]

    def encoder_names(self, number: int) -> list[str]:
        """Return the names of `_ENCODER`, with a layer's number."""
        encoder, tables, _ = self.network.prefixes
        garden = number + 4 + self.network.has_projection
        values = {"_n": f"_{number}" if number else "", "garden": garden}
        return [
            name.format(e=encoder, t=tables, n=number, **values)
            for name in _ENCODER[self.network.format]
        ]

    def get(self, name: str) -> Array:
        return self.network.weights[name].astype(np.float64)

    def dense(self, name: str, x: Array) -> Array:
        kernel = self.get(name + self.kernel)
        kernel = kernel.T if self.network.format == "huggingface" else kernel
        return x @ kernel + self.get(name + self.bias)

    def norm(self, name: str, x: Array) -> Array:
        gamma, beta = (self.get(name + end) for end in self.scales)
        centred = x - x.mean(-1, keepdims=True)
        epsilon = self.network.shape.layer_norm_epsilon
        return centred / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma + beta

    def heads(self, name: str, x: Array) -> Array:
        """Return queries, keys or values, [B, L, H, K]."""
        kernel = self.get(name + self.kernel)
        if kernel.ndim == 3:
            return np.einsum("bld,dhk->blhk", x, kernel) + self.get(name + self.bias)
        heads = self.network.shape.heads
        return self.dense(name, x).reshape(*x.shape[:2], heads, -1)

    def merge(self, name: str, x: Array) -> Array:
        """Return the output layer of attention on [B, L, H, K]."""
        kernel = self.get(name + self.kernel)
        if kernel.ndim == 3:
            return np.einsum("bqhk,hkd->bqd", x, kernel) + self.get(name + self.bias)
        return self.dense(name, x.reshape(*x.shape[:2], -1))


def _activation(name: Activation) -> Callable[[Array], Array]:
    if name == "gelu":
        return lambda x: x * 0.5 * (1.0 + special.erf(x / np.sqrt(2.0)))
    return lambda x: (
        x * 0.5 * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    )
