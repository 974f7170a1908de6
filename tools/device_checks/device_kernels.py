"""Kernels of a Transformer layer for GPUs, written in JAX's Pallas for Triton.

`electra_tf/kernels/device_layer_ops.py` calls them by name from a step that is
exported; `link` puts them into its program. Each takes a buffer of all weights without
decay and the places of its vectors there, which saves a copy of each vector.

Shape suffixes: X rows of all texts, B texts, L positions, D width, N heads, H width of
a head, F width of the feed-forward network, P weights of a buffer, S calls of a block
of dropout seeds, G programs.
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
_ALIGNED = 64  # places of vectors are multiples of it

# Factors of the powers of x^2 above and below the fraction, from the highest.
_ERF = (
    (0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861,
     0.18520832239976145, 1.128379143519084),
    (-1.1791602954361697e-7, 0.000023547966471313185, 0.0010179625278914885,
     0.014070470171167667, 0.11098505178285362, 0.49746925110067538, 1.0),
)  # fmt: skip

Array = jax.Array
Ref = Any


def pallas_call(
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


def read_vector(buffer_P: Ref, place: Array, start: Any, size: int, end: int) -> Array:
    """Return values of a vector of the buffer as float32, 0 from `end` on."""
    first = pl.multiple_of(place, _ALIGNED) + start
    is_inside = start + jnp.arange(size) < end
    slices = buffer_P.at[pl.ds(first, size)]
    return plt.load(slices, mask=is_inside, other=0.0).astype(jnp.float32)


def _mix(bits: Array, shift: int, factor: int = 1) -> Array:
    return (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)


def dropout(rate: float, seeds_BS2: Ref, number: Array) -> Callable:
    """Return a function that applies the dropout of `rng.apply_dropout`.

    It takes values, the number of their text and their indices within it.
    """
    threshold = min(round(rate * 2**32), 2**32 - 1)

    def apply(x: Array, row: Array, index: Array) -> Array:
        if not threshold:
            return x
        bits = index.astype(jnp.uint32) + seeds_BS2[row, number, 0]
        bits = _mix(_mix(bits, 17, 0xED5AD4BB), 11, 0xAC4C1B51)
        bits = _mix(_mix(bits ^ seeds_BS2[row, number, 1], 15, 0x31848BAB), 14)
        scaled = x * np.float32(1 / (1 - threshold / 2**32))
        return jnp.where(bits >= np.uint32(threshold), scaled, 0.0)

    return apply


def _erf(x: Array) -> Array:
    """Return the error function by XLA's rational approximation, to 1e-7."""
    x = jnp.clip(x, -3.832506856900711, 3.832506856900711)
    square = x * x
    above, below = (
        functools.reduce(lambda total, factor: total * square + factor, factors)
        for factors in _ERF
    )
    return x * above / below


def grid_2d(rows: int, columns: int) -> tuple[Array, Array]:
    shape = rows, columns
    return lax.broadcasted_iota(jnp.int32, shape, 0), lax.broadcasted_iota(
        jnp.int32, shape, 1
    )


