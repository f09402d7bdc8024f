"""Names that are bound to each other, as `a = b` and `b = a`: no analysis follows them forever."""

from __future__ import annotations

import random

import pytest

from migrator.pipeline.engine import migrate
from migrator.targets import find_target

NAMES = "abx"
VALUES = (
    "{}.cuda()", "{}.to('cuda')", "torch.where({}, {}, {})", "{}[{}]", "{}({})", "({} & {})",
    "(~{})", "[{} for x in {}]", "({}, {})", "(lambda x: {})", "({} if {} else {})",
    "torch.cat([{}, {}])",
)  # fmt: skip
STATEMENTS = (
    "{name} = {other}\n", "{name} = {other}\n", "{name} = {value}\n{name}.cuda()\n",
    "y: list[{name}] = [{value}]\ny[0].cuda()\n", "{name}: {name} = {value}\n",
    "x[{name}] = {value}\n", "for {name} in {value}:\n    {name} = {other}\n",
    "def {name}(self, x: {other} = {value}):\n    return {value}\n",
    "class {name}({other}):\n    {name} = {other}\n",
    "with {value} as {name}:\n    {other} = {name}.cuda()\n",
)  # fmt: skip


def value(rng: random.Random, depth: int = 0) -> str:
    if depth > 2 or rng.random() < 0.3:
        return rng.choice(NAMES)
    pattern = rng.choice(VALUES)
    return pattern.format(*(value(rng, depth + 1) for _ in range(pattern.count("{}"))))


def program(seed: int) -> str:
    rng = random.Random(seed)
    text = "import torch\n"
    for _ in range(rng.randrange(3, 9)):
        name, other = rng.choice(NAMES), rng.choice(NAMES)
        text += rng.choice(STATEMENTS).format(name=name, other=other, value=value(rng))
    return text


def fails(text: str, target: str = "torchax") -> bool:
    return migrate(text.encode(), find_target(target)).failed


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_programs_of_circular_names_are_migrated() -> None:
    for seed in range(150):
        assert not fails(program(seed)), program(seed)


@pytest.mark.parametrize(
    "text",
    [
        "X = X\ndef g(x: X):\n    y: list[X] = [x]\n    return y[0].cuda()\n",
        "a = b\nb = a\ndef g(x: a):\n    y: list[b] = [x]\n    return y[0].cuda(), b.cuda()\n",
    ],
)
def test_a_name_that_means_itself(text: str) -> None:
    assert not fails(f"import torch\n{text}")
