"""Attention for GPUs, forward and backward, as `device_kernels.py` has the others."""

import functools

import device_kernels
import jax.numpy as jnp
import numpy as np
from device_kernels import Array, Ref, dot, dropout, grid_2d, pallas_call, read_vector
from jax import lax
from jax.experimental import pallas as pl


class _Heads:
    """Parts of the attention of one head of one text, within a kernel."""

    def __init__(self, qkv: Ref, bias: Ref, mask: Ref, seeds: Ref, places: Ref, rate):
        _, self.length, _, self.heads, self.width = qkv.shape
        self.text, self.head = pl.program_id(0), pl.program_id(1)
        self._qkv, self._mask = qkv, mask
        self._bias = [
            read_vector(
                bias,
                places[0],
                (i * self.heads + self.head) * self.width,
                self.width,
                3 * self.heads * self.width,
            )
            for i in range(3)
        ]
        self._drop = dropout(rate, seeds, places[1])

    def part(self, which: int, first: Array, size: int) -> Array:
        """Return queries (0), keys (1) or values (2) of some positions, [size, H]."""
        x = self._qkv[self.text, pl.ds(first, size), which, self.head, :]
        return (x.astype(jnp.float32) + self._bias[which]).astype(x.dtype)

    def scores(self, q: Array, k: Array, first_key: Array) -> Array:
        """Return the masked scores of queries and keys, float32."""
        scores = dot(q, k.T)
        mask = self._mask[self.text, pl.ds(first_key, k.shape[0])]
        return scores * np.float32(self.width**-0.5) + mask

    def drop(self, x: Array, first_query: Array, first_key: Array) -> Array:
        """Apply dropout to weights [queries, keys] or to their gradient."""
        query, key = grid_2d(*x.shape)
        row = self.head * self.length + first_query + query
        return self._drop(x, self.text, row * self.length + first_key + key)

    def backward(
        self,
        context: Ref,
        log_sums: Ref,
        upstream: Ref,
        q: Array,
        k: Array,
        v: Array,
        first: Array,
        first_key: Array,
    ) -> tuple[Array, Array, Array]:
        """Return the context's gradient, dropped weights, and the scores' gradient."""
        at = pl.ds(first, q.shape[0])
        up = upstream[self.text, at, self.head, :]
        output = context[self.text, at, self.head, :]
        mean = jnp.sum(up.astype(jnp.float32) * output.astype(jnp.float32), 1)
        log_sum = log_sums[self.text, self.head, at]
        weights = jnp.exp(self.scores(q, k, first_key) - log_sum[:, None])
        grad = self.drop(dot(up, v.T), first, first_key) - mean[:, None]
        grad = (weights * grad * np.float32(self.width**-0.5)).astype(q.dtype)
        return up, self.drop(weights, first, first_key).astype(q.dtype), grad


def attention(
    qkv_BL3NH: Array,
    bias_P: Array,
    mask_BL: Array,
    seeds_BS2: Array,
    places_2: Array,
    *,
    rate: float,
    block: int,
) -> tuple[Array, Array]:
    """Compute attention from queries, keys and values without their bias.

    `places_2` are the place of the bias [3, N, H] and the dropout call's number.

    Returns:
        The context [B, L, N, H], and log sum exp of the scores [B, N, L], float32.
    """
    batch, length, _, heads, width = qkv_BL3NH.shape
    dtype = qkv_BL3NH.dtype

    def kernel(qkv, bias, mask, seeds, places, context, log_sums):
        head = _Heads(qkv, bias, mask, seeds, places, rate)
        first = pl.program_id(2) * block
        q = head.part(0, first, block)

        def step(i, state):
            result, largest, total = state
            first_key = i * block
            scores = head.scores(q, head.part(1, first_key, block), first_key)
            new = jnp.maximum(largest, jnp.max(scores, 1))
            weights, correction = jnp.exp(scores - new[:, None]), jnp.exp(largest - new)
            dropped = head.drop(weights, first, first_key).astype(dtype)
            values = head.part(2, first_key, block)
            result = result * correction[:, None] + dot(dropped, values)
            return result, new, total * correction + jnp.sum(weights, 1)

        start = jnp.full(block, -1e30, jnp.float32), jnp.zeros(block, jnp.float32)
        state = jnp.zeros((block, width), jnp.float32), *start
        result, largest, total = lax.fori_loop(0, length // block, step, state)
        at = pl.ds(first, block)
        context[head.text, at, head.head, :] = (result / total[:, None]).astype(dtype)
        log_sums[head.text, head.head, at] = largest + jnp.log(total)

    results = [((batch, length, heads, width), dtype)]
    results.append(((batch, heads, length), jnp.float32))
    call = pallas_call(kernel, grid=(batch, heads, length // block), results=results)
    return call(qkv_BL3NH, bias_P, mask_BL, seeds_BS2, places_2)


def attention_backward(
    qkv_BL3NH: Array,
    bias_P: Array,
    mask_BL: Array,
    seeds_BS2: Array,
    places_2: Array,
    context_BLNH: Array,
    log_sums_BNL: Array,
    upstream_BLNH: Array,
    *,
    rate: float,
    block: int,
) -> tuple[Array, Array]:
    """Return the gradient of `attention`; partial sums of the bias's [G, 3 * N * H].

    A program computes the gradients of some keys and values, then of as many queries.
    """
    batch, length, _, heads, width = qkv_BL3NH.shape
    dtype = qkv_BL3NH.dtype
    blocks = length // block

    def kernel(qkv, bias, mask, seeds, places, context, log_sums, upstream, dqkv, sums):
        head = _Heads(qkv, bias, mask, seeds, places, rate)
        own = pl.program_id(2) * block

        of_scores = functools.partial(head.backward, context, log_sums, upstream)
        keys, values = head.part(1, own, block), head.part(2, own, block)

        def add_queries(i, state):
            q = head.part(0, i * block, block)
            up, dropped, grad = of_scores(q, keys, values, i * block, own)
            return state[0] + dot(grad.T, q), state[1] + dot(dropped.T, up)

        zeros = jnp.zeros((block, width), jnp.float32)
        dk, dv = lax.fori_loop(0, blocks, add_queries, (zeros, zeros))
        queries = head.part(0, own, block)

        def add_keys(i, dq):
            k, v = (head.part(part, i * block, block) for part in (1, 2))
            return dq + dot(of_scores(queries, k, v, own, i * block)[2], k)

        dq = lax.fori_loop(0, blocks, add_keys, zeros)
        for part, grad in enumerate((dq, dk, dv)):
            at = pl.ds(own, block)
            dqkv[head.text, at, part, head.head, :] = grad.astype(dtype)
            number = head.text * blocks + pl.program_id(2)
            sums[number, part, head.head, :] = jnp.sum(grad, 0)

    results = [(qkv_BL3NH.shape, dtype)]
    results.append(((batch * blocks, 3, heads, width), jnp.float32))
    call = pallas_call(kernel, grid=(batch, heads, blocks), results=results)
    operands = qkv_BL3NH, bias_P, mask_BL, seeds_BS2, places_2
    dqkv, sums_G3NH = call(*operands, context_BLNH, log_sums_BNL, upstream_BLNH)
    return dqkv, sums_G3NH.reshape(batch * blocks, -1)


KERNELS = device_kernels.KERNELS | {
    kernel.__name__: kernel for kernel in (attention, attention_backward)
}
"""All kernels by the name in a call."""
