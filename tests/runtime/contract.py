"""In what the targets differ, for the tests of what both runtimes promise."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import nn

from tests.runtime.support import DEVICE, TARGET

tpu.setup()


# One float32 rounding per operation on values up to 1.
FLOAT32 = 2e-6


@dataclass(frozen=True)
class Target:
    """In what the targets differ."""

    count: Callable[[], int]
    kind: Callable[[], str]
    program: Callable[[], str]  # that of a matrix product, as text
    integers: torch.dtype  # of sums
    faults: tuple[tuple[str, str], ...]  # in the environment, and what is said
    # Names in WRITES of known faults of a target, which the runtime does not mend.
    older_views_differ: frozenset[str] = frozenset()


def torchax() -> Target:
    import jax

    return Target(
        count=jax.local_device_count,
        kind=lambda: jax.devices()[0].device_kind,
        program=lambda: jax.jit(lambda x: x @ x).lower(jax.numpy.ones((4, 4))).as_text(),
        integers=torch.int32,
        faults=(
            ("import torchax; torchax.__version__ = '0.0.6'", "torchax is damaged"),
            ("import torch; torch.__version__ = '2.13.0'", "needs torch 2.9 to 2.12"),
            ("import sys; sys.modules['torchax'] = None", "cannot import torchax"),
            (
                "import torchax, importlib.metadata as m; torchax.__version__ = '0.0.99';"
                "m.version = lambda name: '0.0.99'",
                "supports torchax 0.0.13, found 0.0.99",
            ),
        ),
        # An older view follows `x.data = y` (torch: it keeps the old values), and raises after a
        # change of shape in place.
        older_views_differ=frozenset({"data set", "transpose in place"}),
    )


def torch_xla() -> Target:
    import torch_xla
    import torch_xla.core.xla_model as xm

    def program() -> str:
        x = torch.ones(4, 4).to(DEVICE)
        return str(torch_xla._XLAC._get_xla_tensors_hlo([x @ x]))

    return Target(
        count=torch_xla.device_count,
        kind=xm.xla_device_kind,
        program=program,
        integers=torch.int64,
        faults=(
            ("import torch; torch.__version__ = '2.13.0'", "needs torch 2.9, found 2.13.0"),
            ("import sys; sys.modules['torch_xla'] = None", "cannot import torch_xla"),
        ),
    )


HERE = {"torchax": torchax, "torch_xla": torch_xla}[TARGET]()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 4, 3)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv2(F.relu(self.norm(self.conv(x))))
        return self.head(torch.cat([x, x * 1.0]).flatten(1)[: x.shape[0]])  # type: ignore[no-any-return]
