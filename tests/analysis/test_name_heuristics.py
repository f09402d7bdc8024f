"""The law of name heuristics: what a name says may withhold a rewrite, and justifies none.

So where a hint is turned off, each construct that was rewritten is still, in every example of every
rule. What is excepted still breaks the law; the table only shrinks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from types import FunctionType

import pytest
from helpers import REPOSITORY, TARGETS

from migrator.analysis import name_heuristics
from migrator.diagnostics import Outcome
from migrator.pipeline.engine import migrate
from migrator.registry import registry
from migrator.rule import Example
from migrator.targets import Target, find_target

HINTS = [name for name, value in vars(name_heuristics).items() if isinstance(value, FunctionType)]
# What the examples of the rules have no case of.
SNIPPETS = (
    """
    import torch
    optimizer, scheduler = make()
    for batch in loader:
        model(batch.cuda()).sum().backward()
        optimizer.step()
        scheduler.step()
        print(train_model(batch).item())
    """,
    """
    import torch
    for batch in loader:
        get_loss(model(batch.cuda())).backward()
        optimizer.step()
    """,
    """
    import torch
    with torch.no_grad():
        for x in loader:
            print(str(args.device) == "cuda:0", criterion(net(x.cuda())).item())
    """,
    """
    import torch
    import _C
    def scale(x):
        if x.is_cuda or x.is_npu:
            return _C.scale(x)
        return x * 2
    y = scale(torch.ones(2).cuda())
    """,
    """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    batch_size = args.batch_size // dist.get_world_size()
    model = DistributedDataParallel(net.cuda(rank), device_ids=[rank])
    run(rank=rank, batch_size=batch_size)
    with torch.no_grad():
        y = model(x.cuda(rank))
    trainer = MyTrainer()
    """,
    """
    import torch
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def train(loader):
        total = 0.0
        optimizer.zero_grad()
        for x in loader:
            total += model(x.cuda()).sum()
        total.backward()
        optimizer.step()
    for _ in range(2):
        train(data)
    """,
    """
    import torch
    from torch.utils.data import DataLoader
    model.cuda()
    loader = DataLoader(data)
    total = 0.0
    for x, y in loader:
        total += criterion(model(x), y)
    print(total.item())
    for x, y in loader:
        seen = update_loss(model(x), y)
    """,
)
# The rules that rewrite less without a hint, each with the reason why it is no harm, or that it is.
EXCEPTED: dict[str, frozenset[str]] = {
    # breaks the law: `run(device="cuda")` is rewritten for the name of the argument
    "is_device_name": frozenset({"DEV002"}),
    # has `x.to(rank)` looked into; that it is an index, `evidence` shows
    "is_index_name": frozenset({"DEV003"}),
    # where a step ends: XLA begins a new program there, and no number depends on it; in a loop that
    # makes text, what gets the text is the model, and the rewrite takes --unsafe anyway
    "is_model_name": frozenset({"TOK001", "TOK002", "TRN003"}),
    "is_optimizer_name": frozenset({"TRN001"}),
    "speaks_of_loss": frozenset({"TRN003"}),
}


def examples() -> Iterator[tuple[Example, Target]]:
    for rule in registry().rules.values():
        for example in rule.examples:
            if example.path.endswith(".py"):
                yield from ((example, target) for target in rule.targets.values())
    for snippet, target in product(SNIPPETS, map(find_target, TARGETS)):
        yield Example(snippet, script=True), target
        yield Example(snippet, script=True, shard="fsdp"), target


def rewritten(example: Example, target: Target) -> set[tuple[int, int, str]]:
    result = migrate(example.before.encode(), target, example.options)
    return {
        (d.range.line, d.range.column, d.code)
        for d in result.diagnostics
        if d.outcome is Outcome.REWRITTEN
    }


@cache
def said() -> dict[str, list[tuple[Example, Target, set[tuple[int, int, str]]]]]:
    """For each hint, the examples of which it says something."""
    found: dict[str, list[tuple[Example, Target, set[tuple[int, int, str]]]]] = {}
    asked: set[str] = set()

    def telling(name: str, hint: Callable[[str], bool]) -> Callable[[str], bool]:
        def ask(word: str) -> bool:
            answer = hint(word)
            if answer:
                asked.add(name)
            return answer

        return ask

    with pytest.MonkeyPatch.context() as patch:
        for name in HINTS:
            patch.setattr(name_heuristics, name, telling(name, getattr(name_heuristics, name)))
        for example, target in examples():
            asked.clear()
            made = rewritten(example, target)
            for name in asked:
                found.setdefault(name, []).append((example, target, made))
    return found


@pytest.mark.parametrize("name", HINTS)
def test_without_a_hint_no_rewrite_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = said()[name]  # the examples have something for each
    monkeypatch.setattr(name_heuristics, name, lambda word: False)
    lost = {
        code for example, target, made in cases for _, _, code in made - rewritten(example, target)
    }
    assert lost == EXCEPTED.get(name, frozenset())


def test_the_names_of_values_are_judged_nowhere_else() -> None:
    """A pattern of names in another module would be a hint that the law does not see."""
    found = {
        f"{path.stem}:{node.targets[0].id}"
        for path in sorted((REPOSITORY / "migrator" / "analysis").rglob("*.py"))
        if path.stem != "name_heuristics"
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if node.targets[0].id.endswith("_NAME") and "re.compile" in ast.unparse(node.value)
    }
    assert found == {"sharding_tables:_MODEL_NAME"}
