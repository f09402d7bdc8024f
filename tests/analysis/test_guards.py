"""Guards: a question about CUDA in front of what only CUDA has keeps its answer, which is no."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from helpers import DEVICE, TARGETS, constructs, migrated, reported, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome

IMPORTS = (
    "import ctypes\nimport torch\nimport my_ext_cuda\nfrom torch.utils import cpp_extension\n"
    "import triton\nfrom mylib import _C\n\nops = cpp_extension.load('ops', ['ops.cu'])\n"
    "library = ctypes.CDLL('libfast.so')\n\n\n@triton.jit\ndef scale(x):\n    pass\n\n\n"
    "def fast(x):\n    return ops.scale(x)\n\n\nclass Fast(torch.autograd.Function):\n"
    "    @staticmethod\n    def forward(ctx, x):\n        return _C.scale(x)\n\n\n"
)

# What stands in the place of `{}` is a question; `x` answers no to it on a TPU.
BEHIND = [
    "    if {}:\n        return ops.scale(x)\n    return x * 2\n",
    "    if {}:\n        return library.scale(x.data_ptr())\n    return x * 2\n",
    "    if {}:\n        return _C.scale(x)\n    return x * 2\n",
    "    if {} or x.is_npu:\n        return _C.scale(x)\n    return x * 2\n",
    "    if not {} and not x.is_musa:\n        return x * 2\n    return _C.scale(x)\n",
    "    if {}:\n        return my_ext_cuda.scale(x)\n    return x * 2\n",
    "    if {}:\n        scale[(1,)](x)\n    else:\n        x *= 2\n",
    "    if {}:\n        return Fast.apply(x)\n    return x * 2\n",
    "    if {}:\n        return fast(x)\n    return x * 2\n",
    "    if {}:\n        return torch.ops.mylib.scale(x)\n    return x * 2\n",
    "    if {}:\n        return torch._scaled_mm(x, x)\n    return x @ x\n",
    "    if {}:\n        from flash_attn.ops import rms\n        return rms(x)\n    return x\n",
    "    if {} and ready(fast):\n        x = run(x)\n    return x\n",
    "    if not {}:\n        return x * 2\n    return fast(x)\n",
    "    if not {}:\n        raise ValueError('CUDA tensors only')\n    return fast(x)\n",
    "    if slow or not {}:\n        return x * 2\n    return fast(x)\n",
    "    assert {}, 'CUDA tensors only'\n    return fast(x)\n",
    "    assert w is not None and {}\n    return fast(x)\n",
    "    return fast(x) if {} else x * 2\n",
    "    return x * 2 if not {} else fast(x)\n",
    "    return {} and fast(x)\n",
    "    return not {} or fast(x)\n",
    "    return [fast(y) for y in x if {}]\n",
    "    on_gpu = {}\n    if on_gpu and w is None:\n        return fast(x)\n    return x * 2\n",
    "    on_gpu = w is None and {}\n    return fast(x) if on_gpu else x * 2\n",
    "    if (on_gpu := {}):\n        return fast(x)\n    return x * 2\n",
    "    for y in x:\n        if not {}:\n            continue\n        fast(y)\n",
    # what has no counterpart, and nothing beside it that has one
    "    if {}:\n        return torch.cuda.Stream()\n    return None\n",
    "    if not {}:\n        return None\n    return torch.cuda.get_device_capability()\n",
]
QUESTIONS = [
    "x.is_cuda",
    "(x.device.type == 'cuda')",
    "(x.device == torch.device('cuda'))",
    "str(x.device).startswith('cuda')",
    "torch.cuda.is_available()",
    "(device == 'cuda')",
]


@pytest.mark.parametrize("body", BEHIND)
def test_in_front_of_what_cuda_has_alone_the_answer_stays_no(body: str) -> None:
    for question in QUESTIONS:
        source = f"{IMPORTS}def total(x, w, slow, device):\n{body.format(question)}"
        result = run(source)
        assert result.source.decode() == source, question
        asked = [d for d in constructs(result) if d.construct in question]
        (kept,) = [d for d in asked if d.outcome is Outcome.KEPT]
        assert kept.message.startswith("false on a TPU")


@pytest.mark.parametrize(
    "body",
    [
        "    if {}:\n        return plain(x)\n    return fast(x)\n",
        "    if not {}:\n        return fast(x)\n    return plain(x)\n",
        "    if {}:\n        x = x.half()\n    return fast(x)\n",
        "    if {} or slow:\n        return fast(x)\n    return plain(x)\n",
        "    if not {}:\n        x = x + 1\n    return fast(x)\n",
        "    if {}:\n        return torch.ops.aten.sum(x)\n    return plain(x)\n",
        # an import that fails, and what has been made for it
        "    if {}:\n        try:\n            from flash_attn.ops import rms\n"
        "            return rms(x)\n        except ImportError:\n            pass\n    return x\n",
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_in_front_of_plain_code_the_target_answers_yes(body: str, target: str) -> None:
    source = f"{IMPORTS}def total(x, slow):\n{body}"
    assert "x.device.type ==" in migrated(source.format("x.is_cuda"), target)
    is_available = migrated(source.format("torch.cuda.is_available()"), target)
    assert "tpu_runtime.is_available()" in is_available
    assert f'device == "{DEVICE[target]}"' in migrated(source.format('device == "cuda"'), target)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_rewritten_is_no_kernel_any_more(target: str) -> None:
    text = migrated(
        "import torch\nfrom flash_attn import flash_attn_func\n\n\ndef attend(q, k, v):\n"
        "    if q.is_cuda:\n        return flash_attn_func(q, k, v)\n    return plain(q, k, v)\n",
        target,
    )
    assert f'q.device.type == "{DEVICE[target]}"' in text
    assert "tpu_runtime.flash_attn_func(q, k, v)" in text


def test_a_guard_of_a_kernel_and_of_a_move_is_for_a_person() -> None:
    """No: the model would stay on the CPU. Yes: the kernel would get tensors of a TPU."""
    source = (
        "import torch\nfrom mylib import _C\n\nuse_cuda = torch.cuda.is_available()\n\n\n"
        "def run(net, x):\n    if use_cuda:\n        net.cuda()\n"
        "    return _C.scale(x) if use_cuda else x * 2\n"
    )
    result = run(source)
    assert "use_cuda = torch.cuda.is_available()" in result.source.decode()
    (found,) = [d for d in constructs(result) if d.construct == "torch.cuda.is_available"]
    assert found.outcome is Outcome.REPORTED
    assert "line 10" in found.message and "line 9" in found.message


def test_a_program_that_moves_its_model_and_reports_something_else_is_migrated() -> None:
    source = (
        "import torch\n\nif torch.cuda.is_available():\n    net.cuda()\n"
        "    print(torch.cuda.get_device_capability())\n"
    )
    result = run(source)
    assert "if tpu_runtime.is_available():" in result.source.decode()
    assert reported(result) == ["torch.cuda.get_device_capability"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_stream_that_does_not_run_is_not_missed(target: str) -> None:
    source = (
        "import torch\n\n\nclass Loader:\n    def __init__(self, device):\n"
        "        self.is_cuda = device.type == 'cuda' and torch.cuda.is_available()\n\n"
        "    def batch(self, x):\n        stream = None\n"
        "        if self.is_cuda:\n            stream = torch.cuda.Stream()\n"
        "        if self.is_cuda:\n            torch.cuda.current_stream().wait_stream(stream)\n"
        "            print(torch.cuda.get_device_capability())\n        return {}\n"
    )
    result = run(source.format("x"), target)
    assert result.source.decode() == source.format("x")
    assert reported(result) == ["torch.cuda.get_device_capability"]
    kept = [d.message for d in constructs(result) if d.construct.endswith(("Stream", "_stream"))]
    assert kept == ["does not run on a TPU, where line 6 is false"] * 2
    others = reported(run(source.format("torch.cuda.Stream()"), target))
    assert others == ["torch.cuda.get_device_capability", "torch.cuda.Stream"]


def test_a_compiled_module_that_other_code_takes_the_place_of_is_not_missed(tmp_path: Path) -> None:
    source = (
        "import torch\n\n\ndef scale(x):\n    if x.is_cuda:\n        import scale_cuda\n"
        "        return scale_cuda.forward(x)\n    {}\n\n\nprint(scale(torch.ones(2).cuda()))\n"
    )
    path = tmp_path / "train.py"
    left = []
    for other in ("return x * 2", "raise NotImplementedError"):
        path.write_text(source.format(other), encoding="utf-8")
        [file] = migrate_paths([path], "torchax").files
        left.append(reported(file.result))
    assert left == [[], ["import scale_cuda"]]


@pytest.mark.parametrize(
    "skip",
    [
        '@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")\n',
        '@unittest.skipUnless(torch.cuda.is_available(), "CUDA")\n',
        'cuda_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")\n\n\n'
        "@cuda_only\n",
    ],
)
def test_a_test_of_a_kernel_is_skipped(skip: str) -> None:
    head = "import unittest\nimport pytest\nimport torch\nfrom mylib import _C\n\n\n"
    kernel = f"{head}{skip}def test_scale():\n    assert _C.scale(x) == 2\n"
    assert run(kernel).source.decode() == kernel
    plain = f"{head}{skip}def test_scale():\n    assert scale(x) == 2\n"
    assert "tpu_runtime.is_available()" in run(plain).source.decode()


@pytest.mark.parametrize(
    "asks",
    [
        "    return x.is_cuda\n",
        "    if not x.is_cuda:\n        return False\n    return x.dtype == torch.float16\n",
        "    if x.is_cuda and x.dim() == 2:\n        return True\n    return False\n",
    ],
)
def test_a_function_that_asks_for_a_kernel(asks: str) -> None:
    head = f"import torch\nfrom mylib import _C\n\n\ndef can_use(x):\n{asks}\n\n"
    source = (
        f"{head}def scale(x):\n    if can_use(x):\n        return _C.scale(x)\n    return x * 2\n"
    )
    assert run(source).source.decode() == source
    plain = source.replace("_C.scale(x)", "2 * x")
    assert "x.device.type ==" in run(plain).source.decode()


def test_a_plugin_that_a_function_of_the_program_builds(tmp_path: Path) -> None:
    """As in StyleGAN: the extension is built by another file, when it is first needed."""
    op = (
        "import torch\nfrom . import custom_ops\n\n_plugin = None\n\n\ndef _init():\n"
        "    global _plugin\n    if _plugin is None:\n"
        "        _plugin = custom_ops.get_plugin('scale')\n    return True\n\n\n"
        "def scale(x, impl='cuda'):\n"
        "    if impl == 'cuda' and x.device.type == 'cuda' and _init():\n"
        "        return _scale_cuda().apply(x)\n    return _scale_ref(x)\n\n\n"
        "def _scale_ref(x):\n    return x * 2\n\n\n"
        "def _scale_cuda():\n    class Scale(torch.autograd.Function):\n        @staticmethod\n"
        "        def forward(ctx, x):\n            return _plugin.scale(x)\n\n    return Scale\n"
    )
    ops = "import torch.utils.cpp_extension\n\n\ndef get_plugin(name):\n"
    ops += "    return torch.utils.cpp_extension.load(name, [name + '.cu'])\n"
    files = {"ops/__init__.py": "", "ops/custom_ops.py": ops, "ops/scale.py": op}
    write_tree(tmp_path, files)
    report = migrate_paths([tmp_path])
    (found,) = [f.result for f in report.files if f.path.name == "scale.py"]
    assert found.source.decode() == op


def test_a_function_of_the_program_that_runs_kernels(tmp_path: Path) -> None:
    fp8 = (
        "import torch\n\n\nclass Matmul(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x, w):\n        return torch._scaled_mm(x, w)\n\n\n"
        "class Linear(torch.nn.Linear):\n    def forward(self, x):\n"
        "        return Matmul.apply(x, self.weight)\n\n\ndef convert(model):\n"
        "    model.head = Linear(2, 2)\n"
    )
    train = (
        "import torch\n\nif fp8:\n    if device_type != 'cuda':\n"
        "        print('FP8 requires CUDA, ignoring')\n    else:\n"
        "        from fp8 import convert\n        convert(model)\n"
    )
    write_tree(tmp_path, {"fp8.py": fp8, "train.py": train})
    report = migrate_paths([tmp_path])
    (found,) = [f.result for f in report.files if f.path.name == "train.py"]
    assert "if device_type != 'cuda':" in found.source.decode()


@pytest.mark.parametrize(
    ("imported", "called"), [("from . import src", "src.gpu"), ("from .src import gpu", "gpu")]
)
def test_an_extension_that_another_file_loads(imported: str, called: str, tmp_path: Path) -> None:
    built = (
        "import torch\nfrom torch.utils.cpp_extension import load\n\n"
        "cpu = load('mask_cpu', ['mask.cpp'])\nif torch.cuda.is_available():\n"
        "    gpu = load('mask_gpu', ['mask.cu'])\n"
    )
    mask = (
        f"import torch\n{imported}\n\n\ndef mask(x):\n    if not x.is_cuda:\n"
        f"        return x * 2\n    else:\n        return {called}.mask(x)\n"
    )
    files = {"lib/__init__.py": "", "lib/src/__init__.py": built, "lib/mask.py": mask}
    write_tree(tmp_path, files)
    report = migrate_paths([tmp_path])
    (found,) = [f.result for f in report.files if f.path.name == "mask.py"]
    assert found.source.decode() == mask


def test_a_function_that_asks_by_itself_is_no_kernel(tmp_path: Path) -> None:
    ops = (
        "import torch\nfrom . import _C\n\n\ndef scale(x):\n    if x.is_cuda:\n"
        "        return _C.scale(x)\n    return x * 2\n"
    )
    main = "import torch\nfrom lib.ops import scale\n\nif torch.cuda.is_available():\n"
    main += "    y = scale(x)\n"
    write_tree(tmp_path, {"lib/__init__.py": "", "lib/ops.py": ops, "main.py": main})
    report = migrate_paths([tmp_path])
    texts = {f.path.name: f.result.source.decode() for f in report.files}
    assert "if tpu_runtime.is_available():" in texts["main.py"] and texts["ops.py"] == ops


def test_many_guards_are_asked_in_no_time() -> None:
    """Each looks at what follows it, and at nothing twice."""
    import time

    def seconds(count: int) -> float:
        guards = "    if not x.is_cuda:\n        return x\n" * count
        source = f"import torch\nfrom mylib import _C\n\n\ndef f(x):\n{guards}    return x\n"
        start = time.process_time()
        run(source)
        return time.process_time() - start

    seconds(50)
    assert seconds(800) < 10 * seconds(200)


# ---- in front of what is reported ----------------------------------------------------------------

CAPABILITY = "torch.cuda.get_device_capability()"
# What a TPU has no counterpart of, and what else stands behind the question `{}`.
FALSE = [
    "    if {q} and {c}[0] >= 8:\n        torch.backends.cuda.matmul.allow_tf32 = True\n"
    "        return torch.bfloat16\n    return torch.float32\n",
    "    if {q}:\n        if {c} >= (8, 0):\n            torch.cuda.manual_seed(1)\n    return x\n",
    "    if {q}:\n        major, _ = {c}\n        torch.cuda.synchronize()\n    return x\n",
    "    if not {q}:\n        return x\n    if {c}[0] < 8:\n        return x\n"
    "    torch.cuda.manual_seed(1)\n    return x + 1\n",
    "    torch.backends.cudnn.allow_tf32 = {q} and {c}[0] >= 8\n    return x\n",
    "    half = {q} and {c}[0] >= 8\n    torch.cuda.manual_seed(1)\n    return x\n",
]
FOR_A_PERSON = [
    "    if {q}:\n        if {c}[0] >= 8:\n            x = x.cuda()\n    return x\n",
    "    if {q}:\n        print({c})\n        x = x.cuda()\n    return x\n",
    "    return x.to('cuda' if {q} and {c}[0] >= 8 else 'cpu')\n",
    "    fast = {q} and {c}[0] >= 8\n    return x.cuda() if fast else x\n",
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", [*FALSE, *FOR_A_PERSON])
def test_a_question_is_not_answered_with_yes_in_front_of_what_fails_then(
    body: str, target: str
) -> None:
    source = "import torch\n\n\ndef total(x):\n" + body.format(
        q="torch.cuda.is_available()", c=CAPABILITY
    )
    result = run(source, target)
    assert "torch.cuda.is_available()" in result.source.decode()
    (found,) = [d for d in constructs(result) if d.construct == "torch.cuda.is_available"]
    assert found.outcome is (Outcome.KEPT if body in FALSE else Outcome.REPORTED)
    assert CAPABILITY.removesuffix("()") in found.message


def test_what_works_first_is_reached() -> None:
    source = (
        "import torch\n\nuse = torch.cuda.is_available()\nx = torch.ones(2)\n"
        f"x = x.to('cuda' if use else 'cpu')\nif use:\n    print({CAPABILITY})\n"
    )
    assert "use = tpu_runtime.is_available()" in run(source).source.decode()


GRAPH = "graph = torch.cuda.CUDAGraph()"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (f"if device.type == 'cuda':\n    {GRAPH}\nelse:\n    graph = None\n", True),
        (f"if device.type != 'cuda':\n    graph = None\nelse:\n    {GRAPH}\n", True),
        ("graph = torch.cuda.CUDAGraph() if str(device).startswith('cuda') else None\n", True),
        (f"if device.type == 'cuda' and fast:\n    {GRAPH}\n    return graph\nreturn None\n", True),
        (f"if device.type == 'cuda':\n    {GRAPH}\nelif slow:\n    graph = 1\n", True),
        # nothing runs in its place, or something that may not run with a TPU's tensors
        (f"if device.type == 'cuda':\n    {GRAPH}\n", False),
        (f"if device.type == 'cuda' or fast:\n    {GRAPH}\nelse:\n    graph = 1\n", False),
        (f"if device.type == 'cuda':\n    {GRAPH}\nelse:\n    raise ValueError\n", False),
        (f"if device.type == 'cuda':\n    {GRAPH}\n    return\nassert False\n", False),
        (f"if device.type == 'cuda':\n    {GRAPH}\nelse:\n    graph = f(x.numpy())\n", False),
        (f"if device.type == 'cuda':\n    {GRAPH}\nelse:\n    x = x.to('cpu')\n", False),
        (f"if device.type == 'cuda':\n    {GRAPH}\nelse:\n    torch.cuda.Stream()\n", False),
        # the state of a device that draws: that of the CPU is another one
        ("if device.type == 'cuda':\n    s = torch.cuda.get_rng_state()\n"
         "else:\n    s = torch.get_rng_state()\n", False),
    ],
)  # fmt: skip
def test_other_code_runs_in_place_of_cudas(body: str, kept: bool, target: str) -> None:
    source = "import torch\n\n\ndef f(x, device, fast, slow):\n" + indent(body, "    ")
    result = run(source, target)
    assert result.changed is (" or " in body)
    behind = [d for d in constructs(result) if "torch.cuda" in d.construct][:1]
    assert [d.outcome for d in behind] == [Outcome.KEPT if kept else Outcome.REPORTED]


@pytest.mark.parametrize("target", TARGETS)
def test_a_wait_in_front_of_what_cuda_has_alone_is_no_work(target: str) -> None:
    source = (
        "import torch\n\n\ndef f(device):\n    if device.type == 'cuda':\n"
        f"        torch.cuda.synchronize()\n        {GRAPH}\n        return graph\n"
        "    return None\n"
    )
    result = run(source, target)
    assert "if device.type == 'cuda':" in result.source.decode()
    assert not any(d.outcome is Outcome.REPORTED for d in constructs(result))
