"""Kernels of a Transformer layer for GPUs, written in JAX's Pallas for Triton.

`device_layer_ops.py` calls them by name from a step that is exported; `program.py` puts
them into its program. Vectors, such as biases, are float32.

Shape suffixes: X rows of all texts, B texts, L positions, D width, N heads, H width of
a head, E width of queries, keys and values, F width of the feed-forward network, G
programs.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

_MAX_PROGRAMS = 128  # of norms; their partial sums are added afterwards

# Factors of the powers of x^2 above and below the fraction, from the highest.
_ERF = (
    (0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861,
     0.18520832239976145, 1.128379143519084),
    (-1.1791602954361697e-7, 0.000023547966471313185, 0.0010179625278914885,
     0.014070470171167667, 0.11098505178285362, 0.49746925110067538, 1.0),
)  # fmt: skip

Array = jax.Array
Ref = Any


def _pallas_call(
    kernel: Callable, *, grid: tuple, results: list, warps: int = 4, stages: int = 2
) -> Callable:
    return pl.pallas_call(
        kernel,
        grid=grid,
        out_shape=[jax.ShapeDtypeStruct(*result) for result in results],
        compiler_params=plt.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=_is_interpreted,
    )


_is_interpreted = False


def interpret(value: bool = True) -> None:
    """Choose whether kernels run as plain JAX operations, on any device."""
    global _is_interpreted
    _is_interpreted = value


def _power_of_2(size: int) -> int:
    """Return the next power of 2, because Triton's blocks have no other sizes."""
    return 1 << (size - 1).bit_length()


def _divisor(size: int, largest: int) -> int:
    """Return the largest power of 2 that divides a size, at most `largest`."""
    return min(size & -size, largest)


def _read_vector(vector: Ref, start: Any, size: int) -> Array:
    """Return values of a vector, 0 from its end on."""
    is_inside = start + jnp.arange(size) < vector.shape[0]
    return plt.load(vector.at[pl.ds(start, size)], mask=is_inside, other=0.0)


def _mix(bits: Array, shift: int, factor: int = 1) -> Array:
    return (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)


def _dropout(rate: float, seeds_B2: Ref) -> Callable:
    """Return a function that applies the dropout of `rng.apply_dropout`.

    It takes values, the number of their text and their indices within it.
    """
    threshold = min(round(rate * 2**32), 2**32 - 1)

    def apply(x: Array, row: Array, index: Array) -> Array:
        if not threshold:
            return x
        bits = index.astype(jnp.uint32) + seeds_B2[row, 0]
        bits = _mix(_mix(bits, 17, 0xED5AD4BB), 11, 0xAC4C1B51)
        bits = _mix(_mix(bits ^ seeds_B2[row, 1], 15, 0x31848BAB), 14)
        scaled = x * np.float32(1 / (1 - threshold / 2**32))
        return jnp.where(bits >= np.uint32(threshold), scaled, 0.0)

    return apply


def erf(x: Array) -> Array:
    """Return the error function by XLA's rational approximation, to 1e-7."""
    x = jnp.clip(x, -3.832506856900711, 3.832506856900711)
    square = x * x
    above, below = (
        functools.reduce(lambda total, factor: total * square + factor, factors)
        for factors in _ERF
    )
    return x * above / below


def _grid_2d(rows: int, columns: int) -> tuple[Array, Array]:
    shape = rows, columns
    return lax.broadcasted_iota(jnp.int32, shape, 0), lax.broadcasted_iota(
        jnp.int32, shape, 1
    )


