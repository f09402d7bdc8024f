"""What edits would leave behind: blocks that do nothing, variables and imports without a use."""

from __future__ import annotations

import pytest
from helpers import migrated

USES = "import torch\n\n\ndef f(args, x):\n"
REST = "    return torch.relu(x)\n"
EMPTY = "torch.cuda.empty_cache()"

GO = [
    f"    if args.a:\n        {EMPTY}\n",
    f"    if args.a:\n        {EMPTY}\n    elif args.b:\n        {EMPTY}\n",
    f"    if args.a:\n        {EMPTY}\n    elif args.b:\n        {EMPTY}\n"
    f"    else:\n        {EMPTY}\n",
    f"    for i in range(3):\n        {EMPTY}\n",
    f"    with torch.no_grad():\n        {EMPTY}\n",
    f"    try:\n        {EMPTY}\n    except RuntimeError:\n        pass\n",
    f"    {EMPTY} if args.a else None\n",
    f"    args.a and {EMPTY}\n",
    f"    n = args.n\n    if n > 1:\n        {EMPTY}\n",
    "    gpu = args.gpu\n    torch.cuda.set_device(gpu)\n",
    "    rank = args.rank\n    gpu = rank % torch.cuda.device_count()\n"
    "    torch.cuda.set_device(gpu)\n",
]  # fmt: skip


@pytest.mark.parametrize("block", GO)
def test_what_does_nothing_goes(block: str) -> None:
    assert migrated(f"{USES}{block}{REST}") == f"{USES}{REST}"


STAY = [
    (f"    if g(x):\n        {EMPTY}\n", "    if g(x):\n        pass\n"),
    (f"    for i in load(x):\n        {EMPTY}\n", "    for i in load(x):\n        pass\n"),
    (f"    for x in range(3):\n        {EMPTY}\n", "    for x in range(3):\n        pass\n"),
    (f"    with open(args.a):\n        {EMPTY}\n", "    with open(args.a):\n        pass\n"),
    (f"    g(x) and {EMPTY}\n", "    g(x) and None\n"),
    ("    gpu = ask(args)\n    torch.cuda.set_device(gpu)\n", "    gpu = ask(args)\n"),
    ("    gpu = args.gpu\n    torch.cuda.set_device(gpu)\n    print(gpu)\n",
     "    gpu = args.gpu\n    print(gpu)\n"),
    (f"    try:\n        {EMPTY}\n    finally:\n        g(x)\n",
     "    try:\n        pass\n    finally:\n        g(x)\n"),
]  # fmt: skip


@pytest.mark.parametrize(("block", "become"), STAY)
def test_what_has_an_effect_stays(block: str, become: str) -> None:
    assert migrated(f"{USES}{block}{REST}") == f"{USES}{become}{REST}"


def test_a_value_that_is_none_in_any_case() -> None:
    source = f"{USES}    y = {EMPTY} if args.a else None\n    return x, y, torch.relu(x)\n"
    assert migrated(source) == f"{USES}    y = None\n    return x, y, torch.relu(x)\n"


def test_an_import_goes_with_its_last_use() -> None:
    source = "import os\nimport torch\nimport torch.nn as nn\nfrom torch import optim\n\n\n"
    source += f"def f(m):\n    {EMPTY}\n    return nn.DataParallel(m)\n"
    now = "import os\nimport torch\nimport tpu_runtime\nfrom torch import optim\n\n\n"
    assert migrated(source) == f"{now}def f(m):\n    return tpu_runtime.DataParallel(m)\n"


@pytest.mark.parametrize("use", ["y = nn.ReLU()", "__all__ = ['nn']", "y = eval('nn')"])
def test_an_import_with_another_use_stays(use: str) -> None:
    head = f"import torch.nn as nn\nimport tpu_runtime\n{use}\n"
    source = head.replace("import tpu_runtime\n", "")
    assert (
        migrated(f"{source}m = nn.DataParallel(m)\n") == f"{head}m = tpu_runtime.DataParallel(m)\n"
    )