def add_norm(
    x_XD: Array,
    residual_XD: Array,
    bias_P: Array,
    gamma_P: Array,
    beta_P: Array,
    seeds_BS2: Array,
    places_4: Array,
    *,
    rate: float,
    epsilon: float,
    block: int,
) -> tuple[Array, ...]:
    """Add bias, dropout and residual, and normalise.

    `places_4` are the places of bias, gamma and beta, and the dropout call's number.

    Returns:
        Normalised sum, sum, and of each row mean and 1 / standard deviation.
    """
    (rows, width), length = x_XD.shape, x_XD.shape[0] // seeds_BS2.shape[0]
    padded = _power_of_2(width)

    def kernel(x, residual, bias, gamma, beta, seeds, places, normed, total, mean, inv):
        first = pl.program_id(0) * block
        row, column = grid_2d(block, padded)
        is_inside = column < width
        at = pl.ds(first, block), pl.ds(0, padded)
        load = functools.partial(plt.load, mask=is_inside, other=0.0)
        bias, gamma, beta = (
            read_vector(buffer, places[i], 0, padded, width)
            for i, buffer in enumerate((bias, gamma, beta))
        )
        text = first // length
        index = (first - text * length + row) * width + column
        dropped = dropout(rate, seeds, places[3])(
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
    call = pallas_call(kernel, grid=(rows // block,), results=results)
    return call(x_XD, residual_XD, bias_P, gamma_P, beta_P, seeds_BS2, places_4)


def _through_norm(grad_XD: Array, standard_XD: Array, width: int) -> Array:
    """Return the gradient of standardised values less its mean and its projection."""
    mean, projection = (
        jnp.sum(values, 1)[:, None] * np.float32(1 / width)
        for values in (grad_XD, grad_XD * standard_XD)
    )
    return grad_XD - mean - standard_XD * projection


def add_norm_backward(
    upstream_XD: Array,
    other_XD: Array,
    total_XD: Array,
    mean_X: Array,
    scale_X: Array,
    gamma_P: Array,
    seeds_BS2: Array,
    places_4: Array,
    *,
    rate: float,
    block: int,
) -> tuple[Array, ...]:
    """Return the gradients of `add_norm` for the sum of two upstream gradients.

    Returns:
        Gradients of x and of the residual; partial sums of those of bias, gamma and
        beta, side by side [G, 3 * D], float32.
    """
    (rows, width), length = total_XD.shape, total_XD.shape[0] // seeds_BS2.shape[0]
    padded = _power_of_2(width)
    programs = _divisor(rows // block, _MAX_PROGRAMS)
    steps = rows // block // programs

    def kernel(up, other, total, mean, scale, gamma, seeds, places, dx, dtotal, sums):
        gamma = read_vector(gamma, places[1], 0, padded, width)
        drop = dropout(rate, seeds, places[3])
        row, column = grid_2d(block, padded)
        is_inside = column < width
        load = functools.partial(plt.load, mask=is_inside, other=0.0)
        number = pl.program_id(0)

        def step(i, totals):
            first = (number * steps + i) * block
            at = pl.ds(first, block), pl.ds(0, padded)
            upstream = load(up.at[at]).astype(jnp.float32)
            upstream += load(other.at[at]).astype(jnp.float32)
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
    call = pallas_call(kernel, grid=(programs,), results=results)
    operands = upstream_XD, other_XD, total_XD, mean_X, scale_X, gamma_P
    dx_XD, dtotal_XD, sums_G3D = call(*operands, seeds_BS2, places_4)
    return dx_XD, dtotal_XD, sums_G3D.reshape(programs, -1)


def _cdf(y: Array) -> Array:
    return 0.5 * (1.0 + _erf(y * np.float32(math.sqrt(0.5))))


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
        return total + dot(left, right)

    return lax.fori_loop(0, depth // step, add, jnp.zeros(block, jnp.float32))


def _tiles(rows: int, columns: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the block of a program, and the grid."""
    block = _divisor(rows, 128), _divisor(columns, 128)
    return block, (rows // block[0], columns // block[1])


def matmul_gelu(
    x_XD: Array, kernel_DF: Array, bias_P: Array, places_1: Array
) -> tuple[Array, Array]:
    """Return x W, and GELU(x W + bias)."""
    rows, width = x_XD.shape[0], kernel_DF.shape[1]
    block, grid = _tiles(rows, width)

    def matmul_gelu_kernel(x, weights, bias, places, product, result):
        row, column = (pl.program_id(i) * block[i] for i in range(2))
        at = pl.ds(row, block[0]), pl.ds(column, block[1])
        # Rounded, as the backward pass reads it.
        y = _product(x, weights, row, column, block, False).astype(product.dtype)
        product[at] = y
        y = y.astype(jnp.float32) + read_vector(
            bias, places[0], column, block[1], width
        )
        result[at] = (y * _cdf(y)).astype(result.dtype)

    results = [((rows, width), x_XD.dtype)] * 2
    call = pallas_call(
        matmul_gelu_kernel, grid=grid, results=results, warps=8, stages=3
    )
    return tuple(call(x_XD, kernel_DF, bias_P, places_1))


def matmul_gelu_backward(
    upstream_XD: Array,
    kernel_FD: Array,
    product_XF: Array,
    bias_P: Array,
    places_1: Array,
) -> tuple[Array, Array]:
    """Return the gradient of GELU(product + bias), which a matmul with `kernel` reads.

    Returns:
        The gradient of the product; partial sums of the bias's [G, F], float32.
    """
    rows, width = product_XF.shape
    block, grid = _tiles(rows, width)

    def matmul_gelu_backward_kernel(up, weights, product, bias, places, dx, sums):
        row, column = (pl.program_id(i) * block[i] for i in range(2))
        at = pl.ds(row, block[0]), pl.ds(column, block[1])
        upstream = _product(up, weights, row, column, block, True)
        y = product[at].astype(jnp.float32)
        y += read_vector(bias, places[0], column, block[1], width)
        density = jnp.exp(-0.5 * y * y) * np.float32(1 / math.sqrt(2 * math.pi))
        grad = upstream * (_cdf(y) + y * density)
        dx[at] = grad.astype(dx.dtype)
        sums[pl.program_id(0), at[1]] = jnp.sum(grad, 0)

    results = [(product_XF.shape, product_XF.dtype), ((grid[0], width), jnp.float32)]
    call = pallas_call(
        matmul_gelu_backward_kernel, grid=grid, results=results, warps=8, stages=3
    )
    return tuple(call(upstream_XD, kernel_FD, product_XF, bias_P, places_1))


def dot(x: Array, y: Array) -> Array:
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


def transposed_matmul(x_XD: Array, y_XF: Array) -> Array:
    """Return x^T y in float32: the gradient of a kernel."""
    return lax.dot_general(
        x_XD, y_XF, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
    )


KERNELS = {
    kernel.__name__: kernel
    for kernel in (
        *(add_norm, add_norm_backward, matmul_gelu, matmul_gelu_backward),
        transposed_matmul,
    )
}
"""Kernels by the name in a call; `device_attention.py` adds its own."""
