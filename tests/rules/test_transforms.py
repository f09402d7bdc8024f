"""torch.func: reported where its transformations do not run."""

from __future__ import annotations

import pytest
from helpers import constructs, run


@pytest.mark.parametrize(
    "code",
    ["from torch.func import grad, vmap\ny = vmap(grad(f))(x.cuda())\n",
     "import torch.func as tf\ny = tf.vmap(tf.jacrev(f))(x.cuda())\n",
     "y = torch.vmap(f)(torch.func.functional_call(net, p, x.cuda()))\n"],
)  # fmt: skip
def test_transformations_are_reported_where_they_do_not_run(code: str) -> None:
    """Elsewhere they stay, and `functional_call` is no transformation."""
    for target, outcome in (("torchax", "reported"), ("torch_xla", "kept")):
        found = [d for d in constructs(run(f"import torch\n{code}", target)) if d.code == "RUN005"]
        assert {str(d.outcome) for d in found} == {outcome}
        assert not any("functional_call" in d.construct for d in found)


def test_what_gives_zeros_is_reported_everywhere() -> None:
    """torch_xla loses the tangents of `linearize`, whose graph torch traces."""
    code = "import torch\nfrom torch.func import linearize\ny, f = linearize(g, x.cuda())\n"
    for target in ("torchax", "torch_xla", "torch_tpu"):
        (found,) = (d for d in constructs(run(code, target)) if d.code == "RUN005")
        assert str(found.outcome) == "reported"
