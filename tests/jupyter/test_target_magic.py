"""`%%tpu_migrate` in a real kernel: what a cell shows, and what it computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from target import TARGET

LIMIT = 120  # seconds for a cell


class Kernel:
    """A kernel, and what its cells print."""

    def __init__(self, manager: KernelManager) -> None:
        self.client = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT)

    def run(self, *lines: str) -> tuple[str, str | None]:
        """What a cell printed or gave, without colours' codes, and the error that it ended with."""
        text: list[str] = []

        def hook(message: dict[str, Any]) -> None:
            content = message["content"]
            text.append(content.get("text") or content.get("data", {}).get("text/plain", ""))

        reply = self.client.execute_interactive("\n".join(lines), output_hook=hook, timeout=LIMIT)
        content = reply["content"]
        return "".join(text), content.get("ename")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setenv("NO_COLOR", "1")
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path))
    try:
        yield (made := Kernel(manager))
        made.client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)


def test_cells_run_migrated(kernel: Kernel) -> None:
    assert kernel.run("%load_ext migrator") == ("", None)
    kernel.run("import torch", "torch.manual_seed(0)", "model = torch.nn.Linear(4, 2)")

    said, error = kernel.run(f"%%tpu_migrate --target {TARGET}", "model.cuda()", "print(1)")
    assert error is None
    assert "-model.cuda()\n+import tpu_runtime\n+tpu_runtime.setup()\n+model.to(" in said
    assert said.endswith("1\n")

    kernel.run("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)")
    said, error = kernel.run(
        "%%tpu_migrate",
        "for _ in range(3):",
        "    optimizer.zero_grad()",
        "    loss = model(torch.ones(2, 4).cuda()).square().mean()",
        "    loss.backward()",
        "    optimizer.step()",
        "torch.cuda.synchronize()",
        "round(loss.item(), 3)",
    )
    assert error is None
    assert "import tpu_runtime\n" not in said  # it was imported
    here, _ = kernel.run(
        "torch.manual_seed(0)",
        "model = torch.nn.Linear(4, 2)",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "for _ in range(3):",
        "    optimizer.zero_grad()",
        "    loss = model(torch.ones(2, 4)).square().mean()",
        "    loss.backward()",
        "    optimizer.step()",
        "round(loss.item(), 3)",
    )
    assert said.endswith(here)


def test_what_ends_in_an_error_stops_the_notebook(kernel: Kernel) -> None:
    kernel.run("%load_ext migrator")
    assert "no target given" in kernel.run("%%tpu_migrate", "x = 1")[0]
    _, error = kernel.run(f"%%tpu_migrate --target {TARGET}", "x = 1", "x / 0")
    assert error == "ZeroDivisionError"
    assert kernel.run("x") == ("1", None)
    assert kernel.run("%%tpu_migrate", "x = (")[1] == "SyntaxError"
    other = "torch_xla" if TARGET == "torchax" else "torchax"
    assert "restart it" in kernel.run(f"%%tpu_migrate --target {other}", "y = 1")[0]


def test_a_look_runs_nothing(kernel: Kernel) -> None:
    kernel.run("%load_ext migrator", "import torch")
    said, error = kernel.run(f"%%tpu_migrate --target {TARGET} --diff", "x = torch.ones(2).cuda()")
    assert "-x = torch.ones(2).cuda()" in said and error is None
    assert kernel.run("x")[1] == "NameError"


def test_a_cell_may_await(kernel: Kernel) -> None:
    """In the kernel's own loop, which runs while the cell does."""
    kernel.run("%load_ext migrator", "import asyncio", "import torch")
    cell = ("await asyncio.sleep(0)", "x = torch.ones(2).cuda()", "float(x.sum())")
    said, error = kernel.run(f"%%tpu_migrate --target {TARGET} --diff", *cell)
    assert "-x = torch.ones(2).cuda()" in said and error is None
    said, error = kernel.run("%%tpu_migrate", *cell)
    assert said.endswith("2.0") and error is None
    assert kernel.run("%%tpu_migrate", "await asyncio.sleep(0)", "1 / 0")[1] == "ZeroDivisionError"
