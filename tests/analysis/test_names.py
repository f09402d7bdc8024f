"""Names: every spelling of an import is followed, and a name that means something else is not."""

from __future__ import annotations

import ast

import pytest
from helpers import TARGETS, assert_sound, constructs, migrated, outcomes, run

from migrator.analysis.syntax.names import Names


def qualified(source: str) -> list[str | None]:
    """What each expression statement, argument of `see(...)`, means."""
    tree = ast.parse(source)
    names = Names(tree)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "see"]
    calls.sort(key=lambda call: call.lineno)
    return [names.qualified(call.args[0]) for call in calls]


SPELLINGS = [
    ("import torch\nsee(torch.cuda.amp.autocast)", "torch.cuda.amp.autocast"),
    ("import torch as th\nsee(th.cuda.amp.autocast)", "torch.cuda.amp.autocast"),
    ("import torch.cuda\nsee(torch.cuda.amp.autocast)", "torch.cuda.amp.autocast"),
    ("import torch.cuda.amp as amp\nsee(amp.autocast)", "torch.cuda.amp.autocast"),
    ("from torch.cuda import amp\nsee(amp.autocast)", "torch.cuda.amp.autocast"),
    ("from torch import cuda\nsee(cuda.amp.autocast)", "torch.cuda.amp.autocast"),
    ("from torch import cuda as c\nsee(c.is_available)", "torch.cuda.is_available"),
    ("from torch.cuda.amp import autocast as ac\nsee(ac)", "torch.cuda.amp.autocast"),
    ("from torch.cuda.amp.autocast_mode import autocast\nsee(autocast)", "torch.cuda.amp.autocast"),
    ("from torch.amp.grad_scaler import GradScaler\nsee(GradScaler)", "torch.amp.GradScaler"),
    ("from torch.cuda.random import manual_seed\nsee(manual_seed)", "torch.cuda.manual_seed"),
    (
        "import torch.backends.cudnn as cudnn\nsee(cudnn.benchmark)",
        "torch.backends.cudnn.benchmark",
    ),
    ("from torch.backends import cudnn\nsee(cudnn.benchmark)", "torch.backends.cudnn.benchmark"),
    ("import torch.distributed as dist\nsee(dist.get_rank)", "torch.distributed.get_rank"),
    ("import torch\ncuda = torch.cuda\nsee(cuda.synchronize)", "torch.cuda.synchronize"),
    ("from torch import *\nsee(cuda.synchronize)", "torch.cuda.synchronize"),
    ("def f():\n    import torch as t\n    see(t.cuda.Event)", "torch.cuda.Event"),
    (
        "def f():\n    from torch import cuda\n    return [see(cuda.Event) for q in a]",
        "torch.cuda.Event",
    ),
    ("class C:\n    import torch\n    see(torch.cuda.Event)", "torch.cuda.Event"),
    (
        "try:\n    import torch\nexcept ImportError:\n    torch = None\nsee(torch.cuda)",
        "torch.cuda",
    ),
    ("if a:\n    import torch\nsee(torch.cuda)", "torch.cuda"),
    ("def f():\n    global torch\n    import torch\nsee(torch.cuda)", "torch.cuda"),
    ("import torch\nlambda x: see(torch.cuda)", "torch.cuda"),
    ("import torch\ndef f(a=see(torch.cuda)): pass", "torch.cuda"),
    ("import torch\nclass C:\n    torch = 1\n    def f(self): see(torch.cuda)", "torch.cuda"),
    ("import torch\n[torch for torch in a]\nsee(torch.cuda)", "torch.cuda"),
    ("from torch.utils.data import DataLoader as D\nsee(D)", "torch.utils.data.DataLoader"),
]


@pytest.mark.parametrize(("source", "meaning"), SPELLINGS)
def test_spelling(source: str, meaning: str) -> None:
    assert qualified(source) == [meaning]
    assert meaning.rpartition(".")[2] in Names(ast.parse(source)).words


