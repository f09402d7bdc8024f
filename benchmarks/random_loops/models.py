"""The models of random loops. Each gives `out`, 4 numbers for each of 6 examples."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from random_loops.batches import TOKENS

FEATURES, IMAGES, WINDOWS = "(6, 5)", "(6, 2, 6, 6)", "(6, 3, 5)"


@dataclass(frozen=True)
class Model:
    """``forward``: statements that compute `out` of `x`; ``first``: those of a new round."""

    definition: str
    setup: str
    batch: str
    forward: tuple[str, ...] = ("out = model(x)", "out = model(x)", "out = model.forward(x)")
    parameters: str = "list(model.parameters())"
    first: str = ""
    draws: bool = False  # random numbers on the device
    is_module: bool = True
    any_size: bool = False  # of a batch


# What a layer's output becomes on its way: in place, through views, or not. `h` is 6 × 8.
HIDDEN = (
    "h += self.skip(x)",
    "h[:, 2:] += 3",
    "h[:, ::2] *= 0.5",
    "h = h + self.skip(x)",
    "h.view(6, 2, 4)[:, 0] -= 0.3",
    "h.t()[1] += 0.2",
    "part = h[:, :4]\npart += self.short(x)",
    "grid = h.reshape(6, 4, 2)\ngrid += 0.1",
    "turned = h.transpose(0, 1)\nturned *= self.gain",
    "h = h.view(6, 2, 4)\nh += self.short(x).unsqueeze(1)\nh = h.reshape(6, 8)",
    "left, right = h.chunk(2, 1)\nh = torch.cat([right, left * 0.5], 1)",
    "h = F.layer_norm(h, (8,))",
    "self.calls += 1",
    "self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)\nh = h - self.mean",
    "self.last = h.detach()",
    "if self.training:\n    h = h * 1.1",
    "for layer in self.more:\n    h = h + torch.tanh(layer(h))",
    "h = h * torch.sigmoid(self.gate(h))",
    "h = self.norm(h)",
    # objects that change when they are used
    "h = h * next(self.scales)",
    "h = h + self.rng.random()",
    "h = h * self.rng.normal(1, 0.1, 8)[0]",
    "h = h * self.dice.uniform(0.9, 1.1)",
    "h = h * (1 + 0.1 * torch.rand(1, generator=self.drawn).item())",
    "self.recent.rotate(1)\nh = h * self.recent[0]",
    "self.visits += 1\nh = h * (1 + 0.01 * float(self.visits[0]))",
)

_LAYERS = {
    "skip": "nn.Linear(5, 8)",
    "short": "nn.Linear(5, 4)",
    "gate": "nn.Linear(8, 8)",
    "more": "nn.ModuleList(nn.Linear(8, 8) for _ in range(2))",
    "norm": "nn.BatchNorm1d(8)",
    "gain": "nn.Parameter(torch.tensor([0.7]))",
    "calls": "0",
    "scales": "itertools.cycle([1.0, 0.9, 1.1])",
    "rng": "np.random.default_rng(3)",
    "dice": "random.Random(5)",
    "drawn": "torch.Generator().manual_seed(4)",
    "recent": "collections.deque([1.0, 0.8, 1.2])",
    "visits": "np.zeros(1)",
}
_MLP = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(5, 8), nn.Linear(8, 4)
{layers}

    def forward(self, x):
        h = self.first(x)
{hidden}
        return {result}
"""

_IMAGES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.again = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        h = F.relu(self.norm(self.conv(x)))
        h = h + self.again(h)
        return self.head(h.mean((2, 3)))
"""

_TOKENS = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(6, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = self.proj(mixed.transpose(1, 2).reshape(6, 5, 8))
        h += x
        x = self.mlp(h)
        x += h
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(9, 8), nn.Parameter(torch.zeros(5, 8))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        h = self.words(x)
        h += self.places
        for block in self.blocks:
            h = block(h)
        return self.head(h[:, -1])
"""

_RECURRENT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.{kind}(5, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x, hidden=None):
        h, hidden = self.cells(x, hidden)
        return self.head(h[:, -1]), hidden
"""

_CELL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.Linear(13, 8), nn.Linear(8, 4)

    def forward(self, x, hidden=None):
        if hidden is None:
            hidden = x.new_zeros(6, 8)
        for t in range(x.size(1)):
            hidden = torch.tanh(self.mix(torch.cat([x[:, t], hidden], 1)))
        return self.head(hidden), hidden
"""

_FUNCTIONAL = """
def weight(*shape):
    return (torch.randn(*shape) * 0.4).to(device).requires_grad_()


def forward(weights, x):
    h = torch.tanh(x @ weights["w1"] + weights["b1"])
    return h @ weights["w2"] + weights["b2"]
"""
_OF_AN_OBJECT = _FUNCTIONAL.replace(
    "def forward", "scales = itertools.cycle([1.0, 0.9, 1.1])\n\n\ndef forward"
).replace("(x @", "(next(scales) * x @")


def mlp(hidden: list[str], result: str) -> str:
    """A class whose forward has these statements on a layer's output, and the layers they use."""
    text = "\n".join(hidden)
    layers = [f"self.{name} = {made}" for name, made in _LAYERS.items() if f"self.{name}" in text]
    if "self.mean" in text:
        layers.append('self.register_buffer("mean", torch.zeros(8))')
    return _MLP.format(
        layers=indent("\n".join(layers), 8 * " "), hidden=indent(text, 8 * " "), result=result
    )


MODELS = {
    "sequential": Model(
        "",
        "model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4)).to(device)",
        FEATURES,
        any_size=True,
    ),
    "one_layer": Model("", "model = nn.Linear(5, 4).cuda()", FEATURES, any_size=True),
    "images": Model(_IMAGES, "model = Net().to(device)", IMAGES, any_size=True),
    "tokens": Model(_TOKENS, "model = Net().cuda()", TOKENS),
    "lstm": Model(
        _RECURRENT.format(kind="LSTM"),
        "model = Net().to(device)\nhidden = None",
        WINDOWS,
        ("out, hidden = model(x, hidden)",),
        first="if hidden is not None:\n    hidden = tuple(h.detach() for h in hidden)",
    ),
    "gru": Model(
        _RECURRENT.format(kind="GRU"),
        "model = Net().to(device)\nhidden = torch.zeros(1, 6, 8, device=device)",
        WINDOWS,
        ("out, hidden = model(x, hidden)", "out, state = model(x, hidden)\nhidden = state"),
        first="hidden = hidden.detach()",
    ),
    "cell": Model(
        _CELL,
        "model = Net().to(device)\nhidden = None",
        WINDOWS,
        ("out, hidden = model(x, hidden)",),
        first="hidden = None if hidden is None or step % 4 == 0 else hidden.detach()",
    ),
    "functional": Model(
        _FUNCTIONAL,
        'weights = {"w1": weight(5, 8), "b1": weight(8), "w2": weight(8, 4), "b2": weight(4)}',
        FEATURES,
        ("out = forward(weights, x)",),
        "list(weights.values())",
        is_module=False,
        any_size=True,
    ),
    "functional_of_an_object": Model(
        _OF_AN_OBJECT,
        'weights = {"w1": weight(5, 8), "b1": weight(8), "w2": weight(8, 4), "b2": weight(4)}',
        FEATURES,
        ("out = forward(weights, x)",),
        "list(weights.values())",
        is_module=False,
        any_size=True,
    ),
    "dropout": Model(
        "",
        "model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Linear(8, 4)).cuda()",
        FEATURES,
        draws=True,
    ),
}
