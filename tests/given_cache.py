"""Models whose attention is given keys and values and returns longer ones, and the loop around."""

FUSED = """import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config["heads"]
        self.qkv = nn.Linear(config["width"], 3 * config["width"])

    def forward(self, x, past=None, use_cache=False):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        present = (k, v) if use_cache else None
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None and T > 1)
        return y.transpose(1, 2).reshape(B, T, C), present


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config)
        self.mlp = nn.Linear(config["width"], config["width"])

    def forward(self, x, past=None, use_cache=False):
        y, present = self.attention(x, past=past, use_cache=use_cache)
        x = x + y
        return x + self.mlp(x).tanh(), present


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config["words"], config["width"])
        self.places = nn.Embedding(config["length"], config["width"])
        self.blocks = nn.ModuleList([Block(config) for _ in range(2)])
        self.head = nn.Linear(config["width"], config["words"], bias=False)

    def forward(self, tokens, pasts=None, use_cache=False):
        n = tokens.shape[1]
        if pasts is None:
            past_length = 0
            pasts = [None] * len(self.blocks)
        else:
            past_length = pasts[0][0].size(-2)
        places = torch.arange(past_length, past_length + n, device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        presents = []
        for block, past in zip(self.blocks, pasts):
            x, present = block(x, past, use_cache)
            presents.append(present)
        return self.head(x), presents


config = {"words": 17, "width": 8, "heads": 2, "length": 16}
model = Model(config).cuda()


@torch.no_grad()
def generate(tokens, new):
    given, pasts, made = tokens, None, []
    for _ in range(new):
        logits, pasts = model(given, pasts, use_cache=True)
        given = logits[:, -1].argmax(-1, keepdim=True)
        made.append(given)
    return torch.cat(made, dim=1)
"""


def changed(source: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


_CAUSAL = "        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None and T > 1)\n"
_JOINED = """            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
"""
_TABLE = """        length = config["length"]
        self.register_buffer("mask", torch.tril(torch.ones(length, length)))
"""
_LINES = """            past_keys, past_values = past
            k = torch.cat([past_keys, k], dim=2)
            v = torch.cat([past_values, v], dim=2)
"""
# a table, in the method itself
MASKED = changed(
    FUSED,
    ('        self.qkv = nn.L', f'{_TABLE}        self.qkv = nn.L'),
    (_JOINED, _LINES),
    (_CAUSAL, """        m = k.size(-2)
        scores = (q @ k.transpose(-2, -1)) / C**0.5
        scores = scores.masked_fill(self.mask[m - T : m, :m] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
"""),
)  # fmt: skip
# as in ports of GPT-2: transposed keys, a stack of both, scores in another method
STACKED = changed(
    FUSED,
    ('        self.qkv = nn.L', f'{_TABLE}        self.qkv = nn.L'),
    ("torch.tril(torch.ones(length, length)))",
     "torch.tril(torch.ones(length, length)).view(1, 1, length, length))"),
    ("        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)\n",
     "        k = k.view(B, T, self.heads, C // self.heads).permute(0, 2, 3, 1)\n"),
    (_JOINED,
     "            past_key, past_value = past[0].transpose(-2, -1), past[1]\n"
     "            k = torch.cat((past_key, k), dim=-1)\n"
     "            v = torch.cat((past_value, v), dim=-2)\n"),
    ("(k, v) if use_cache else None", "torch.stack((k.transpose(-2, -1), v))"),
    (_CAUSAL, "        y = self.attend(q, k, v)\n"),
    ("\n\nclass Block", """
    def attend(self, q, k, v):
        w = torch.matmul(q, k)
        w = w / v.size(-1) ** 0.5
        nd, ns = w.size(-2), w.size(-1)
        b = self.mask[:, :, ns - nd : ns, :ns]
        w = w * b - 1e10 * (1 - b)
        w = nn.Softmax(dim=-1)(w)
        return torch.matmul(w, v)


class Block"""),
)  # fmt: skip
# keys and values as (batch, tokens, heads, size), repeated
REPEATED = changed(
    FUSED,
    ("        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)\n",
     "        k = k.view(B, T, self.heads, C // self.heads)\n"),
    ("        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)\n",
     "        v = v.view(B, T, self.heads, C // self.heads)\n"),
    ("[past[0], k], dim=2", "[past[0], k], dim=1"),
    ("[past[1], v], dim=2", "[past[1], v], dim=1"),
    ("        y = F.scaled", "        k = k.repeat_interleave(2, dim=2).transpose(1, 2)\n"
     "        v = v.repeat_interleave(2, dim=2).transpose(1, 2)\n"
     "        q = q.repeat_interleave(2, dim=1)\n        y = F.scaled"),
    ("return y.transpose(1, 2).reshape(B, T, C)",
     "return y[:, ::2].transpose(1, 2).reshape(B, T, C)"),
    ("size(-2)", "size(1)"),
)  # fmt: skip
MODELS = {"fused": FUSED, "masked": MASKED, "stacked": STACKED, "repeated": REPEATED}
