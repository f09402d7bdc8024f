"""docs/operators-TARGET.md says what is so: some of its operators and forms are audited anew.

Run as tests/runtime/conftest.py says.
"""

import sys

import pytest
import tpu_runtime as tpu

from tests.runtime.support import ROOT, TARGET

tpu.setup()

sys.path.insert(0, str(ROOT / "benchmarks"))
import operator_audit  # noqa: E402

NOT_RIGHT = operator_audit.not_right(
    (ROOT / "docs" / f"operators-{TARGET}.md").read_text(encoding="utf-8")
)
SAMPLE = (
    "cumsum",
    "gather",
    "std",
    "(x > 0) + (y > 0)",
    "x + y.abs().to(torch.uint8)",
    "x[-16:2] = y[:2]",
    "x[[0, 9]]",
    "v = x.t().reshape(-1); v.zero_()",
    "torch.max(x, 0, out=(o, i))",
    "F.pad(x, (-1, 2))",
    "x.sign()",
    "x.mean(0)",
    "x.tanh()",
    "x.div_(y)",
    'torch.div(x, 7, rounding_mode="trunc")',
    "x.unfold(0, 2, 3)",
    "x.element_size(), x.itemsize, x.nbytes",
)
# Numbers of 64 bits have 32 under torchax, as docs/limits.md says.
NARROW = {
    "torch_xla": set(),
    "torchax": {
        "x.element_size(), x.itemsize, x.nbytes",
        "x.view(torch.int16)",
        "x.view(torch.int32)",
        "x.view(torch.uint8)",
    },
}


@pytest.mark.parametrize("name", SAMPLE)
def test_verdict(name: str) -> None:
    device = operator_audit.TARGETS[TARGET].start()
    found = operator_audit.audit(name, TARGET, device, most=5)
    assert found["verdict"] == NOT_RIGHT.get(name, "right"), found


def test_nothing_is_silently_wrong() -> None:
    said = {"raises", "does not raise"}
    silent = {name for name, verdict in NOT_RIGHT.items() if verdict not in said}
    assert silent == NARROW[TARGET]
