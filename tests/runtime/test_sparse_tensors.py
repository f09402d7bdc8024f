"""Sparse tensors that are made on the device have the numbers of CPU torch, and their entries."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor

from tests.runtime.support import WORD, agree

tpu.setup()

INDICES = ((0, 1, 1, 0), (1, 0, 0, 1))  # two entries twice


def entries(device: str) -> tuple[Tensor, Tensor]:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device, requires_grad=True)
    return torch.tensor(INDICES, device=device), values


def product(device: str) -> Sequence[Any]:
    indices, values = entries(device)
    b = torch.arange(4.0).reshape(2, 2).to(device).requires_grad_()
    found = torch.sparse.mm(torch.sparse_coo_tensor(indices, values, (2, 2)), b)
    found.square().sum().backward()
    return found, values.grad, b.grad


def what_it_has(device: str) -> Sequence[Any]:
    made = torch.sparse_coo_tensor(*entries(device), (2, 2))
    once = made.coalesce()
    of_once = (once.indices(), once.values(), once.to_dense(), once._nnz())
    return made._indices(), made._values(), made._nnz(), made.is_coalesced(), *of_once


def other_ways(device: str) -> Sequence[Any]:
    indices, values = entries(device)
    rows = torch.ones(4, 3, device=device)
    return (
        torch.sparse.FloatTensor(indices, values.detach(), torch.Size([2, 3])).to_dense(),
        torch.sparse_coo_tensor(indices, values).to_dense(),
        torch.sparse_coo_tensor([[0, 1], [2, 0]], [5.0, 6.0], (2, 3), device=device).to_dense(),
        torch.sparse_coo_tensor(indices, rows, size=(2, 2, 3)).coalesce().values(),
    )


class Multiply(torch.autograd.Function):
    """As graph attention networks have it, whose gradient is sparse by hand."""

    @staticmethod
    def forward(ctx: Any, indices: Tensor, values: Tensor, n: int, b: Tensor) -> Tensor:  # type: ignore[override]
        a = torch.sparse_coo_tensor(indices, values, torch.Size([n, n]))
        ctx.save_for_backward(a, b)
        ctx.n = n
        return torch.matmul(a, b)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        a, b = ctx.saved_tensors
        places = a._indices()[0, :] * ctx.n + a._indices()[1, :]
        of_values = gradient.matmul(b.t()).view(-1)[places]
        return None, of_values, None, a.t().matmul(gradient)


def by_hand(device: str) -> Sequence[Any]:
    indices, values = entries(device)
    b = torch.arange(4.0).reshape(2, 2).to(device).requires_grad_()
    Multiply.apply(indices, values, 2, b).square().sum().backward()  # type: ignore[no-untyped-call]
    return values.grad, b.grad


def one_that_moves(device: str) -> Sequence[Any]:
    made = torch.sparse_coo_tensor(*entries("cpu"), (2, 2)).detach().to(device)
    once = torch.eye(3).to_sparse().to(device)
    return (
        made._indices(), made._values(), made._nnz(), made.is_coalesced(), made.to_dense(),
        once.indices(), once.values(), once.is_coalesced(),
    )  # fmt: skip


@pytest.mark.parametrize("function", [product, what_it_has, other_ways, by_hand, one_that_moves])
@pytest.mark.filterwarnings("ignore:a sparse tensor of")
def test_it_is_what_it_is_on_the_cpu(function: Any) -> None:
    for found, expected in zip(function(WORD), function("cpu"), strict=True):
        agree(found, expected)


def test_what_it_costs_is_said() -> None:
    with pytest.warns(UserWarning, match="2 x 2 is dense on a TPU: 0.0 MiB"):
        made = torch.sparse_coo_tensor(*entries(WORD), (2, 2))
    assert made.device.type == WORD
    for sparse in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()):
        with pytest.warns(UserWarning, match="3 x 3 is dense on a TPU: 0.0 MiB"):
            assert torch.equal(sparse.to(WORD).cpu(), torch.eye(3))


def test_others_are_torchs() -> None:
    on_cpu = torch.sparse_coo_tensor(*entries("cpu"), (2, 2))
    assert on_cpu.is_sparse and torch.sparse_coo_tensor((2, 2)).is_sparse
    assert on_cpu.coalesce().values().tolist() == [5.0, 5.0]
    with pytest.raises(RuntimeError):
        torch.ones(2, 2, device=WORD).coalesce()


def _entries() -> torch.Tensor:
    indices = torch.tensor([[0, 1, 1], [1, 0, 2]])
    return torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 0.0]), (2, 3))


COMPUTED = {
    "sum": lambda s: torch.sparse.sum(s),
    "sum of rows": lambda s: torch.sparse.sum(s, 1).to_dense(),
    "softmax": lambda s: torch.sparse.softmax(s, 1).to_dense(),
    "log_softmax": lambda s: torch.sparse.log_softmax(s, 1).to_dense(),
    "sparse_mask": lambda s: torch.ones(2, 3, device=s.device).sparse_mask(s.coalesce()).to_dense(),
    "to_sparse": lambda s: s.to_dense().to_sparse().indices(),
    "to_sparse_csr": lambda s: s.to_dense().to_sparse_csr().crow_indices(),
    "columns": lambda s: s.to_dense().to_sparse_csr().col_indices(),
    "values": lambda s: s.to_dense().to_sparse_csr().values(),
    "product": lambda s: s.to_dense().to_sparse_csr() @ torch.ones(3, 2, device=s.device),
    "csr": lambda s: torch.sparse_csr_tensor(
        torch.tensor([0, 1, 3]).to(s.device), torch.tensor([1, 0, 2]).to(s.device),
        torch.tensor([1.0, 2.0, 3.0]).to(s.device), (2, 3),
    ).to_dense(),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_with_dense_values(name: str) -> None:
    """An entry of 0 counts for a softmax, as in a sparse tensor."""
    there = COMPUTED[name](_entries().to(WORD)).cpu()
    wanted = COMPUTED[name](_entries())
    assert torch.allclose(there.double(), wanted.double())


def test_entries_that_are_not_known() -> None:
    with pytest.raises(RuntimeError, match="which of its elements are"):
        torch.sparse.softmax(_entries().to(WORD) * 2, 1)
