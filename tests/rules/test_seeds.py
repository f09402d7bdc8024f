"""A seed of the GPU beside torch's own, where that seeds every device."""

import pytest
from helpers import migrated


@pytest.mark.parametrize("before", ["", "        torch.rand(1)\n"])
def test_a_seed_in_a_branch_is_beside_torchs_own(before: str) -> None:
    source = (
        "import torch\ntorch.manual_seed(3)\nif use_gpu:\n    if not wanted:\n"
        f"        print('a GPU is there')\n    else:\n{before}        torch.cuda.manual_seed(3)\n"
    )
    assert ("fork_rng" in migrated(source, "torch_tpu")) is bool(before)
