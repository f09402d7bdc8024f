"""What `tpu-migrate verify` costs, in times of the script itself.

    python benchmarks/verify_time.py --python torchax=PYTHON torch_xla=PYTHON [--scripts NAME...]

Small scripts of its own run by PYTHON as they are, on the CPU, and are then verified, and verified
with --quick, from empty caches. Printed: the CPU seconds (user + system, of all processes) and the
seconds of each, and the CPU seconds by those of the script; threads that only wait for each other,
which on a busy machine is most of their time, do not spin. Exit code 1 where verifying costs more
than 6 times the script, or --quick more than 3 times. Of `tiny`, where little but imports costs
anything, the figures are only shown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST = {"": 6.0, "--quick": 3.0}  # times the script, by the option
ONLY_SHOWN = "tiny"
_CNN = """\
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)


def block(before, after, stride):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
    )


net = nn.Sequential(
    block(3, 32, 1), block(32, 64, 2), block(64, 64, 1), block(64, 128, 2), block(128, 128, 1),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.005, momentum=0.9, weight_decay=5e-4)
images, labels = torch.randn(STEPS * 32, 3, 32, 32), torch.randint(0, 10, (STEPS * 32,))
for step, (x, y) in enumerate(zip(images.split(32), labels.split(32))):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
net.eval()
with torch.no_grad():
    right = (net(images[:256].to(device)).argmax(1).cpu() == labels[:256]).float().mean()
print(f"accuracy {right.item():.4f}")
torch.save(net.state_dict(), "net.pt")
"""
_GPT = """\
import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
WORDS, LENGTH, WIDTH, HEADS, LAYERS = 256, 64, 128, 4, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.back = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        size = x.shape[:2]
        parts = self.qkv(self.first(x)).view(*size, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(*size, WIDTH))
        return x + self.back(F.gelu(self.wide(self.second(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


net = Gpt().to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
text = torch.randint(0, WORDS, (20_000,))
for step in range(STEPS):
    at = torch.randint(0, len(text) - LENGTH - 1, (32,))
    x = torch.stack([text[i : i + LENGTH] for i in at]).to(device)
    y = torch.stack([text[i + 1 : i + LENGTH + 1] for i in at]).to(device)
    loss = F.cross_entropy(net(x).view(-1, WORDS), y.view(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
torch.save({"model": net.state_dict()}, "gpt.pt")
"""
_INFERENCE = """\
import torch
from torchvision.models import resnet18

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
net = resnet18().eval().to(device)
sums = []
with torch.no_grad():
    for batch in range(STEPS):
        scores = net(torch.randn(4, 3, 128, 128).to(device)).softmax(1)
        best, which = scores.max(1)
        sums.append(scores.cpu())
        print(f"batch {batch}: best {best.mean().item():.6f}")
torch.save(torch.cat(sums), "scores.pt")
"""
_TINY = """\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(STEPS):
    x = torch.randn(16, 8).cuda()
    loss = nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f}")
""".replace(".cuda()", '.to("cuda" if torch.cuda.is_available() else "cpu")')
SCRIPTS = {  # and how many steps each takes
    ONLY_SHOWN: (_TINY, 5),
    "cnn": (_CNN, 40),
    "gpt": (_GPT, 30),
    "inference": (_INFERENCE, 40),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", required=True, metavar="TARGET=PYTHON")
    parser.add_argument("--scripts", nargs="+", choices=SCRIPTS, default=[*SCRIPTS])
    parser.add_argument("--options", nargs="+", choices=["", "--quick"], default=[*MOST])
    given = parser.parse_args()
    missed = False
    for text in given.python:
        target, _, python = text.partition("=")
        for name in given.scripts:
            missed |= measured(name, target, Path(python).absolute(), given.options)
    sys.exit(int(missed))


def measured(name: str, target: str, python: Path, options: list[str]) -> bool:
    """Print a script's lines; whether one of them is over its limit."""
    text, steps = SCRIPTS[name]
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{name}.py").write_text(text.replace("STEPS", str(steps)), "utf-8")
        timed([str(python), f"{name}.py"], folder)  # fills the file cache
        plain, seconds = timed([str(python), f"{name}.py"], folder)
        print(f"{target} {name}: {plain:.1f} s of CPU by itself, {seconds:.1f} s", flush=True)
        for option in options:
            verify = [sys.executable, "-m", "migrator", "verify", f"{name}.py", "--target", target]
            command = [*verify, "--python", str(python), *filter(None, [option])]
            cpu, seconds = timed(command, folder)
            over = name != ONLY_SHOWN and cpu > MOST[option] * plain
            missed |= over
            print(
                f"{target} {name}: {cpu:.1f} s of CPU to verify{f' {option}' if option else ''}, "
                f"{seconds:.1f} s: {cpu / plain:.1f} times{', OVER' if over else ''}",
                flush=True,
            )
    return missed


def timed(command: list[str], folder: str) -> tuple[float, float]:
    """CPU seconds of a command and its children, with empty caches, and seconds. It has to pass."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPATH": str(ROOT),
                       "OMP_WAIT_POLICY": "passive"}  # fmt: skip
        for wish in ("JAX_PLATFORMS", "PJRT_DEVICE", "JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS"):
            environment.pop(wish, None)
        before, start = os.times(), time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        seconds, after = time.monotonic() - start, os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    children = after.children_user + after.children_system
    return children - before.children_user - before.children_system, seconds


ROOT = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    main()
