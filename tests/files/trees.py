"""The scripts of these tests."""

from __future__ import annotations

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
TPU = 'import torch\n\n\ndef f(x):\n    return x.to("jax")\n'
FILES = {"a.py": "import torch\ntorch.cuda.seed()\n", "b.py": GPU, "deep/c.py": GPU}
