"""CUDA by text and by position, on one line, and by an index."""

from __future__ import annotations

import pytest
from helpers import TARGETS, migrated, reported, run

IMPORTED = (
    "import importlib\nimport sys\nfrom operator import attrgetter, methodcaller\nimport torch\n"
)
CALLS = [
    ('getattr(torch, "cuda").synchronize()', "tpu_runtime.synchronize()"),
    ('mod = getattr(torch, "cuda")\nmod.synchronize()', None),
    ('mod = importlib.import_module("torch.cuda")\nmod.synchronize()', None),
    ('sys.modules["torch.cuda"].synchronize()', "tpu_runtime.synchronize()"),
    ('xs = map(methodcaller("cuda"), xs)', 'xs = map(methodcaller("to", "jax"), xs)'),
    ('f = methodcaller("cuda", 0)', 'f = methodcaller("to", "jax")'),
    (
        'f = methodcaller("cuda", non_blocking=fast)',
        'f = methodcaller("to", "jax", non_blocking=fast)',
    ),
    ('f = methodcaller("to", "cuda:1")', 'f = methodcaller("to", "jax")'),
    ("x = torch.Tensor.cuda(a + b)", 'x = (a + b).to("jax")'),
    ("net = torch.nn.Module.cuda(net)", 'net = net.to("jax")'),
    ('d = torch.device(type="cuda")', 'd = torch.device("jax")'),
    ('d = torch.device(type="cuda", index=rank)', 'd = torch.device("jax")'),
    ('x = torch.load(path, "cuda:0")', 'x = tpu_runtime.load(path, "jax")'),
    ("with torch.autograd.profiler.emit_nvtx():\n    f()", "f()"),
]


@pytest.mark.parametrize(("before", "after"), CALLS)
def test_other_words_for_the_same(before: str, after: str | None) -> None:
    result = run(f"{IMPORTED}{before}\n")
    assert not reported(result)
    text = migrated(f"{IMPORTED}{before}\n")
    head, line = before.rpartition("\n")[::2]
    expected = after or f"{head}\n{line.replace('mod', 'tpu_runtime')}"
    assert text.endswith(f"\n{expected}\n")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('on = getattr(x, "is_cuda", False)', '"is_cuda"'),
        ('xs = filter(attrgetter("is_cuda"), xs)', '"is_cuda"'),
        ('use(getattr(torch, "cuda"))', '"cuda"'),
        ('__import__("torch.cuda")', '"torch.cuda"'),
        ('patch("torch.cuda.is_available", lambda: True)', '"torch.cuda.is_available"'),
        ('mod = torch.get_device_module("cuda")', "torch.get_device_module"),
        ('net = torch._dynamo.optimize("inductor")(net)', "torch._dynamo.optimize"),
        ("try:\n    f()\nexcept torch.OutOfMemoryError:\n    g()", "torch.OutOfMemoryError"),
        (
            "try:\n    f()\nexcept RuntimeError as e:\n"
            '    if "CUDA out of memory" not in str(e):\n        raise',
            '"CUDA out of memory"',
        ),
        (
            "with torch.autograd.profiler.profile(use_cuda=True) as p:\n    f()",
            "torch.autograd.profiler.profile",
        ),
        ("class A(B):\n    def to(self):\n        return torch.nn.Module.cuda(self)",
         "torch.nn.Module.cuda"),
        ("net = torch.jit.script(net)\nnet.save(path)", "torch.jit.script"),
        ("net = torch.jit.load(path)", "torch.jit.load"),
        ("class Net(torch.jit.ScriptModule):\n    pass\n\n\nNet().cuda()",
         "torch.jit.ScriptModule"),
        ("net = torch.jit.trace(net, x)", "torch.jit.trace"),
    ],
)  # fmt: skip
def test_what_can_not_be_said_in_other_words_is_named(line: str, found: str) -> None:
    result = run(f"{IMPORTED}x = x.cuda()\n{line}\n")
    assert found in reported(result)


@pytest.mark.parametrize("target", ["torchax", "torch_xla"])
def test_a_trace_is_left_to_a_person_on_both_targets(target: str) -> None:
    result = run(f"{IMPORTED}x = x.cuda()\nnet = torch.jit.trace(net, x)\n", target)
    assert "torch.jit.trace" in reported(result)


