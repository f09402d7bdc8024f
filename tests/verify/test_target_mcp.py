"""An agent changes a program by hand, and `verify` judges, by `tpu-migrate mcp --allow-run`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import anyio
from helpers import committed
from mcp import Client
from target import TARGET
from tiers import thorough_on

from tests.command.agents import called, session

BEFORE = """import torch

torch.manual_seed(0)
embed = torch.nn.Linear(4, 8).cuda()
optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)


def attend(x):
    scores = x @ x.transpose(-1, -2) / 8**0.5
    mask = torch.ones(5, 5, device="cuda").tril().bool()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ x


for step in range(3):
    loss = attend(embed(torch.randn(2, 5, 4).cuda())).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
BY_HAND = """def attend(x):
    return torch.nn.functional.scaled_dot_product_attention(x, x, x{causal})
"""


def by_hand(causal: str) -> str:
    begin, _, rest = BEFORE.partition("def attend")
    return begin + BY_HAND.format(causal=causal) + "\n\n" + rest[rest.index("for step") :]


@thorough_on("torch_xla")  # the server is the same
def test_a_change_by_hand_is_compared_with_what_was_recorded(tmp_path: Path) -> None:
    root = committed(tmp_path / "root", {"train.py": BEFORE})
    script = {"script": "train.py", "target": TARGET}
    found: dict[str, Any] = {}

    async def talk(client: Client) -> None:
        await client.call_tool("record", {"script": "train.py", "output": "golden"})
        for name, causal in (("right", ", is_causal=True"), ("wrong", "")):
            (root / "train.py").write_text(by_hand(causal))
            found[name] = await called(client, "verify", **script, golden="golden", quick=True)
        found["itself"] = await called(client, "verify", **script, quick=True)

    session(root, "--allow-run", talk=talk)
    assert found["right"]["passed"], found["right"]
    wrong = found["wrong"]
    assert not wrong["passed"] and wrong["first"]["reason"], wrong
    assert wrong["compiled"]["first_that_differ"] or wrong["stepwise"]["first_that_differ"]
    # why an agent has to record first: a mistake agrees with its own migration
    assert found["itself"]["passed"]


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@thorough_on("torch_xla")
def test_cancelling_ends_the_program(tmp_path: Path) -> None:
    waits = f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    root = committed(tmp_path / "root", {"train.py": BEFORE + waits + "time.sleep(600)\n"})
    said: list[str] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    async def talk(client: Client) -> None:
        async def cancel_once_it_runs(scope: anyio.CancelScope) -> None:
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                await anyio.sleep(0.1)
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(cancel_once_it_runs, group.cancel_scope)
            given = {"script": "train.py", "target": TARGET}
            await client.call_tool("verify", given, progress_callback=note)
        process = int((tmp_path / "pid").read_text())
        until = time.monotonic() + 60
        while is_there(process) and time.monotonic() < until:
            await anyio.sleep(0.1)
        assert not is_there(process)
        assert await called(client, "explain", code="MOV001")  # the server goes on

    session(root, "--allow-run", talk=talk)
    assert any("the original, train.py" in line for line in said)
