"""`torch.Tensor.cuda` as a value: whoever calls it may give a device."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import TARGETS, assert_sound, constructs, run

from migrator.diagnostics import Outcome

EACH = (*TARGETS, "torch_tpu")
ONE_TENSOR = {
    "map": "ys = list(map(torch.Tensor.cuda, xs))",
    "a pool": "ys = pool.map(torch.Tensor.cuda, xs)",
    "a tree": "import torch.utils._pytree as p\nys = p.tree_map(torch.Tensor.cuda, xs)",
    "a name": "move = torch.Tensor.cuda\ny = move(x)\nzs = [move(z) for z in xs]",
    "a name that is mapped": "move = torch.Tensor.cuda\nys = list(map(move, xs))",
    "a name in a function": "def f(x):\n    move = torch.nn.Module.cuda\n    return move(x)",
    "a partial": "import functools\nys = map(functools.partial(torch.Tensor.cuda), xs)",
}
MORE = {
    "a device": "move = torch.Tensor.cuda\ny = move(x, 0)",
    "a keyword": "move = torch.Tensor.cuda\ny = move(x, non_blocking=True)",
    "what is given": """
        move = torch.Tensor.cuda
        def f(x, *args, **kwargs):
            return move(x, *args, **kwargs)
    """,
    "a table": 'moves = {"gpu": torch.Tensor.cuda}\ny = moves[kind](x, 0)',
    "a list": "for move in (torch.Tensor.cuda, torch.Tensor.half):\n    x = move(x)",
    "a parameter": "def f(x, move=torch.Tensor.cuda):\n    return move(x, 0)",
    "an argument": "apply(torch.Tensor.cuda, x)",
    "a keyword argument": "apply(x, move=torch.Tensor.cuda)",
    "two iterables": "ys = list(map(torch.Tensor.cuda, xs, devices))",
    "an attribute": "class Net:\n    move = torch.Tensor.cuda",
    "a result": "def mover():\n    return torch.Tensor.cuda",
    "what is compared": "same = method is torch.Tensor.cuda",
    "a name that is passed on": "move = torch.Tensor.cuda\nrun(move)",
    "a partial with a name": """
        import functools
        move = functools.partial(torch.Tensor.cuda)
        y = move(x, 0)
    """,
}


@pytest.mark.parametrize("target", EACH)
@pytest.mark.parametrize("kind", ONE_TENSOR)
def test_a_function_of_one_tensor(kind: str, target: str) -> None:
    result = run(f"import torch\n{ONE_TENSOR[kind]}\n", target)
    assert_sound(result, target)
    assert "lambda x: x.to(" in result.source.decode()
    assert not any(d.outcome is Outcome.REPORTED for d in constructs(result))


@pytest.mark.parametrize("target", EACH)
@pytest.mark.parametrize("kind", MORE)
def test_what_may_get_a_device_is_reported(kind: str, target: str) -> None:
    result = run(f"import torch\n{dedent(MORE[kind])}\n", target)
    assert "torch.Tensor.cuda" in result.source.decode()
    (found,) = [d for d in constructs(result) if d.construct.endswith(".cuda")]
    assert found.outcome is Outcome.REPORTED


@pytest.mark.parametrize("target", EACH)
@pytest.mark.parametrize(
    "wrapper",
    ["@functools.wraps(torch.Tensor.cuda)\ndef f(x, *a):\n    return x\n",
     "@functools.wraps(wrapped=torch.nn.Module.cuda)\ndef f(x, *a):\n    return x\n",
     "functools.update_wrapper(f, torch.Tensor.cuda)\n"],
)  # fmt: skip
def test_whoever_looks_at_its_name_needs_no_cuda(wrapper: str, target: str) -> None:
    text = f"import functools\nimport torch\n{wrapper}"
    result = run(text, target)
    assert result.source.decode() == text
    assert [d.outcome for d in constructs(result)] == [Outcome.KEPT]