def add_norm(
    x_XD: Array,
    residual_XD: Array,
    bias_D: Array,
    gamma_D: Array,
    beta_D: Array,
    seeds_B2: Array,
    *,
    rate: float,
    epsilon: float,
    block: int,
) -> tuple[Array, ...]:
    """Add bias, dropout and residual, and normalise.

    Returns:
        Normalised sum, sum, and of each row mean and 1 / standard deviation.
    """
    (rows, width), length = x_XD.shape, x_XD.shape[0] // seeds_B2.shape[0]
    padded = _power_of_2(width)

    def kernel(x, residual, bias, gamma, beta, seeds, normed, total, mean, inv):
        first = pl.program_id(0) * block
        row, column = _grid_2d(block, padded)
        is_inside = column < width
        at = pl.ds(first, block), pl.ds(0, padded)
        load = functools.partial(plt.load, mask=is_inside, other=0.0)
        vectors = bias, gamma, beta
        bias, gamma, beta = (_read_vector(vector, 0, padded) for vector in vectors)
        text = first // length
        index = (first - text * length + row) * width + column
        dropped = _dropout(rate, seeds)(
            load(x.at[at]).astype(jnp.float32) + bias, text, index
        )
        sum_ = load(residual.at[at]).astype(jnp.float32) + dropped
        centre = jnp.sum(sum_, 1) * np.float32(1 / width)
        centred = jnp.where(is_inside, sum_ - centre[:, None], 0.0)
        variance = jnp.sum(centred * centred, 1) * np.float32(1 / width)
        scale = lax.rsqrt(variance + np.float32(epsilon))
        result = centred * scale[:, None] * gamma + beta
        plt.store(normed.at[at], result.astype(normed.dtype), mask=is_inside)
        plt.store(total.at[at], sum_.astype(total.dtype), mask=is_inside)
        mean[at[0]], inv[at[0]] = centre, scale

    results = [(x_XD.shape, x_XD.dtype)] * 2 + [((rows,), jnp.float32)] * 2
    call = _pallas_call(kernel, grid=(rows // block,), results=results)
    return call(x_XD, residual_XD, bias_D, gamma_D, beta_D, seeds_B2)


def _through_norm(grad_XD: Array, standard_XD: Array, width: int) -> Array:
    """Return the gradient of standardised values less its mean and its projection."""
    mean, projection = (
        jnp.sum(values, 1)[:, None] * np.float32(1 / width)
        for values in (grad_XD, grad_XD * standard_XD)
    )
    return grad_XD - mean - standard_XD * projection


def add_norm_backward(
    upstream_XD: Array,
    total_XD: Array,
    mean_X: Array,
    scale_X: Array,
    gamma_D: Array,
    seeds_B2: Array,
    *,
    rate: float,
    block: int,
) -> tuple[Array, ...]:
    """Return the gradients of `add_norm`.

    Returns:
        Gradients of x and of the residual; partial sums of those of bias, gamma and
        beta [G, 3, D], float32.
    """
    (rows, width), length = total_XD.shape, total_XD.shape[0] // seeds_B2.shape[0]
    padded = _power_of_2(width)
    programs = _divisor(rows // block, _MAX_PROGRAMS)
    steps = rows // block // programs

    def kernel(up, total, mean, scale, gamma, seeds, dx, dtotal, sums):
        gamma, drop = _read_vector(gamma, 0, padded), _dropout(rate, seeds)
        row, column = _grid_2d(block, padded)
        is_inside = column < width
        load = functools.partial(plt.load, mask=is_inside, other=0.0)
        number = pl.program_id(0)

        def step(i, totals):
            first = (number * steps + i) * block
            at = pl.ds(first, block), pl.ds(0, padded)
            upstream = load(up.at[at]).astype(jnp.float32)
            inverse = scale[at[0]][:, None]
            standard = load(total.at[at]).astype(jnp.float32) - mean[at[0]][:, None]
            standard = jnp.where(is_inside, standard * inverse, 0.0)
            grad = inverse * _through_norm(upstream * gamma, standard, width)
            text = first // length
            index = (first - text * length + row) * width + column
            grad_x = jnp.where(is_inside, drop(grad, text, index), 0.0)
            plt.store(dx.at[at], grad_x.astype(dx.dtype), mask=is_inside)
            plt.store(dtotal.at[at], grad.astype(dtotal.dtype), mask=is_inside)
            added = grad_x, upstream * standard, upstream
            return tuple(t + jnp.sum(a, 0) for t, a in zip(totals, added, strict=True))

        zeros = (jnp.zeros(padded, jnp.float32),) * 3
        for i, values in enumerate(lax.fori_loop(0, steps, step, zeros)):
            at = sums.at[number, jnp.int32(i), pl.ds(0, padded)]
            plt.store(at, values, mask=jnp.arange(padded) < width)

    results = [(total_XD.shape, total_XD.dtype)] * 2
    results.append(((programs, 3, width), jnp.float32))
    call = _pallas_call(kernel, grid=(programs,), results=results)
    return tuple(call(upstream_XD, total_XD, mean_X, scale_X, gamma_D, seeds_B2))


def _cdf(y: Array) -> Array:
    return 0.5 * (1.0 + erf(y * np.float32(math.sqrt(0.5))))


def _product(
    x: Ref, y: Ref, row: Array, column: Array, block: tuple[int, int], transposed: bool
) -> Array:
    """Return a block of x y or x y^T, summed in float32."""
    depth = x.shape[1]
    step = _divisor(depth, 64)

    def add(i, total):
        inner = pl.ds(i * step, step)
        left, columns = x[pl.ds(row, block[0]), inner], pl.ds(column, block[1])
        right = y[columns, inner].T if transposed else y[inner, columns]
        return total + _dot(left, right)

    return lax.fori_loop(0, depth // step, add, jnp.zeros(block, jnp.float32))


def _tiles(rows: int, columns: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the block of a program, and the grid."""
    block = _divisor(rows, 128), _divisor(columns, 128)
    return block, (rows // block[0], columns // block[1])


def matmul_gelu(x_XD: Array, kernel_DF: Array, bias_F: Array) -> tuple[Array, Array]:
    """Return x W, and GELU(x W + bias)."""
    rows, width = x_XD.shape[0], kernel_DF.shape[1]
    block, grid = _tiles(rows, width)

    def matmul_gelu_kernel(x, weights, bias, product, result):
        row, column = (pl.program_id(i) * block[i] for i in range(2))
        at = pl.ds(row, block[0]), pl.ds(column, block[1])
        # Rounded, as the backward pass reads it.
        y = _product(x, weights, row, column, block, False).astype(product.dtype)
        product[at] = y
        y = y.astype(jnp.float32) + _read_vector(bias, column, block[1])
        result[at] = (y * _cdf(y)).astype(result.dtype)

    results = [((rows, width), x_XD.dtype)] * 2
    call = _pallas_call(
        matmul_gelu_kernel, grid=grid, results=results, warps=8, stages=3
    )
    return tuple(call(x_XD, kernel_DF, bias_F))


def matmul_gelu_backward(
    upstream_XD: Array, kernel_FD: Array, product_XF: Array, bias_F: Array
) -> tuple[Array, Array]:
    """Return the gradient of GELU(product + bias), which a matmul with `kernel` reads.

    Returns:
        The gradient of the product; partial sums of the bias's [G, F], float32.
    """
    rows, width = product_XF.shape
    block, grid = _tiles(rows, width)

    def matmul_gelu_backward_kernel(up, weights, product, bias, dx, sums):
        row, column = (pl.program_id(i) * block[i] for i in range(2))
        at = pl.ds(row, block[0]), pl.ds(column, block[1])
        upstream = _product(up, weights, row, column, block, True)
        y = product[at].astype(jnp.float32)
        y += _read_vector(bias, column, block[1])
        density = jnp.exp(-0.5 * y * y) * np.float32(1 / math.sqrt(2 * math.pi))
        grad = upstream * (_cdf(y) + y * density)
        dx[at] = grad.astype(dx.dtype)
        sums[pl.program_id(0), at[1]] = jnp.sum(grad, 0)

    results = [(product_XF.shape, product_XF.dtype), ((grid[0], width), jnp.float32)]
    call = _pallas_call(
        matmul_gelu_backward_kernel, grid=grid, results=results, warps=8, stages=3
    )
    return tuple(call(upstream_XD, kernel_FD, product_XF, bias_F))


def _dot(x: Array, y: Array) -> Array:
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


def transposed_matmul(x_XD: Array, y_XF: Array) -> Array:
    """Return x^T y in float32: the gradient of a kernel."""
    return lax.dot_general(
        x_XD, y_XF, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
    )


class _Heads:
    """Parts of the attention of one head of one text, within a kernel."""

    def __init__(self, qkv: Ref, bias: Ref, mask: Ref, seeds: Ref, rate: float):
        _, self.length, _, self.heads, self.width = qkv.shape
        self.text, self.head = pl.program_id(0), pl.program_id(1)
        self._qkv, self._mask = qkv, mask
        self._bias = [
            _read_vector(bias, (i * self.heads + self.head) * self.width, self.width)
            for i in range(3)
        ]
        self._drop = _dropout(rate, seeds)

    def part(self, which: int, first: Array, size: int) -> Array:
        """Return queries (0), keys (1) or values (2) of some positions, [size, H]."""
        x = self._qkv[self.text, pl.ds(first, size), which, self.head, :]
        return (x.astype(jnp.float32) + self._bias[which]).astype(x.dtype)

    def scores(self, q: Array, k: Array, first_key: Array) -> Array:
        """Return the masked scores of queries and keys, float32."""
        scores = _dot(q, k.T)
        mask = self._mask[self.text, pl.ds(first_key, k.shape[0])]
        return scores * np.float32(self.width**-0.5) + mask

    def drop(self, x: Array, first_query: Array, first_key: Array) -> Array:
        """Apply dropout to weights [queries, keys] or to their gradient."""
        query, key = _grid_2d(*x.shape)
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
        grad = self.drop(_dot(up, v.T), first, first_key) - mean[:, None]
        grad = (weights * grad * np.float32(self.width**-0.5)).astype(q.dtype)
        return up, self.drop(weights, first, first_key).astype(q.dtype), grad


def attention(
    qkv_BL3NH: Array,
    bias_E: Array,
    mask_BL: Array,
    seeds_B2: Array,
    *,
    rate: float,
    block: int,
) -> tuple[Array, Array]:
    """Compute attention from queries, keys and values without their bias.

    Returns:
        The context [B, L, N, H], and log sum exp of the scores [B, N, L], float32.
    """
    batch, length, _, heads, width = qkv_BL3NH.shape
    dtype = qkv_BL3NH.dtype

    def kernel(qkv, bias, mask, seeds, context, log_sums):
        head = _Heads(qkv, bias, mask, seeds, rate)
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
            result = result * correction[:, None] + _dot(dropped, values)
            return result, new, total * correction + jnp.sum(weights, 1)

        start = jnp.full(block, -1e30, jnp.float32), jnp.zeros(block, jnp.float32)
        state = jnp.zeros((block, width), jnp.float32), *start
        result, largest, total = lax.fori_loop(0, length // block, step, state)
        at = pl.ds(first, block)
        context[head.text, at, head.head, :] = (result / total[:, None]).astype(dtype)
        log_sums[head.text, head.head, at] = largest + jnp.log(total)

    results = [((batch, length, heads, width), dtype)]
    results.append(((batch, heads, length), jnp.float32))
    call = _pallas_call(kernel, grid=(batch, heads, length // block), results=results)
    return call(qkv_BL3NH, bias_E, mask_BL, seeds_B2)


def attention_backward(
    qkv_BL3NH: Array,
    bias_E: Array,
    mask_BL: Array,
    seeds_B2: Array,
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

    def kernel(qkv, bias, mask, seeds, context, log_sums, upstream, dqkv, sums):
        head = _Heads(qkv, bias, mask, seeds, rate)
        own = pl.program_id(2) * block

        of_scores = functools.partial(head.backward, context, log_sums, upstream)
        keys, values = head.part(1, own, block), head.part(2, own, block)

        def add_queries(i, state):
            q = head.part(0, i * block, block)
            up, dropped, grad = of_scores(q, keys, values, i * block, own)
            return state[0] + _dot(grad.T, q), state[1] + _dot(dropped.T, up)

        zeros = jnp.zeros((block, width), jnp.float32)
        dk, dv = lax.fori_loop(0, blocks, add_queries, (zeros, zeros))
        queries = head.part(0, own, block)

        def add_keys(i, dq):
            k, v = (head.part(part, i * block, block) for part in (1, 2))
            return dq + _dot(of_scores(queries, k, v, own, i * block)[2], k)

        dq = lax.fori_loop(0, blocks, add_keys, zeros)
        for part, grad in enumerate((dq, dk, dv)):
            at = pl.ds(own, block)
            dqkv[head.text, at, part, head.head, :] = grad.astype(dtype)
            number = head.text * blocks + pl.program_id(2)
            sums[number, part, head.head, :] = jnp.sum(grad, 0)

    results = [(qkv_BL3NH.shape, dtype)]
    results.append(((batch * blocks, 3, heads, width), jnp.float32))
    call = _pallas_call(kernel, grid=(batch, heads, blocks), results=results)
    operands = qkv_BL3NH, bias_E, mask_BL, seeds_B2
    dqkv, sums_G3NH = call(*operands, context_BLNH, log_sums_BNL, upstream_BLNH)
    return dqkv, sums_G3NH.reshape(batch * blocks, -1)


KERNELS = {
    kernel.__name__: kernel
    for kernel in (
        *(add_norm, add_norm_backward, matmul_gelu, matmul_gelu_backward),
        *(attention, attention_backward, transposed_matmul),
    )
}
"""Kernels by the name in a call."""
