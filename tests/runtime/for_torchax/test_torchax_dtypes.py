"""Dtypes of results, and what is written where, on torchax as on the CPU."""

from collections.abc import Callable

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor

tpu.setup()

NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}

# Of x, two rows of three small float32 numbers.
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "masks": lambda x: (x > 0) + (x < 2),
    "mask and True": lambda x: (x > 0) + True,
    "square of a mask": lambda x: (x > 0) ** 2,
    "mask times a number": lambda x: (x > 0) * 2.5,
    "sum of uint8": lambda x: x.abs().byte().sum(),
    "sums of uint8": lambda x: x.abs().byte().sum(0),
    "product of uint8": lambda x: x.abs().byte().prod(1),
    "a mask that is shifted": lambda x: (x > 0) << 1,
    "any of uint8": lambda x: x.abs().byte().any(),
    "all of uint8 along a dimension": lambda x: x.abs().byte().all(1),
    "sum of a mask in float32": lambda x: (x > 0).sum(dtype=torch.float32),
    "sum of fractions in int32": lambda x: x.sum(dtype=torch.int32),
    "mean of a mask": lambda x: (x > 0).mean(dtype=torch.float32),
    "int8 with uint8": lambda x: x.to(torch.int8) - x.abs().byte(),
    "halves of both kinds": lambda x: x.half() + x.bfloat16(),
    "half with a float64 number": lambda x: x.half() * x[0, 0].double(),
    "power of integers": lambda x: (x.long() * 4000 + 1) ** 2,
    "power of integers by integers": lambda x: x.to(torch.int8) ** x.abs().to(torch.int8),
    "negative power of integers": lambda x: torch.ones_like(x).int().neg() ** x.int(),
    "power of a number": lambda x: 2 ** x.abs().int(),
    "quotient toward zero": lambda x: torch.div(
        (x * 1e7).long() * 10 + 7, 10, rounding_mode="trunc"
    ),
    "quotient of uint8": lambda x: torch.div(x.abs().byte(), 2, rounding_mode="floor"),
    "fmod of integers": lambda x: torch.fmod((x * 1e7).int() * 10 + 7, 1000),
    "fmod of a mask": lambda x: torch.fmod(x > 0, 2),
    "sigmoid of a mask": lambda x: (x > 0).sigmoid(),
    "rsqrt of uint8": lambda x: x.abs().byte().rsqrt(),
    "where with a number": lambda x: torch.where(x > 0, x.half(), 0.5),
    "abs of complex numbers": lambda x: torch.complex(x, x * 2).abs(),
    "first of uint8": lambda x: x.abs().byte().max(0)[0],
    "a mask that is written to": lambda x: (x > 0).index_put_((x > 1,), torch.tensor(True)),
    "out= of another shape": lambda x: torch.cat([x, x], out=torch.empty(0).to(x.device)),
    "out= of another dtype": lambda x: torch.add(x, 1, out=x.double()),
    "out= of a norm": lambda x: torch.linalg.norm(x, out=torch.empty(0).to(x.device)),
    "out= of a row": lambda x: torch.add(x[0], 1, out=x.clone()[1]),
    "out= of a factory": lambda x: torch.arange(5, out=torch.empty(0).to(x.device)),
    "out= of places": lambda x: torch.argmax(x, 1, out=torch.tensor([7]).to(x.device)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_dtypes(name: str) -> None:
    values = torch.tensor([[1.5, -2, 3.25], [0, -0.5, 7]])
    expected, found = CASES[name](values.clone()), CASES[name](values.to("jax"))
    assert found.dtype == NARROWED.get(expected.dtype, expected.dtype)
    torch.testing.assert_close(found.cpu(), expected, check_dtype=False, rtol=1e-3, atol=1e-3)


def test_what_torch_refuses() -> None:
    x = torch.ones(2, 2, device="jax")
    with pytest.raises(RuntimeError, match="with two bool tensors is not supported"):
        _ = (x > 0) - (x > 1)
    with pytest.raises(RuntimeError, match="in-place ops are not possible"):
        (x > 0).add_(1)
    with pytest.raises(RuntimeError, match=r"result of torch.float32 cannot be written"):
        torch.add(x, 1, out=x.int())
    with pytest.raises(RuntimeError, match=r"expects split_sizes to sum exactly to 2"):
        x.split([1, 2])


def test_numbers_beyond_32_bits() -> None:
    x = torch.ones(2, dtype=torch.int32, device="jax")
    for make in (
        lambda: torch.full((2,), 2**40, device="jax"),
        lambda: torch.tensor(2**40, device="jax"),
        lambda: torch.arange(2**40, 2**40 + 2, device="jax"),
        lambda: x.fill_(2**40),
    ):
        with pytest.raises(OverflowError, match="do not fit the device's 32-bit integers"):
            make()


def test_data_is_shared() -> None:
    """`x.data = y.data`: a write to one of both is one to the other, as in torch."""
    results = []
    for device in ("cpu", "jax"):
        x, y = (torch.arange(6.0).reshape(2, 3).to(device) * n for n in (1, 2))
        x.data = y.data
        y.data[0] += 1
        x.add_(1)
        weight = torch.nn.Parameter(torch.ones(3, device=device))
        weight.data = x[1]  # parts of a flat buffer
        x.mul_(2)
        weight.data = weight.data  # which is no circle
        weight.data.sub_(1)
        row = y[0]
        row.data = torch.ones(3, device=device)  # leaves y alone
        row.add_(5)
        results.append([t.tolist() for t in (x, y, weight, row)])
    assert results[0] == results[1]
