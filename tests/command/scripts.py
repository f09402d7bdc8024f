"""The scripts of these tests, and what a command printed."""

from __future__ import annotations

from subprocess import CompletedProcess

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
TPU = 'import torch\n\n\ndef f(x):\n    return x.to("jax")\n'
SCRIPT = (
    "import torch\n\n\ndef main():\n    x = torch.ones(2).cuda()\n"
    "    torch.cuda.synchronize()\n\n\n"
    'if __name__ == "__main__":\n    main()\n'
)
STREAM = "import torch\ns = torch.cuda.Stream()\n"  # reported, never changed
ADVICE = "import torch\ntorch.set_default_dtype(torch.bfloat16)\n"
TO = ("--target", "torchax")


def out(run: CompletedProcess[bytes]) -> str:
    return run.stdout.decode()


def squeezed(text: str) -> str:
    return " ".join(text.split())
