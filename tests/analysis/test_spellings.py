"""The same things said in other ways: patterns, chains, stores by name, negated questions."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, migrated, reported, run

# ---- `match` -------------------------------------------------------------------------------------

SAME = [
    ("device.type", '"cuda"'),
    ("args.device", '"cuda:0"'),
    ("device.type", '"cuda" | "mps"'),
    ("device.type", '("cuda" | "xpu") as kind'),
    ("torch.device(name)", 'torch.device(type="cuda")'),
    ("config", '{"device": "cuda"}'),
    ("(fast, device.type)", '(True, "cuda")'),
    ("(fast, (1, device.type))", '[_, (1, "cuda")]'),
]


def matched(subject: str, pattern: str) -> str:
    return (
        f"import torch\n\n\ndef rate(device, config, fast):\n    match {subject}:\n"
        f'        case "cpu":\n            return 1\n        case {pattern}:\n'
        "            return 2\n"
    )


@pytest.mark.parametrize(("subject", "pattern"), SAME)
def test_a_pattern_for_a_device_is_one_for_the_target(subject: str, pattern: str) -> None:
    source = matched(subject, pattern)
    expected = source.replace('"cuda:0"', '"cuda"').replace('"cuda"', '"jax"')
    assert migrated(source) == expected


@pytest.mark.parametrize(
    ("subject", "pattern"),
    [
        ("kernel", '"cuda"'),
        ("config", '{"backend": "cuda"}'),
        ("config", '{"cuda": device}'),
        ("device", 'torch.device(type="cuda", index=0)'),
        ("device", 'Wanted("cuda")'),
        ("(kernel, device.type)", '("cuda", _)'),
        ("parts", '[*_, "cuda"]'),
    ],
)
def test_a_pattern_for_something_else_is_reported(subject: str, pattern: str) -> None:
    result = run(matched(subject, pattern))
    assert reported(result) == ['"cuda"']


def test_a_portable_program_can_not_ask_in_a_pattern() -> None:
    assert reported(run(matched("device.type", '"cuda"'), portable=True)) == ['"cuda"']


def test_cases_of_another_accelerator_are_not_reached() -> None:
    source = (
        "import torch\nx = x.cuda()\nmatch x.device.type:\n    case 'mps':\n"
        "        torch.mps.synchronize()\n    case 'cuda' | 'mps':\n"
        "        torch.mps.empty_cache()\n"
    )
    assert reported(run(source)) == ["torch.mps.empty_cache"]


@pytest.mark.parametrize(
    ("test", "reached"),
    [
        ("x.device.type in ('cuda', 'mps')", True),
        ("torch.cuda.is_available() or torch.backends.mps.is_available()", True),
        ("x.device.type in ('cpu', 'mps')", False),
        ("args.mps and not torch.cuda.is_available()", False),
    ],
)
def test_a_branch_that_cuda_takes_as_well_is_reached(test: str, reached: bool) -> None:
    source = f"import torch\nx = x.cuda()\nif {test}:\n    torch.mps.synchronize()\n"
    assert ("torch.mps.synchronize" in reported(run(source))) is reached


# ---- flags ---------------------------------------------------------------------------------------

SET = "tpu_runtime.set_matmul_precision"
CUDNN, MATMUL = "torch.backends.cudnn", "torch.backends.cuda.matmul"
FLAGS = [
    (f"{CUDNN}.benchmark = {CUDNN}.enabled = True", ""),
    (f"{CUDNN}.benchmark, {CUDNN}.deterministic = True, False", ""),
    (f"[{CUDNN}.benchmark, {CUDNN}.deterministic] = flags", ""),
    (f"{CUDNN}.benchmark: bool = True", ""),
    (f"{CUDNN}.benchmark |= fast", ""),
    (f"{MATMUL}.allow_tf32 = {CUDNN}.allow_tf32 = True", f"{SET}(True)"),
    (f"{CUDNN}.allow_tf32 = {MATMUL}.allow_tf32 = False", f"{SET}(False)"),
    (f"{CUDNN}.allow_tf32 = {MATMUL}.allow_tf32 = fast", f"{SET}(fast)"),
    (f"{CUDNN}.benchmark = {CUDNN}.allow_tf32 = True", f"{SET}(True)"),
    (f"{MATMUL}.allow_tf32, {CUDNN}.allow_tf32 = False, True", f"{SET}(False)"),
    (f"{CUDNN}.allow_tf32, {MATMUL}.allow_tf32 = True, fast", f"{SET}(fast)"),
    (f'{MATMUL}.fp32_precision = {CUDNN}.conv.fp32_precision = "tf32"', f"{SET}(True)"),
]


@pytest.mark.parametrize(("before", "after"), FLAGS)
def test_flags_that_are_set_together(before: str, after: str) -> None:
    text = migrated(f"import torch\n{before}\nx = 1\n")
    needed, line = ("import tpu_runtime\n", f"{after}\n") if after else ("", "")
    assert text == f"import torch\n{needed}{line}x = 1\n"


@pytest.mark.parametrize(
    "statement",
    [
        f"{MATMUL}.allow_tf32 = args.tf32 = True",
        f"{MATMUL}.allow_tf32, args.tf32 = True, False",
        f"{MATMUL}.allow_tf32 &= fast",
        f"{MATMUL}.allow_tf32, {CUDNN}.benchmark = flags",
        f'print(setattr({MATMUL}, "allow_tf32", True))',
        f"for {MATMUL}.allow_tf32 in (True, False):\n    run()",
    ],
)
def test_a_precision_that_is_not_set_alone_is_reported(statement: str) -> None:
    (found, *_) = reported(run(f"import torch\n{statement}\n"))
    assert found.startswith(MATMUL)


@pytest.mark.parametrize(
    "statement",
    [
        f"{CUDNN}.benchmark = args.fast = True",
        f"{CUDNN}.benchmark, seed = True, 3",
        f'setattr({CUDNN}, "benchmark", True)',
    ],
)
def test_a_flag_that_is_set_with_something_else_stays(statement: str) -> None:
    source = f"import torch\n{statement}\n"
    assert migrated(source) == source and not reported(run(source))


# ---- questions in front of kernels ---------------------------------------------------------------

KERNELS = [
    "    if not x.is_cuda:\n        return plain(x)\n    return cupy.sum(x)\n",
    "    if x.device.type != 'cuda':\n        return plain(x)\n    return cupy.sum(x)\n",
    "    if not (x.is_cuda and w.is_cuda):\n        return plain(x)\n    return cupy.sum(x)\n",
    "    if slow or not x.is_cuda:\n        return plain(x)\n    return cupy.sum(x)\n",
    "    if not x.is_cuda:\n        plain(x)\n    else:\n        cupy.sum(x)\n",
    "    return plain(x) if not x.is_cuda else cupy.sum(x)\n",
    "    for y in x:\n        if not y.is_cuda:\n            continue\n        cupy.sum(y)\n",
    "    if not x.is_cuda:\n        raise ValueError('no GPU')\n    return cupy.sum(x)\n",
    "    if x.is_cuda:\n        return torch.ops.mylib.sum(x)\n    return plain(x)\n",
    "    if not x.is_cuda:\n        return plain(x)\n    return torch.ops.mylib.sum(x)\n",
]


@pytest.mark.parametrize("body", KERNELS)
def test_where_kernels_of_cuda_run_the_answer_stays_no(body: str) -> None:
    source = f"import cupy\nimport torch\n\n\ndef total(x, w, slow):\n{body}"
    result = run(source)
    assert result.source.decode() == source
    assert {d.outcome for d in constructs(result) if d.code != "LIB001"} == {"kept"}


@pytest.mark.parametrize(
    "body",
    [
        "    if not x.is_cuda:\n        return plain(x)\n    return fast(x)\n",
        "    if not x.is_cuda:\n        x = x + 1\n    return cupy.sum(x)\n",
        "    if x.is_cuda or slow:\n        return cupy.sum(x)\n    return plain(x)\n",
        "    if x.is_cuda:\n        return torch.ops.aten.sum(x)\n    return plain(x)\n",
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_elsewhere_the_target_answers_yes(body: str, target: str) -> None:
    text = migrated(f"import cupy\nimport torch\n\n\ndef total(x, slow):\n{body}", target)
    assert "x.device.type ==" in text
