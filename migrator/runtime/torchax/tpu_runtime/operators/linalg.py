"""Factorisations in the form that torch's gradients need.

torchax 0.0.13 computes det, slogdet, solve and LU without the factors that their gradients need,
so they have none: here the factors are returned as well.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import register
from ..dispatch.jax_kernels import Array, kernel


@kernel
def _factor(matrix: Array, transposed: bool) -> tuple[Array, Array]:
    """The LU factors in one matrix, and the pivots, counted from 1 as in LAPACK."""
    if matrix.size == 0:
        return matrix, jnp.zeros(matrix.shape[:-1], "int32")
    factors, pivots, _ = jax.lax.linalg.lu(jnp.swapaxes(matrix, -1, -2) if transposed else matrix)
    return factors, (pivots + 1).astype("int32")


def _factors(matrix: Tensor) -> tuple[Array, Array]:
    """Torch's formulas expect the factors of the transpose if the matrix is contiguous."""
    array = matrix.jax()
    contiguous = torch.Tensor.is_contiguous(matrix)
    return _factor(array, contiguous and not jnp.iscomplexobj(array))  # type: ignore[no-any-return]


@kernel
def _sign(pivots: Array) -> Array:
    swaps = jnp.sum(pivots != jnp.arange(1, pivots.shape[-1] + 1), -1)
    return 1 - 2 * (swaps % 2)


def _det(matrix: Tensor) -> Any:
    factors, pivots = _factors(matrix)
    diagonal = jnp.diagonal(factors, axis1=-2, axis2=-1)
    result = jnp.prod(diagonal, -1) * _sign(pivots).astype(factors.dtype)
    return matrix._env.j2t_iso((result, factors, pivots))


def _slogdet(matrix: Tensor) -> Any:
    factors, pivots = _factors(matrix)
    diagonal = jnp.diagonal(factors, axis1=-2, axis2=-1)
    sizes = jnp.abs(diagonal)
    signs = jnp.where(sizes == 0, 0, diagonal / jnp.where(sizes == 0, 1, sizes))
    sign = jnp.prod(signs, -1) * _sign(pivots).astype(factors.dtype)
    return matrix._env.j2t_iso((sign, jnp.sum(jnp.log(sizes), -1), factors, pivots))


@kernel
def _solve_factored(
    factors: Array, pivots: Array, right: Array, left: bool = True, adjoint: bool = False
) -> Array:
    """X of A X = B, X A = B, or with the adjoint of A, from the factors of A."""
    if not left:  # X A = B is the transpose of A^T X^T = B^T
        conjugate = jnp.conj(right) if not adjoint else right
        other = _solve_factored(factors, pivots, jnp.swapaxes(conjugate, -1, -2), True, not adjoint)
        return jnp.swapaxes(jnp.conj(other) if not adjoint else other, -1, -2)
    batch = jnp.broadcast_shapes(factors.shape[:-2], right.shape[:-2])
    size = factors.shape[-1]
    if math.prod(batch) * right.size == 0:
        return jnp.zeros((*batch, *right.shape[-2:]), right.dtype)
    full = [
        jnp.broadcast_to(factors, (*batch, size, size)).reshape(-1, size, size),
        jnp.broadcast_to(pivots - 1, (*batch, size)).reshape(-1, size),
        jnp.broadcast_to(right, (*batch, *right.shape[-2:])).reshape(-1, *right.shape[-2:]),
    ]
    solve: Any = jax.vmap(
        lambda lu, p, b: jax.scipy.linalg.lu_solve((lu, p), b, trans=2 if adjoint else 0)
    )
    solved: Array = solve(*full)
    return solved.reshape(*batch, *right.shape[-2:])


def _solve(matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    factors, pivots = _factors(matrix)
    a, b = matrix.jax(), right.jax()
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    plain, exchanged = _factor(a, False)
    result = _solve_factored(plain, exchanged, b[..., None] if vector else b, left)
    info = jnp.zeros(a.shape[:-2], "int32")
    result = result[..., 0] if vector else result
    return matrix._env.j2t_iso((result, factors, pivots, info))


def _lu_factor(matrix: Array, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if not pivot:
        raise RuntimeError("LU without pivoting is not available on this device")
    return *_factor(matrix, False), jnp.zeros(matrix.shape[:-2], "int32")


def _lu_solve(
    factors: Array, pivots: Array, right: Array, *, left: bool = True, adjoint: bool = False
) -> Array:
    return _solve_factored(factors, pivots, right, left, adjoint)


@kernel
def _eigh(matrix: Array, uplo: str, compute_v: bool) -> tuple[Array, Array]:
    """torchax uses the mean of both triangles; torch uses one of them."""
    lower = matrix if uplo.upper() == "L" else jnp.conj(jnp.swapaxes(matrix, -1, -2))
    below = jnp.tril(lower, -1)
    diagonal = jnp.tril(lower) - below
    whole = below + diagonal + jnp.conj(jnp.swapaxes(below, -1, -2))
    values, vectors = jnp.linalg.eigh(whole, symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros((0,), matrix.dtype)


def _linalg_eigh(matrix: Array, UPLO: str = "L", compute_v: bool = True) -> tuple[Array, Array]:
    return _eigh(matrix, UPLO, compute_v)  # type: ignore[no-any-return]


@kernel
def _pseudo_inverse(matrix: Array, rtol: Any, hermitian: bool) -> Array:
    if hermitian:
        below = jnp.tril(matrix, -1)
        matrix = jnp.tril(matrix) + jnp.conj(jnp.swapaxes(below, -1, -2))
    return jnp.linalg.pinv(matrix, rtol=rtol, hermitian=hermitian)


def _pinv(
    matrix: Array, *, atol: Array | None = None, rtol: Array | None = None, hermitian: bool = False
) -> Array:
    """torchax uses both triangles where torch uses the lower one, and ignores the tolerances."""
    if rtol is None:
        rtol = jnp.asarray(max(matrix.shape[-2:]) * float(np.finfo(matrix.dtype).eps))
    if atol is not None:
        largest = jnp.linalg.norm(matrix, 2, (-2, -1))
        rtol = jnp.maximum(rtol, atol / jnp.where(largest == 0, 1, largest))
    return _pseudo_inverse(matrix, rtol, hermitian)


@kernel
def _qr(matrix: Array, mode: str) -> tuple[Array, Array]:
    if mode == "r":
        return jnp.zeros((0,), matrix.dtype), jnp.linalg.qr(matrix, mode="r")
    q, r = jnp.linalg.qr(matrix, mode=mode)
    return q, r


def _linalg_qr(matrix: Array, mode: str = "reduced") -> tuple[Array, Array]:
    """torchax gives the reduced factors whatever is asked for (also by `torch.qr(some=False)`)."""
    return _qr(matrix, mode)  # type: ignore[no-any-return]


def install(env: Environment) -> None:
    """Replace the operators."""
    aten = torch.ops.aten
    for operator, function, of_arrays in (
        (aten._linalg_det, _det, False),
        (aten._linalg_slogdet, _slogdet, False),
        (aten._linalg_solve_ex, _solve, False),
        (aten.linalg_lu_factor_ex, _lu_factor, True),
        (aten.linalg_lu_solve, _lu_solve, True),
        (aten._linalg_eigh, _linalg_eigh, True),
        (aten.linalg_qr, _linalg_qr, True),
        (aten.linalg_pinv.atol_rtol_tensor, _pinv, True),
    ):
        register(env, operator, function, of_arrays=of_arrays)
