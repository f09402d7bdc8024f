"""UPG005: checkpoints with more than tensors, which PyTorch refuses since 2.6."""

import pytest
from helpers import TARGETS, migrated

LOAD = "\ny = torch.load(p, map_location='cpu')\n"
OBJECTS = (
    "import argparse\ntorch.save({'a': argparse.Namespace(b=1), 'x': x}, p)",
    "import numpy as np\nbest = np.mean(found)\nstate = {'net': x}\nstate['best'] = best\n"
    "torch.save(state, p)",
    "class A:\n    def save(self):\n        torch.save(dict(a=[self.opt]), p)",
)
TENSORS = (
    "import numpy as np\ntorch.save({'best': float(np.mean(found))}, p)",
    "state = {'net': x}\nother = {}\nother['args'] = args\ntorch.save(state, p)",
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [*OBJECTS, *TENSORS])
def test_objects_are_loaded_as_before(text: str, target: str) -> None:
    source = f"import torch\nx = x.cuda()\n{text}{LOAD}"
    assert ("weights_only=False" in migrated(source, target)) == (text in OBJECTS)


_PLACES = ["location = {}\ny = torch.load(p, location)", "y = torch.load(p, map_location={})"]


@pytest.mark.parametrize("inside", _PLACES)
def test_torch_tpu_reads_what_a_gpu_wrote_on_the_cpu(inside: str) -> None:
    """Its torch.load can't put on a TPU what was on a GPU, and None would ask for the GPU."""
    asked = inside.format('None if torch.cuda.is_available() else "cpu"')
    text = migrated(f"import torch\nx = torch.ones(2).cuda()\n{asked}\nuse(y)\n", "torch_tpu")
    assert asked in text
