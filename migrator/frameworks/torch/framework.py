"""PyTorch, as a framework."""

from __future__ import annotations

from migrator.analysis.cuda_libraries import MODULES
from migrator.analysis.devices import other_accelerators
from migrator.analysis.devices.framework_callbacks import called_by_hosts
from migrator.analysis.devices.subprocesses import ChildProcesses
from migrator.construct import Construct
from migrator.frameworks.framework import Framework, ModuleView
from migrator.frameworks.torch.construct_references import BY_SHAPE
from migrator.frameworks.torch.embedded_commands import says
from migrator.frameworks.torch.find_constructs import find
from migrator.frameworks.torch.torch_tokens import has_tokens, uses_device


def _constructs(module: ModuleView) -> list[Construct]:
    """The constructs in a module itself, and the processes that it starts."""
    names, flow = module.names, module.flow
    found = list(find(names, flow, module.vocabulary, module.package, module.ranks, module.project))
    uses = [construct for construct in found if uses_device(construct)]
    children = ChildProcesses(names, flow, uses, module.project)
    return [*found, *children.constructs(), *called_by_hosts(names, children, module.project)]


FRAMEWORK = Framework(
    name="torch",
    module="torch",
    packages=("torch", "torchvision", "safetensors"),
    constructs=_constructs,
    has_tokens=has_tokens,
    uses_device=uses_device,
    says=says,
    libraries=(*MODULES, *other_accelerators.LIBRARIES),
    by_shape=BY_SHAPE,
    normalised=True,
    recorder=".",
    recorder_imports=("torch", "torch._dynamo"),
)