@pytest.mark.parametrize(
    "line",
    [
        "with torch.autograd.profiler.profile() as p:\n    f()",
        "@torch.jit.script\ndef f(y):\n    return y",
        "def f(y):\n    return y\n\n\ng = torch.jit.script(f)",
        'try:\n    f()\nexcept ValueError as e:\n    if "out of memory" in e.args:\n        pass',
        'words = ["out of memory", "is_cuda"]',
        "is_scripted = isinstance(net, torch.jit.ScriptModule)",
        'has = hasattr(x, "is_cuda")',
    ],
)
def test_what_only_looks_like_it_stays(line: str) -> None:
    assert not reported(run(f"{IMPORTED}x = x.cuda()\n{line}\n"))


@pytest.mark.parametrize(
    ("line", "on_torchax"),
    [
        ("net.cuda()\nnet = torch.jit.script(net)", False),
        ("net = Net().to(device)\nscripted = torch.jit.script(net.eval())", False),
        ("net = Net().to(device)\nscripted = torch.jit.script(net)", False),
        ("net = torch.jit.script(Net().cuda())", False),
        ("net.cuda()\nnet = torch.jit.script(net)\nnet.to(device)", True),  # moved again
        ("net.cuda()\nnet = torch.jit.script(net).cuda()", True),
        ("net.to('cpu')\nnet = torch.jit.script(net)", True),
        ("net = torch.jit.script(net)\nother.cuda()", True),
        ("net.cuda()\nnet = torch.jit.script(net)\nnet(x).backward()", True),
    ],
)
def test_a_module_that_is_on_the_device_may_be_scripted(line: str, on_torchax: bool) -> None:
    saved = "torch.jit.save(net, path)"  # so that no module takes its place
    source = f'{IMPORTED}device = torch.device("cuda")\n{line}\n{saved}\n'
    assert "torch.jit.script" in reported(run(source, "torch_xla"))
    first = run(source)
    assert ("torch.jit.script" in reported(first)) is on_torchax
    assert ("torch.jit.script" in reported(run(first.source))) is on_torchax


@pytest.mark.parametrize(
    ("line", "is_reported"),
    [
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0"', False),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu', False),
        ('os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,1")', False),
        ('del os.environ["CUDA_VISIBLE_DEVICES"]', False),
        ('os.environ.pop("CUDA_VISIBLE_DEVICES", None)', False),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ""', True),  # the program was one for the CPU
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "-1"', True),
        ('n = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))', True),
        ('n = os.getenv("CUDA_VISIBLE_DEVICES", "").count(",") + 1', True),
    ],
)
def test_the_choice_of_gpus(line: str, is_reported: bool) -> None:
    source = f"import os\nimport torch\n\n{line}\nx = 1\nx = torch.ones(2).cuda()\n"
    assert migrated(source) == source.replace(".cuda()", '.to("jax")')
    assert (reported(run(source)) == ['"CUDA_VISIBLE_DEVICES"']) is is_reported


@pytest.mark.parametrize(
    "line",
    [
        "net = torch.jit.script(net)\nnet.save(path)",
        'net = torch._dynamo.optimize("inductor")(net)',
        'n = os.environ["CUDA_VISIBLE_DEVICES"]',
        "try:\n    f()\nexcept torch.OutOfMemoryError:\n    g()",
        "threading.Thread(target=lambda: x.cuda()).start()",
    ],
)
def test_what_is_left_is_left_in_a_second_run_too(line: str) -> None:
    first = run(f"import os\nimport threading\nimport torch\nx = x.cuda()\n{line}\n")
    left = [text.replace(".cuda()", '.to("jax")') for text in reported(first)]
    assert left == reported(run(first.source)) != []


# ---- one line, one name --------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("head", ["", '"""Doc."""\nimport os\n', "import numpy as np; "])
def test_set_up_stands_above_a_line_that_imports_and_computes(head: str, target: str) -> None:
    text = migrated(f"{head}import torch; x = torch.ones(1).cuda()\n", target, entry=True)
    assert text.index("import tpu_runtime") < text.index("tpu_runtime.setup()") < text.index("; x")


def test_set_up_stands_behind_a_line_that_only_imports() -> None:
    source = "import os; import torch\nx = torch.ones(1).cuda()\n"
    text = migrated(source, entry=True)
    assert text.index("import torch") < text.index("tpu_runtime.setup()") < text.index("x =")


