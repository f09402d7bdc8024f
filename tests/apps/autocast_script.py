"""Print the dtypes that operators give in CUDA's autocast: on a GPU, and by its stand-in."""

from __future__ import annotations

import json

import torch
import torch.nn.functional as F

half = {"device": "cuda", "dtype": torch.float16}
x = torch.rand(2, 4, **half)
image = torch.rand(1, 1, 4, 4, **half)
single = torch.rand(4, 4, device="cuda")
operators = {
    "softmax": lambda: x.softmax(-1),
    "log_softmax": lambda: F.log_softmax(x, -1),
    "log_softmax of floats": lambda: F.log_softmax(single, -1),
    "layer_norm": lambda: F.layer_norm(x, (4,)),
    "group_norm": lambda: F.group_norm(image, 1),
    "exp": lambda: x.exp(),
    "log": lambda: x.log(),
    "pow": lambda: x**2,
    "rsqrt": lambda: x.rsqrt(),
    "sum": lambda: x.sum(),
    "sum of a dimension": lambda: x.sum(1),
    "cumsum": lambda: x.cumsum(1),
    "norm": lambda: x.norm(),
    "vector_norm": lambda: torch.linalg.vector_norm(x),
    "normalize": lambda: F.normalize(x),
    "cosine_similarity": lambda: F.cosine_similarity(x, x),
    "softplus": lambda: F.softplus(x),
    "logsumexp": lambda: x.logsumexp(1),
    "nearest": lambda: F.interpolate(image, scale_factor=2),
    "bilinear": lambda: F.interpolate(image, scale_factor=2, mode="bilinear"),
    "bicubic": lambda: F.interpolate(image, scale_factor=2, mode="bicubic"),
    "cross_entropy": lambda: F.cross_entropy(x, torch.tensor([0, 1], device="cuda")),
    "l1_loss": lambda: F.l1_loss(x, x),
    "linear": lambda: F.linear(single, single),
    "matmul": lambda: single @ single,
    "mv": lambda: single @ single[0],
    "addr": lambda: torch.addr(single, single[0], single[0]),
    "multi_dot": lambda: torch.linalg.multi_dot([single, single, single]),
    "mean": lambda: x.mean(),
    "relu": lambda: x.relu(),
    "gelu": lambda: F.gelu(x),
    "sigmoid": lambda: x.sigmoid(),
    "batch_norm": lambda: F.batch_norm(image, None, None, training=True),
    "avg_pool": lambda: F.avg_pool2d(image, 2),
    "prod": lambda: x.prod(),
    "einsum": lambda: torch.einsum("ij,jk->ik", single, single),
    "add": lambda: x + single[:2],
}
found = {}
with torch.autocast("cuda", dtype=torch.float16):
    for name, function in operators.items():
        found[name] = str(function().dtype)  # type: ignore[no-untyped-call]
print(json.dumps(found))
