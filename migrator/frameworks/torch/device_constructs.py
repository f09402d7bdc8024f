"""The constructs that concern devices, as the facts of a project's files ask for them."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.syntax.names import Names
from migrator.analysis.values.flow import Flow
from migrator.construct import Construct
from migrator.frameworks.torch.construct_references import NUMBERED
from migrator.frameworks.torch.find_constructs import find
from migrator.frameworks.torch.torch_tokens import has_device_tokens, uses_device

# Makes a program one that runs on a device, independent of the rules.
DEVICES = Vocabulary(
    names=frozenset({
        "torch.autocast", "torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.DataParallel",
        "torch.nn.parallel.data_parallel", "torch.set_default_device", *NUMBERED,
    }),
    prefixes=("torch.accelerator", "torch.amp", "torch.cuda"),
)  # fmt: skip
# The kinds of constructs that tell whether a program uses a device, or needs a CUDA library.
_KINDS = frozenset({
    "name", "method", "keyword", "trainer", "string", "tensor_type", "library",
})  # fmt: skip


class TorchDeviceConstructs:
    """PyTorch's, and those of libraries for it."""

    def may_be_in(self, source: bytes) -> bool:
        """A cheap test: False if a file has none."""
        return has_device_tokens(source)

    def find(self, names: Names, flow: Flow) -> Iterator[Construct]:
        """Those of one file."""
        return find(names, flow, DEVICES, kinds=_KINDS)

    def uses_device(self, construct: Construct) -> bool:
        """Whether one makes its program one that runs on a device."""
        return uses_device(construct)


DEVICE_CONSTRUCTS = TorchDeviceConstructs()