@pytest.mark.parametrize(
    "source",
    [
        "if (dev := CHOICE) == 'cuda':\n    f()",
        "if (kind := CHOICE) == 'cuda':\n    f()",
        "if (CHOICE) == 'cuda':\n    f()",
        "kind = CHOICE\nif kind == 'cuda':\n    f()",
        "if kind := CHOICE:\n    f(kind != 'cuda')",
    ],
)
@pytest.mark.parametrize("test", ["torch.cuda.is_available()", "fast"])
def test_what_a_choice_is_compared_with_follows_it(source: str, test: str) -> None:
    source = "import torch\n" + source.replace("CHOICE", f"'cuda' if {test} else 'cpu'") + "\n"
    result = run(source)
    assert "cuda" not in result.source.decode()
    assert not reported(result)


# ---- indices -------------------------------------------------------------------------------------

NAMED = 'device = "cuda:0"\nx = torch.ones(2, device=device)\n'
OBJECT = 'device = torch.device("cuda:0")\nx = torch.ones(2, device=device)\n'


@pytest.mark.parametrize(
    "source",
    [
        OBJECT + "assert x.device == device",
        NAMED + "assert str(x.device) == device",
        NAMED + 'assert str(x.device) == "cuda:0"',
        NAMED + "assert torch.device(device) == x.device",
        'x = torch.ones(2).cuda()\nassert x.device == torch.device("cuda:0")',
        'x = torch.ones(2).cuda()\nself.assertEqual(x.device, torch.device("cuda:0"))',
        'x = torch.ones(2).cuda()\nassert x.device == torch.device("cuda", 0)',
        'x = torch.ones(2).cuda()\ndevice = str(x.device)\nassert device == "cuda:0"',
        'device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n'
        "if x.device != device:\n    x = x.to(device)",
        'match str(x.device):\n    case "cuda:0":\n        y = x.cuda()',
    ],
)
def test_a_device_keeps_its_index_where_it_is_compared(source: str) -> None:
    assert "jax:0" in migrated(f"import torch\n{source}\n")
    text = migrated(f"import torch\n{source}\n", "torch_xla")
    assert "xla:0" in text or "torch_xla.device()" in text


@pytest.mark.parametrize(
    "source",
    [
        NAMED + 'assert x.device.type == "cuda"',
        OBJECT + 'assert x.device != torch.device("cpu")',
        OBJECT + "assert x.device == y.device",
        OBJECT + 'if args.device == "cuda:0":\n    f()',
        OBJECT + 'assert x.device != torch.device("cuda")',
    ],
)
def test_an_index_that_is_not_compared_goes(source: str) -> None:
    assert ":0" not in migrated(f"import torch\n{source}\n")


@pytest.mark.parametrize(
    "source",
    [
        'match args.device:\n    case "cuda:0":\n        f()\n    case "cuda:1":\n        g()',
        'match args.device:\n    case "cuda:0" | "cuda:1":\n        f()',
        'if device == "cuda:0":\n    f()\nelif device == "cuda:1":\n    g()',
        'if str(x.device) in ("cuda:0", "cuda:1"):\n    f()',
        'f(x.device == torch.device("cuda:1"))',
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_another_index_that_is_compared_is_reported(source: str, target: str) -> None:
    assert reported(run(f"import torch\n{source}\n", target)) == ['"cuda:1"']


def test_the_first_device_is_told_from_the_current_one() -> None:
    source = 'match args.device:\n    case "cuda":\n        f()\n    case "cuda:0":\n        g()\n'
    assert migrated(f"import torch\n{source}") == f"import torch\n{source}".replace("cuda", "jax")


def test_an_index_is_reported_where_the_other_side_is_not_known() -> None:
    source = 'import torch\n\n\ndef f(device):\n    return device == torch.device("cuda:0")\n'
    assert reported(run(source)) == ['"cuda:0"']
    assert "torch_xla.device()" in migrated(source, "torch_xla")


def test_a_module_by_the_name_of_a_device_lacks_what_torchs_accelerator_has() -> None:
    """torch_tpu has a module `torch.tpu`, whose `device_count` and others raise an error."""
    result = run("import torch\nmod = getattr(torch, x.device.type)\n", "torch_tpu")
    (said,) = [d.message for d in result.diagnostics if d.code == "CUD005"]
    assert "torch.accelerator has it" in said
