"""Numbers that change from step to step are inputs of the recorded programs."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor
from tpu_runtime.lazy import lazy_graph, lazy_programs

from tests.runtime.support import batch

tpu.setup()

Function = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def _lists(name: str, *numbers: str, in_place: bool = False) -> Function:
    """An operator on lists; ``numbers``: names for numbers, or "" for one without a name."""
    function = getattr(torch, f"_foreach_{name}")

    def call(x: Tensor, y: Tensor, z: Tensor, value: float) -> Tensor:
        tensors, others = [x * 1, y * 1], [[y, z], [z, x]]
        given = others[: {"add": 1, "sub": 1, "lerp": 1}.get(name.rstrip("_"), 0)]
        if name.startswith("addc"):
            given = others
        positional = [value for number in numbers if not number]
        named = {number: value for number in numbers if number}
        made = function(tensors, *given, *positional, **named)
        return (tensors if in_place else made)[1]

    return call


OPERATORS: dict[str, Function] = {
    "addcmul": lambda x, y, z, value: torch.addcmul(x, y, z, value=value),
    "addcdiv_": lambda x, y, z, value: (x * 1).addcdiv_(y, z, value=-value),
    "number - x": lambda x, y, z, value: value - x,
    "pow_": lambda x, y, z, value: (x * 1).pow_(value),
    "baddbmm": lambda x, y, z, value: torch.baddbmm(x[None], y[None], z[None], alpha=value),
    "threshold": lambda x, y, z, value: F.threshold(x, value, 2 * value),
    "masked_fill": lambda x, y, z, value: x.masked_fill(y > 0.5, value),
    "smooth_l1": lambda x, y, z, value: F.smooth_l1_loss(x, y, beta=value),
    "lists add": _lists("add", "alpha"),
    "lists sub_": _lists("sub_", "alpha", in_place=True),
    "lists mul_": _lists("mul_", "", in_place=True),
    "lists lerp": _lists("lerp", ""),
    "lists pow": _lists("pow", ""),
    "lists addcmul_": _lists("addcmul_", "", in_place=True),
    "lists addcdiv": _lists("addcdiv", ""),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_number_that_changes_compiles_no_program(name: str, dtype: torch.dtype) -> None:
    function, programs = OPERATORS[name], []
    given = [batch(n, 3, 3).abs().add(0.1).to(dtype) for n in range(3)]
    lazy_graph.run()
    lazy_programs._programs.clear()
    on_device = [x.to("jax") for x in given]
    for number in range(6):
        value = 0.1 + number / 7
        before = lazy_programs.record.programs
        found = (function(*on_device, value) * 2).cpu()
        expected = function(*given, value) * 2
        assert found.dtype == expected.dtype
        close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-2}
        torch.testing.assert_close(found, expected, **({"atol": 1e-2} | close))
        programs.append(lazy_programs.record.programs - before)
    assert not any(programs[3:])
    assert all(program.calls > 1 for program in list(lazy_programs._programs.values())[-1:])
