"""ELECTRA's forward pass in NumPy, from a network's weights by path.

float64, so that rounding errors do not hide a difference.
"""

import numpy as np
from scipy import special

from electra_tf import sources


def assert_same_networks(report):
    """Assert that a conversion's target has the weights of its source, to the bit."""
    target = sources.open_source(report.target)
    written = (target.fine_tuned or target.pretrained).networks
    if len(written) < len(report.model.networks):  # of a format without pairs
        written += sources.open_source(f"{report.target}/generator").pretrained.networks
    for old, new in zip(report.model.networks, written, strict=True):
        for name, weight in new.weights.items():
            np.testing.assert_array_equal(weight, old.weights[name], err_msg=name)
        names = old.weights.keys() - new.weights.keys()
        assert all(name.startswith("head/") for name in names)
        assert bool(names) == (report.target_format in ("keras_hub", "model_garden"))


def hidden_states(network, token_ids, segment_ids, padding_mask, activation=None):
    """Return the embeddings' output and the hidden states of each layer, [B, L, D]."""
    gelu = _GELU[activation or network.activation]

    def get(name):
        return network.weights[f"encoder/{name}"].astype(np.float64)

    def dense(name, x):
        return x @ get(f"{name}/kernel") + get(f"{name}/bias")

    def norm(name, x):
        return _norm(x, get(f"{name}/gamma"), get(f"{name}/beta"), network)

    def heads(name, x):
        return dense(name, x).reshape(*x.shape[:2], network.shape.heads, -1)

    x = get("embeddings/word_embeddings")[token_ids]
    x = x + get("embeddings/segment_embeddings")[segment_ids]
    x = x + get("embeddings/position_embeddings")[: x.shape[1]]
    x = norm("embeddings/layer_norm", x)
    if network.has_projection:
        x = dense("embeddings_project", x)
    bias = (1.0 - padding_mask[:, None, None, :]) * -10000.0
    states = [x]
    for number in range(network.shape.depth):
        layer = f"layer_{number}"
        query, key, value = (
            heads(f"{layer}/attention/{part}", x) for part in ("query", "key", "value")
        )
        scores = np.einsum("bqhk,bshk->bhqs", query, key) / np.sqrt(query.shape[-1])
        weights = special.softmax(scores + bias, -1)
        mixed = np.einsum("bhqs,bshk->bqhk", weights, value).reshape(x.shape)
        x = x + dense(f"{layer}/attention/output", mixed)
        x = norm(f"{layer}/attention_layer_norm", x)
        inner = gelu(dense(f"{layer}/intermediate", x))
        x = norm(f"{layer}/output_layer_norm", x + dense(f"{layer}/output", inner))
        states.append(x)
    return states


def logits(network, x):
    """Return the logits of a pre-training head on the states of the last layer.

    [B, L] of a discriminator, [B, L, V] of a masked LM.
    """
    weights = {
        name: array.astype(np.float64) for name, array in network.weights.items()
    }
    x = _GELU[network.activation](
        x @ weights["head/dense/kernel"] + weights["head/dense/bias"]
    )
    if network.role == "discriminator":
        scores = x @ weights["head/score/kernel"] + weights["head/score/bias"]
        return scores[..., 0]
    gamma, beta = (weights[f"head/layer_norm/{name}"] for name in ("gamma", "beta"))
    words = weights["encoder/embeddings/word_embeddings"]
    return _norm(x, gamma, beta, network) @ words.T + weights["head/output_bias"]


def _norm(x, gamma, beta, network):
    variance = x.var(-1, keepdims=True) + network.shape.layer_norm_epsilon
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(variance) * gamma + beta


def _by_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


_GELU = {
    "gelu": lambda x: 0.5 * x * (1.0 + special.erf(x / np.sqrt(2.0))),
    "gelu_tanh": _by_tanh,
}