HIDDEN = [
    "import torch\ndef f(torch): see(torch.cuda)",
    "import torch\ndef f(*torch): see(torch.cuda)",
    "import torch\ndef f(*, torch=1): see(torch.cuda)",
    "import torch\nlambda torch: see(torch.cuda)",
    "import torch\ndef f():\n    torch = fake()\n    see(torch.cuda)",
    "import torch\ndef f():\n    for torch in a: see(torch.cuda)",
    "import torch\ndef f():\n    with a as torch: see(torch.cuda)",
    "import torch\n[see(torch.cuda) for torch in a]",
    "import torch\ndef f():\n    import numpy as torch\n    see(torch.cuda)",
    "import torch\ndef f():\n    def torch(): pass\n    see(torch.cuda)",
    "import torch\ndef f():\n    try: pass\n    except E as torch: see(torch.cuda)",
    "import torch\ndef f():\n    match a:\n        case [torch]: see(torch.cuda)",
    "import torch\ntorch = wrap(torch)\nsee(torch.cuda)",
    "see(torch.cuda)",
    "from .torch import cuda\nsee(cuda.synchronize)",
    "from mytorch import cuda\nsee(cuda.synchronize)",
    "import mytorch.cuda as cuda\nsee(cuda.synchronize)",
    "class C:\n    import torch\n    def f(self): see(torch.cuda)",
]


@pytest.mark.parametrize("source", HIDDEN)
def test_a_hidden_name_is_not_torch(source: str) -> None:
    assert not any((meaning or "").startswith("torch") for meaning in qualified(source))


def test_first_iterable_of_a_comprehension_is_outside() -> None:
    source = "import torch\n[torch for torch in see(torch.cuda)]"
    assert qualified(source) == ["torch.cuda"]


# ---- the same in migrations ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import torch as th\nth.cuda.seed()\n",
            "import torch as th\nimport tpu_runtime\ntpu_runtime.seed()\n",
        ),
        ("from torch import cuda\ncuda.seed()\n", "import tpu_runtime\ntpu_runtime.seed()\n"),
        (
            "from torch import cuda, nn\ncuda.seed()\n",
            "import tpu_runtime\nfrom torch import nn\ntpu_runtime.seed()\n",
        ),
        (
            "from torch.cuda import seed as s, nvtx\ns()\nnvtx.mark\n",
            None,
        ),
        (
            "def f():\n    from torch.cuda import seed\n    seed()\n",
            "import tpu_runtime\ndef f():\n    from torch.cuda import seed\n"
            "    tpu_runtime.seed()\n",
        ),
        ("import torch\nimport torch.cuda\ntorch.cuda.seed()\n", None),
        ("from torch.cuda.amp import autocast as ac\nwith ac(False):\n    f()\n", None),
    ],
)
def test_aliases_are_rewritten(before: str, after: str | None) -> None:
    result = migrated(before)
    if after is not None:
        lines = [line for line in result.splitlines() if line]
        assert sorted(lines) == sorted(after.splitlines())
    assert "tpu_runtime." in result
    assert result.count("import tpu_runtime\n") == 1
    ast.parse(result)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "source",
    [
        "from torch.cuda import *\nmanual_seed_all(0)\nsynchronize()\n",
        "from torch.cuda.amp import *\nwith autocast():\n    f()\n",
        "from torch import *\ncuda.synchronize()\n",
    ],
)
def test_star_imports_are_followed_or_reported(source: str, target: str) -> None:
    result = run(source, target)
    assert_sound(result, target)
    assert constructs(result)


@pytest.mark.parametrize("target", TARGETS)
def test_shadowed_names_stay(target: str) -> None:
    source = (
        "import torch\n"
        "def f(torch, cuda): return torch.cuda.is_available(), cuda.empty_cache()\n"
        "def g(cuda=None): cuda.synchronize()\n"
        "class K:\n    def empty_cache(self): self.empty_cache()\n"
    )
    result = run(source, target)
    assert not result.changed
    assert not constructs(result)


