"""Programs that hold a function to be written, and compare it with what it replaces."""

from __future__ import annotations

import os
from pathlib import Path

from migrator.diagnostics import first_of
from migrator.targets import RUNTIME, Target

from .kernel import KernelPart

_INTERPRETERS = {"Triton": "TRITON_INTERPRET", "numba": "NUMBA_ENABLE_CUDASIM"}
_CHECK = '''

def inputs():
    """What it takes, on the CPU: sizes that differ and divide no block, no zeros."""
    raise NotImplementedError("{name}: its inputs {arguments}")


def results(function, device):
    """What it returns and what it leaves in its inputs{and_gradients}."""
    torch.manual_seed(0)
    given = inputs()
{leaves}    moved = [x.to(device, copy=True) if isinstance(x, torch.Tensor) else x for x in given]
    found = function(*moved)
    found = [*found] if isinstance(found, (tuple, list)) else [found]
    found = [x for x in (*found, *moved) if isinstance(x, torch.Tensor)]
{gradients}    assert found, "nothing to compare"
    return [torch.empty(0) if x is None else x.detach().cpu() for x in found]


{want}
torch.testing.assert_close(results({name}, device), want, atol=1e-5, rtol=1e-5)
print("{name}: the same")
'''
_LEAVES = """\
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    leaves = [x.requires_grad_() for x in tensors if x.is_floating_point()]
"""
_GRADIENTS = """\
    loss = sum((x.float() * x.float().cos()).sum() for x in found if x.requires_grad)
    found += torch.autograd.grad(loss, leaves, allow_unused=True)
"""


def pytorch_skeleton(part: KernelPart, target: Target) -> str:
    """The function in PyTorch, and its check."""
    return (
        f"{_begin(part, target)}\n\ndef {part.name}({part.parameters}):\n"
        f'    raise NotImplementedError("{_names(part)}: to be written in PyTorch")\n{_check(part)}'
    )


def pallas_skeleton(part: KernelPart, target: Target) -> str:
    """The same in Pallas, of the first kernel; "" where the target has no Pallas, or the source
    doesn't show what a kernel reads and writes."""
    kernel = part.kernels[0]
    if not target.pallas or not kernel.reads or not kernel.writes:
        return ""
    read = [name.removesuffix("_ptr") for name in kernel.reads]
    names = [name.removesuffix("_ptr") for name in kernel.writes]
    written = [f"{name}_out" if name in read else name for name in names]
    arrays = ", ".join(read)
    return target.pallas.format(
        begin=_begin(part, target), kernel=kernel.name, arrays=arrays, name=part.name,
        references=", ".join(f"{name}_ref" for name in (*read, *written)),
        written=", ".join(written), parameters=part.parameters, check=_check(part),
    )  # fmt: skip


def how_to_run(part: KernelPart) -> str:
    """The command that runs a check, and where."""
    folder, _ = _module(part.path)
    interpreter = _INTERPRETERS.get(part.kernels[0].language)
    setting = f"{interpreter}=1 " if interpreter and part.original else ""
    return f"PYTHONPATH={os.path.relpath(folder)} {setting}python check_{part.name}.py"


def _names(part: KernelPart) -> str:
    return first_of([kernel.name for kernel in part.kernels], 2)


def _begin(part: KernelPart, target: Target) -> str:
    return (
        f'"""{part.name} without {_names(part)}, and its check.\n\n'
        f'    {how_to_run(part)}\n"""\n\n'
        f"import {RUNTIME}\n\n{RUNTIME}.setup()\ndevice = {target.api.device!r}\nimport torch\n"
    )


def _check(part: KernelPart) -> str:
    return _CHECK.format(
        name=part.name,
        arguments=", ".join(part.arguments),
        and_gradients=", and gradients" if part.has_gradient else "",
        leaves=_LEAVES if part.has_gradient else "",
        gradients=_GRADIENTS if part.has_gradient else "",
        want=_want(part),
    )


def _want(part: KernelPart) -> str:
    """What it is compared with: the original under an interpreter; what the repository has."""
    name = part.original.split(".")[0]
    references = [f"# {p.said} {p.code} ({p.path.name}:{p.line})\n" for p in part.references]
    if part.original and part.kernels[0].language in _INTERPRETERS:
        _, module = _module(part.path)
        called = part.original.replace(name, "original", 1)
        return (
            f"from {module} import {name} as original\n\n{''.join(references)}"
            f'want = results({called}, "cpu")'
        )
    said = "".join(f"    {line}" for line in references)
    return (
        f"def reference({part.parameters}):\n{said}"
        f'    raise NotImplementedError("{part.name}: the reference")\n\n\n'
        'want = results(reference, "cpu")'
    )


def _module(path: Path) -> tuple[Path, str]:
    """The folder that a file is imported from, and its module's name there."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)
