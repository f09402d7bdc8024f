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