def test_try_except_imports_of_autocast() -> None:
    source = (
        "try:\n    from torch.amp import autocast, GradScaler\n"
        "except ImportError:\n    from torch.cuda.amp import autocast, GradScaler\n"
        "scaler = GradScaler()\n"
        "with autocast('cuda'):\n    f()\n"
    )
    for target in TARGETS:
        result = run(source, target)
        assert_sound(result, target)
        assert not [o for o in outcomes(result) if o[1] == "reported"]
        text = result.source.decode()
        assert "try" not in text and text.startswith("import torch\n")
        assert "GradScaler()" not in text


@pytest.mark.parametrize("target", TARGETS)
def test_imports_are_added_once_and_unused_ones_go(target: str) -> None:
    text = migrated(
        '"""Doc."""\n\nfrom __future__ import annotations\n\nimport os\n\n'
        "import numpy as np\nimport torch\n"
        "from torch.cuda.amp import autocast, GradScaler\nfrom torch.backends import cudnn\n\n"
        "cudnn.benchmark = True\n"
        "print(torch.cuda.device_count(), torch.cuda.max_memory_allocated())\n"
        "def f(x):\n    with autocast():\n        return x\nscaler: GradScaler = None\n",
        target,
    )
    lines = text.splitlines()
    assert lines.count("import tpu_runtime") == 1
    assert "from torch.backends import cudnn" not in lines
    assert "from torch.cuda.amp import GradScaler" in lines  # still used
    assert lines.index("from __future__ import annotations") < lines.index("import tpu_runtime")
    assert lines.index("import tpu_runtime") < lines.index("def f(x):")


@pytest.mark.parametrize("target", TARGETS)
def test_an_import_of_others_stays(target: str) -> None:
    """A name that other files may import from here, or that `__all__` lists, is still used."""
    text = migrated(
        "import torch\nfrom torch.cuda.amp import autocast\n__all__ = ['autocast', 'f']\n"
        "def f(x):\n    with autocast():\n        return x\n",
        target,
    )
    assert "from torch.cuda.amp import autocast\n" in text


def test_a_taken_name_is_not_overwritten() -> None:
    source = "import torch\ntpu_runtime = 3\ntorch.cuda.synchronize()\n"
    result = run(source, "torchax")
    assert not result.changed
    assert [o[1] for o in outcomes(result)] == ["reported"]
    assert "tpu_runtime" in constructs(result)[0].message


USES_BELOW_BLOCKS = [
    "try:\n    import torch\nexcept ImportError:\n    torch = None\n\ndef f():\n"
    "    torch.cuda.seed()\n",
    "try:\n    import torch\n    HAS = torch.cuda.is_available()\n"
    "except ImportError:\n    HAS = False\n",
    "if __name__ == '__main__':\n    import torch\n    torch.cuda.seed()\n",
    "def f():\n    import torch\n    torch.cuda.seed()\n",
    "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n# License\n\ndef f():\n    import torch\n"
    "    torch.cuda.seed()\n",
    "x = 1\nimport torch\ntorch.cuda.seed()\n",
    "import sys; import torch; torch.cuda.seed()\n",
    "import os, torch; x = 1; torch.cuda.seed()\n",
    "import torch; torch.cuda.seed()\nimport os\n",
    "def f():\n    torch.cuda.seed()\nimport torch\nf()\n",
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", USES_BELOW_BLOCKS)
def test_the_new_import_stands_above_its_uses(source: str, target: str) -> None:
    tree = ast.parse(migrated(source, target))
    imported = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and node.names[0].name == "tpu_runtime"
    ]
    assert len(imported) == 1
    runs_at_import = [
        node
        for statement in tree.body
        if not isinstance(statement, ast.FunctionDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == "tpu_runtime"
    ]
    first = (imported[0].lineno, imported[0].col_offset)
    assert all((node.lineno, node.col_offset) > first for node in runs_at_import)
