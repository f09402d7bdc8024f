"""Forms of code that operator_audit.py compares on a target with CPU torch, beside operators.

A form is a line of Python. What it leaves in its variables is compared, and if it is an expression,
its value, and the gradients of `x` and `y`. It is run with each shape and each dtype of its group.
Where torch raises on the CPU, so must the target.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FLOATS = ("float32", "float64")
DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64",
)  # fmt: skip
MATRIX = (4, 3)
EDGES = (MATRIX, (1, 3), (0, 3), (4, 0))
SMALL = ((0,), (1,), (), (0, 3), (3, 0), (1, 1))


@dataclass(frozen=True)
class Group:
    """Lines that are run with the same inputs.

    Of the shape and dtype: ``x``, ``y``. Beside them ``i``, ``j`` (two places), ``m`` (a mask of
    ``x``'s shape), ``rows`` (a mask of its first dimension) and ``o`` (empty).
    """

    lines: str
    shapes: tuple[tuple[int, ...], ...] = (MATRIX,)
    dtypes: tuple[str, ...] = FLOATS
    gradient: bool = True
    large: bool = False  # integers beyond 2**31


READING = Group(
    """
    x[-16:]
    x[:, -16:]
    x[:-16]
    x[:, :-16]
    x[-16:2]
    x[-16:-1]
    x[-16:-20]
    x[2:16]
    x[16:]
    x[16:20]
    x[:16]
    x[-2:]
    x[:-2]
    x[:, -1:]
    x[3:1]
    x[-1:-3]
    x[::2]
    x[1::2]
    x[-16::2]
    x[:, ::3]
    x[::16]
    x[::-1]
    x[..., -16:]
    x[..., :-1]
    x[-16:, -16:]
    x[None]
    x[:, None, -2:]
    x[..., None]
    x[None, ..., None]
    x[()]
    x[...]
    x[:]
    x[0]
    x[-1]
    x[1, 2]
    x[-1, -1]
    x[4]
    x[-5]
    x[0, 3]
    x[0, -4]
    x[0, 0, 0]
    x[True]
    x[False]
    x[None, True]
    x[1:, -16:].sum(0)[-2:]
    x.t()[-16:, 1:]
    x.narrow(0, 0, 2)
    x.narrow(0, -2, 2)
    x.narrow(1, 1, 2)
    x.narrow(0, 3, 2)
    x.narrow(0, -16, 1)
    x.narrow(0, 1, 0)
    x.narrow(0, 4, 0)
    torch.narrow_copy(x, 0, -2, 2)
    x.select(0, -1)
    x.select(1, 5)
    x.select(1, -4)
    torch.select_copy(x, 0, -1)
    torch.slice_copy(x, 1, -16)
    torch.slice_copy(x, 1, -16, -1)
    torch.slice_scatter(x, y[:, :2], 1, -16, 2)
    torch.slice_scatter(x, y[-2:], 0, -2)
    torch.slice_scatter(x, y[::2], 0, -16, None, 2)
    torch.select_scatter(x, y[0], 0, -1)
    torch.diagonal_scatter(x, torch.diagonal(y, 1), 1)
    x.split(2)
    x.split(3, 1)
    x.split([1, 3])
    x.split([1, 2])
    x.chunk(2)
    x.chunk(7)
    x.chunk(2, -1)
    x.tensor_split(3)
    x.tensor_split([-16, 2])
    x.tensor_split((1, 16), 1)
    x.unbind(1)
    x.hsplit(3)
    x.unfold(0, 2, 1)
    x.unfold(0, 2, 3)
    x.diagonal(1)
    x.diagonal(-5)
    x.diagonal(0, 1, 0)
    x.diff()
    x.diff(dim=0, prepend=y[-16:1])
    x.roll(5, 0)
    x.flip(0, 1)
    x.swapaxes(0, -1)
    x.movedim(0, -1)
    F.pad(x, (-1, 2))
    F.pad(x, (1, 1, -2, 0), value=3.0)
    x.as_strided((2, 2), (3, 1), 1)
    x.tril(-1)
    x.triu(5)
    torch.cat([x[:, -16:], y[:, -1:]], 1)
    [row.sum() for row in x]
    list(x[-16:].shape), len(x), x.numel(), x.dim()
    x.stride(), x[:, 1:].stride(), x.is_contiguous()
    """,
    shapes=EDGES,
)
INDEXING = Group(
    """
    x[i]
    x[-i]
    x[i + 16]
    x[:, j]
    x[i, j]
    x[i[:, None], j]
    x[i, -1]
    x[-1, j]
    x[i, 1:]
    x[1:, j]
    x[i, -16:]
    x[-16:, j]
    x[i, None]
    x[None, i]
    x[..., j]
    x[i.int()]
    x[i.bool()]
    x[i[:0]]
    x[i.reshape(1, 2)]
    x[i[0]]
    x[i[0], j[1]]
    x[i.tolist()]
    x[[0, 2]]
    x[[0, -1], [1, 1]]
    x[[0, 9]]
    x[range(2)]
    x[numpy.array([0, 1])]
    x[numpy.int64(1)]
    x[m]
    x[m, 0]
    x[rows]
    x[rows, 1:]
    x[rows, 0]
    x[rows][:, -16:]
    x[:, m[0]]
    x[m[:2]]
    x[rows.nonzero(as_tuple=True)]
    x[m.nonzero(as_tuple=True)]
    x[[True, False, True, False]]
    x[i][0]
    x[0][j]
    x[i, j, None]
    z = x[i]; z[0] = 5
    z = x[m]; z.zero_()
    x.index_select(0, i)
    x.index_select(1, j)
    x.gather(0, i[:, None])
    x.gather(1, j[None])
    x.take(i)
    x.take(-i)
    torch.take_along_dim(x, x.argsort(1), 1)
    x.masked_select(m)
    x.scatter(1, j[None], 7.0)
    x.scatter_add(0, i[:, None], y)
    x.scatter_reduce(1, j[None], y, "amax")
    x.index_add(0, i, y[:2])
    x.index_copy(1, j, y[:, :2])
    x.index_fill(0, i, -1)
    x.index_put((i,), y[:2])
    x.index_put((i, j), y[0, :2], accumulate=True)
    x.index_put((i * 0,), y[:2], accumulate=True)
    x.masked_fill(m, 3)
    x.masked_scatter(m, y)
    x.where(m, y)
    torch.where(m, x, 0)
    torch.where(rows[:, None], x, y)
    F.embedding(i, x)
    F.embedding(i.reshape(2, 1), x, padding_idx=0)
    F.one_hot(i, 5)
    F.one_hot(i)
    F.nll_loss(x, i.repeat(2)[:4])
    F.cross_entropy(x, j.repeat(2)[:4], ignore_index=1)
    x.repeat_interleave(i, 1)
    x.nonzero()
    torch.nonzero(m)
    torch.nonzero(x[0:0])
    x.argwhere()
    """,
)
THREE = Group(
    """
    x[:, i]
    x[i, :, j]
    x[:, i, j]
    x[i, i]
    x[..., i]
    x[:, i, -2:]
    x[i, :, -16:]
    x[m].sum()
    x[:, m[0]]
    x[rows, :, j]
    x[..., -16:, :]
    x[:, -16:, 1:3]
    x[:, -1]
    x[:, :-1] - x[:, 1:]
    x.transpose(1, 2)[..., -1]
    x.permute(2, 0, 1)[-16:]
    x.flatten(1)[:, -5:]
    x.unflatten(2, (2, 2))[..., 1]
    x.movedim(-1, 0)[i]
    x[:, i] = 0
    x[:, i] = y[:, :2]
    x[i, :, j] = 1
    x[..., -1] += 1
    x[:, -16:, ::2] = y[:, :, ::2]
    x[rows] = y[rows]
    x[:, m[0]] = 4
    x.transpose(0, 1)[1] = 3
    """,
    shapes=((3, 3, 4),),
)
WRITING = Group(
    """
    x[:, -16:] = 5
    x[:, -16:] = y
    x[-16:] += 1
    x[-16:] *= y
    x[:-16] = 5
    x[-16:2] = y[:2]
    x[-16:-20] = 3
    x[2:16] = 0
    x[16:] = 1
    x[::2] = y[::2]
    x[-16::2] = 7
    x[1] = y[0]
    x[-1] = 7
    x[4] = 7
    x[0, 3] = 7
    x[..., -1] = 3
    x[...] = y
    x[:] = 2
    x[()] = 2
    x[None] = 2
    x[:, None] = y[:, None]
    x[0, 0] = y[0, 1]
    x[0] = y
    x[:, :2] = y
    x[0] = y[:2]
    x[0] = y[None, 0]
    x[True] = 1
    x[False] = 1
    x[i] = 0
    x[i] = y[:2]
    x[i] += y[i]
    x[-i] = 3
    x[i, j] = 5
    x[i, -1] = y[0, :2]
    x[-1, j] = 4
    x[:, j] = y[:, :2]
    x[:, j] += 1
    x[i, 1:] = y[:2, 1:]
    x[1:, j] = 3
    x[-16:, j] = 3
    x[i[:, None], j] = 1
    x[[0, -1]] = 3
    x[[0, 9]] = 3
    x[i[0]] = 3
    x[range(2)] = y[:2]
    x[m] = 0
    x[m] = y[m]
    x[m] *= 2
    x[m] = y[m][None]
    x[~m] = -1
    x[x.detach() > 1] = 1
    x[rows] = 1
    x[rows] = y[:1]
    x[rows, 0] = 9
    x[rows, 1:] = 9
    x[:, m[0]] = 9
    x[0] = 1; x[:, 1] = 2
    x[1:, 1:] = x[:-1, :-1].clone()
    x[1:] += x[:-1].clone()
    x[i.int()] = 3
    x[0, i] = 3
    x[0][1] = 8
    x[0][j] = 8
    x[1:][0] = 8
    x[i][0] = 5
    x[:, 1:].t()[0] = 6
    x[0] = i[0]
    x[0] = True
    x[0] = 2.5
    x[:2] = torch.tensor([[1], [2]])
    x[0] = torch.ones(3)
    x[0] = torch.tensor(4)
    x.index_put_((i,), y[:2])
    x.index_put_((i * 0,), y[:2], accumulate=True)
    x.index_put_((m,), y[0, 0])
    x.index_fill_(1, j, 3)
    x.index_copy_(0, i, y[:2])
    x.index_add_(0, i, y[:2], alpha=2)
    x.masked_fill_(m, 3)
    x.masked_scatter_(m, y)
    x.scatter_(1, j[None], 7.0)
    x.scatter_(0, i[:, None], y)
    x.scatter_add_(1, j[None], y)
    x.put_(i, y[0, :2])
    x.fill_diagonal_(3)
    x.fill_(3)
    x.zero_()
    x.copy_(y)
    x.copy_(y[0])
    x.copy_(y[:, :2])
    del x; y[0] = 1
    """,
    shapes=(MATRIX,),
)
EDGE_WRITING = Group(
    """
    x[:, -16:] = 4
    x[-16:] = y
    x[-1:] = 4
    x[:1] += 1
    x[m] = 4
    x[rows] = y[rows]
    x[:, :] = y
    x[0:0] = 4
    """,
    shapes=EDGES,
)
VIEWS = Group(
    """
    v = x.view(-1); v[2:5] += 1
    v = x.view(2, -1); v[0] = 0
    v = x.reshape(-1); v[0] = 9
    v = x.t(); v[0] += 1
    v = x.t().reshape(-1); v.zero_()
    v = x.t().contiguous(); v.zero_()
    v = x.contiguous(); v.zero_()
    v = x.permute(1, 0).contiguous(); v += 1
    v = x.t().flatten(); v += 1
    v = x.t().ravel(); v += 1
    v = x[:, 1:].contiguous(); v += 1
    v = x[:, 1:].reshape(-1); v += 1
    v = x[1:].contiguous(); v += 1
    v = x[1:].reshape(-1); v += 1
    v = x[:1].t().contiguous(); v += 1
    v = x.t()[1:].reshape(-1); v += 1
    v = x[0].expand(2, 3).contiguous(); v += 1
    v = x[0].expand(2, 3).reshape(-1); v += 1
    v = x.unsqueeze(0).transpose(0, 1).contiguous(); v += 1
    v = x.unsqueeze(1).reshape(2, 2, 3); v += 1
    v = x.detach().t().contiguous(); v += 1
    v = x.t().detach().contiguous(); v += 1
    v = x.t().to(x.dtype); v += 1
    v = x.to(x.dtype); v += 1
    v = x.type_as(x); v += 1
    v = x.to(x.device); v += 1
    v = x.to(x.dtype, copy=True); v += 1
    v = x.clone(); v += 1
    v = x.t().clone(); v += 1
    v = x + 0; v += 1
    v = x * 1; v += 1
    v = x.float().double(); v += 1
    v = x.expand_as(x); v += 1
    v = x.expand(4, 3); v += 1
    v = x.repeat(1, 1); v += 1
    v = x.tile(1); v += 1
    v = torch.cat([x]); v += 1
    v = torch.stack([x]); v += 1
    v = torch.concat([x, x[:0]]); v += 1
    v = x.roll(0); v += 1
    v = x.sum(()); v += 1
    v = x.flip(()); v += 1
    v = x.clamp(-99, 99); v += 1
    v = F.pad(x, (0, 0)); v += 1
    v = F.dropout(x, 0.0); v += 1
    v = F.dropout(x, 0.5, training=False); v += 1
    v = torch.where(m | ~m, x, y); v += 1
    v = x.squeeze(); v += 1
    v = x.unsqueeze(0).squeeze(0); v[1] = 0
    v = x[None].squeeze(); v[1] = 0
    v = x.chunk(3, 1)[2]; v.neg_()
    v = x.split([1, 2], 1)[1]; v.copy_(y[0, :2])
    v = x.unbind(1)[1]; v.zero_()
    v = x.tensor_split(2)[1]; v += 1
    v = x.diagonal(); v.fill_(8)
    v = x.select(0, 1); v *= 2
    v = x.narrow(1, 1, 2); v.fill_(4)
    v = x.unfold(0, 2, 2); v += 1
    v = x.as_strided((2, 2), (3, 1), 1); v += 1
    v = x.view_as(y); v += 1
    v = x.unflatten(0, (2, 2)); v[0] = 0
    v = x.movedim(0, 1); v[0] = 0
    v = x.flatten(); v += 1
    v = x.detach(); v += 1
    v = x.data; v += 1
    v = x.real; v += 1
    v = x[...]; v += 1
    v = x[:]; v += 1
    v = x[None, :, 1]; v += 1
    v = x[i]; v += 1
    v = x[-16:]; v += 1
    v = x[:, -16:]; v.mul_(2)
    v = x[1]; w = v[1:]; w += 1; v *= 2
    v = x[1:]; x *= 2; w = v * 1
    v = x[1:]; x.zero_(); w = v + y[1:]
    v, w = x[:2], x[1:3]; v += 1; w *= 3
    v, w = x.view(-1), x.t(); v[1] = 5; w[0] += 1
    v = x.view(-1); x.add_(y); v.mul_(2); x.sub_(1)
    v = x.data; v[0] = 0; w = x.detach(); w[1] = 1
    x.data = y.data; y.data[0] += 1
    x.data = y.data.clone(); y.data[0] += 1
    x.data.copy_(y.data); y.data.add_(1)
    x.data.copy_(1.0 * y.data + 0.0 * x.data); y.data.add_(1)
    x.set_(y.detach())
    x.add_(1).mul_(y)
    x.relu_().add_(1)
    x += x
    x -= x.t().reshape(4, 3)
    x.t_().add_(1)
    x.transpose_(0, 1)[0] = 0
    x.unsqueeze_(0)[0, 1] = 2
    x.squeeze_().add_(1)
    x.resize_(2, 3).add_(1)
    x[0].t_().add_(1)
    x.clamp_(0, 1)
    x.round_()
    x.sort(0)[0].add_(1)
    x.exponential_().mul_(0)
    x.sigmoid_().logit_()
    x.addcmul_(y, y, value=0.5)
    x.lerp_(y, 0.3)
    x[0].add_(y[1]).mul_(2)
    x.t().mul_(y.t())
    torch.relu_(x)
    x.swapaxes(0, 1).copy_(y.t())
    v = x.expand(2, 4, 3); v += 1
    y.detach().zero_(); x.mul_(y)
    """,
)
OUT = Group(
    """
    torch.add(x, y, out=o)
    torch.add(x, y, out=y)
    torch.add(x, y, out=x)
    torch.mul(x, 2, out=y)
    torch.add(x[0], 1, out=x[1])
    torch.add(x[:, 0], 1, out=y[:, 1])
    torch.mul(x.t(), 2, out=y.t())
    torch.matmul(x, y.t(), out=o)
    torch.mm(x, y.t(), out=o)
    torch.sum(x, 0, out=o)
    torch.mean(x, 0, out=o)
    torch.cat([x, y], out=o)
    torch.stack([x, y], out=o)
    torch.where(m, x, y, out=o)
    torch.max(x, 0, out=(o, i))
    torch.sort(x, 0, out=(o, i))
    torch.topk(x, 2, out=(o, i))
    torch.min(x, y, out=o)
    torch.exp(x, out=x)
    torch.clamp(x, 0, 1, out=y)
    torch.gt(x, y, out=m)
    torch.gt(x, y, out=o)
    torch.arange(5, out=o)
    torch.zeros(2, 3, out=o)
    torch.full((2, 2), 3.0, out=o)
    torch.linspace(0, 1, 5, out=o)
    torch.index_select(x, 0, i, out=o)
    torch.gather(x, 1, j[None], out=o)
    torch.masked_select(x, m, out=o)
    torch.cumsum(x, 0, out=o)
    torch.add(x, y, out=i)
    torch.div(x, 2, out=i)
    torch.norm(x, dim=0, out=o)
    torch.argmax(x, 0, out=i)
    torch.take(x, i, out=o)
    torch.abs(x[::2], out=y[1::2])
    torch.eye(3, out=o)
    torch.tril(x, out=y)
    torch.pow(x, 2, out=y[:4])
    torch.bmm(x[None], y.t()[None], out=o)
    torch.logical_not(m, out=m)
    torch.nonzero(m, out=i)
    torch.std(x, 0, out=o)
    torch.linalg.norm(x, out=o)
    torch.addmm(y @ y.t(), x, y.t(), out=o)
    """,
    gradient=False,
)
TYPES = Group(
    """
    x + 1
    x + 1.5
    x + True
    x + 1j
    1 - x
    x - y
    x * 2.5
    x / 2
    x / y
    2 / (x + 1)
    x // 2
    x // 2.0
    x % 2
    x % -2
    -x % 3
    x ** 2
    x ** 2.0
    x ** 0.5
    2 ** x
    -x
    +x
    abs(x)
    ~x
    x & y
    x | y
    x ^ y
    x << 1
    x >> 1
    x == y
    x != 1
    x < y
    x >= 1
    x == 1.5
    x + y.to(torch.int32)
    x + y.abs().to(torch.uint8)
    x + y.to(torch.int64)
    x + y.to(torch.float16)
    x + y.to(torch.bfloat16)
    x * y.to(torch.float32)
    x * y.to(torch.float64)
    x + y[0, 0].to(torch.float64)
    x + torch.tensor(1.5, dtype=torch.float64)
    x * torch.tensor(2)
    x.sum()
    x.sum(0)
    x.sum(1, keepdim=True)
    x.sum(dtype=torch.float32)
    x.sum(dtype=torch.int32)
    x.mean()
    x.mean(0)
    x.mean(dtype=torch.float32)
    x.prod()
    x.prod(0)
    x.cumsum(0)
    x.cumprod(1)
    x.cummax(0)
    x.logcumsumexp(0)
    x.max()
    x.min()
    x.max(0)
    x.min(1)
    x.amax(0)
    x.amin()
    x.aminmax()
    x.argmax()
    x.argmin(0)
    x.any()
    x.any(0)
    x.all()
    x.all(1)
    x.std()
    x.var(0)
    x.norm()
    x.norm(1, 0)
    x.median()
    x.mode()[0]
    x.nansum()
    x.logsumexp(0)
    x.count_nonzero()
    x.trace()
    x.dot(y)
    x @ y.t()
    x.t() @ y
    torch.dot(x[0], y[0])
    torch.mv(x, y[0])
    torch.outer(x[0], y[0])
    torch.einsum("ij,kj->ik", x, y)
    torch.bmm(x[None], y.t()[None])
    F.linear(x, y)
    x.softmax(0)
    F.softmax(x, 1, dtype=torch.float32)
    x.log_softmax(0)
    x.sigmoid()
    x.tanh()
    x.relu()
    x.exp()
    x.log()
    x.sqrt()
    x.rsqrt()
    x.sin()
    x.atan2(y)
    x.erf()
    x.floor()
    x.round()
    x.trunc()
    x.sign()
    x.sgn()
    x.reciprocal()
    x.square()
    x.clamp(0, 1)
    x.clamp(0.5, 1.5)
    x.clamp(min=1)
    x.clip(max=y)
    x.maximum(y)
    x.fmin(y)
    x.float()
    x.double()
    x.half()
    x.bfloat16()
    x.int()
    x.long()
    x.short()
    x.bool()
    x.abs().byte()
    x.to(torch.complex64)
    x.type(torch.float32)
    x.type_as(y.float())
    x.view(torch.int32)
    x.view(torch.uint8)
    x.view(torch.int16)
    x.isnan()
    x.isfinite()
    x.isinf()
    x.nan_to_num()
    x.logical_and(y)
    x.logical_not()
    x.eq(y).sum()
    (x > 0).float().mean()
    (x > 0).sum(0)
    (x > 0) * y
    (x > 0) + (y > 0)
    (x > 0) - 1
    torch.where(m, x, 0)
    torch.where(m, x, 0.5)
    torch.where(m, x, y.float())
    torch.where(m, 1, 2)
    torch.where(m, 1.0, 0.0)
    torch.cat([x, y])
    torch.cat([x, y.float()])
    torch.cat([x, y.long()], 1)
    torch.stack([x, y])
    x.sort(0, stable=True)
    x.argsort(1, stable=True)
    x.topk(2)
    x.kthvalue(1)[0]
    x.unique()
    x.unique(return_counts=True, return_inverse=True)
    torch.unique_consecutive(x)
    x.nonzero()
    x.histc(4, 0, 4)
    torch.bincount(x.flatten())
    torch.bucketize(x, x[0].sort()[0])
    torch.searchsorted(x.sort()[0], y)
    torch.isin(x, y[0])
    torch.lerp(x, y, 0.5)
    torch.lerp(x, y, 2)
    torch.add(x, y, alpha=2)
    torch.sub(x, y, alpha=0.5)
    torch.addcmul(x, x, y)
    torch.addcdiv(x, x, y + 1)
    torch.fmod(x, 2)
    torch.remainder(x, -2)
    torch.div(x, 2, rounding_mode="floor")
    torch.div(x, y + 1, rounding_mode="trunc")
    torch.true_divide(x, 2)
    torch.floor_divide(x, 2)
    torch.pow(2, x)
    torch.pow(x, y)
    torch.bitwise_and(x, 1)
    torch.bitwise_left_shift(x, 1)
    torch.hypot(x, y)
    torch.full_like(x, 1)
    torch.full_like(x, 1.7)
    torch.zeros_like(x)
    torch.ones_like(x, dtype=torch.int64)
    torch.empty_like(x).zero_()
    torch.arange(5, device=x.device, dtype=x.dtype)
    torch.arange(0, 1, 0.25, device=x.device)
    torch.arange(4, device=x.device)
    torch.linspace(0, 3, 4, device=x.device, dtype=x.dtype)
    torch.full((2,), 3, device=x.device)
    torch.full((2,), True, device=x.device)
    torch.full((2,), 2.5, device=x.device)
    torch.eye(3, device=x.device, dtype=x.dtype)
    torch.tensor([1, 2], device=x.device)
    torch.tensor([1.5], device=x.device)
    torch.tensor([True], device=x.device)
    torch.tensor(2, device=x.device, dtype=x.dtype)
    torch.as_tensor(x, dtype=torch.float32)
    x.new_tensor([1, 2])
    x.new_zeros(2)
    x.new_full((2,), 3)
    x.tolist(), x[0, 1].item(), bool(x[0, 1])
    int(x[1, 1].abs()), float(x[1, 1].abs())
    x.real, x.conj()
    x.imag
    x.angle()
    x.add_(1)
    x.add_(1.5)
    x.mul_(2)
    x.mul_(y.float())
    x.div_(2)
    x.pow_(2)
    x.sub_(y)
    x.floor_divide_(2)
    x.bitwise_and_(y)
    x.logical_not_()
    x.fill_(1.7)
    x.fill_(True)
    x.copy_(y.float())
    x.copy_(torch.tensor(1.7))
    x.copy_(y.bool())
    x.clamp_(0.5, 1.5)
    x.masked_fill_(m, 1.5)
    x[0] = 1.7
    x[0] = y[0].double()
    x[m] = 1
    x.index_add_(0, i, y[:2])
    x.scatter_add_(0, i[:, None], y)
    x.scatter(0, i[:, None], 2)
    x.cumsum_(0)
    x += 1
    x /= 2
    x //= 2
    x **= 2
    x &= y
    x.bernoulli_(0.0)
    x.diff()
    x.flip(0)
    x.roll(1)
    x.repeat(2, 1)
    x.tril()
    x.expand(2, 4, 3).sum(0)
    x.element_size(), x.itemsize, x.nbytes
    x.is_floating_point(), x.is_complex(), x.dtype.is_signed
    torch.result_type(x, 1.5) == torch.promote_types(x.dtype, torch.float32)
    torch.can_cast(x.dtype, torch.int32)
    x.allclose(y), x.equal(x.clone())
    """,
    dtypes=DTYPES,
)
LARGE = Group(
    """
    x
    x + 2**40
    x * 3
    x - y
    x // 7
    x % 1000
    -x
    x.sum()
    x.cumsum(0)
    x.max()
    x.argmax()
    x.double()
    x.float()
    x.int()
    x / 3
    x == y
    x > 2**33
    x.sort()[0]
    x & 0xFFFFFFFFFF
    x >> 8
    x << 3
    x[0] = 2**50
    x.fill_(2**50)
    x.masked_fill_(m, 2**50)
    x.clamp(max=2**35)
    x.tolist(), x[0, 0].item()
    x.prod(1)
    x.abs().mean(dtype=torch.float64)
    torch.where(m, x, 2**40)
    torch.tensor(2**40, device=x.device)
    torch.full((2,), 2**40, device=x.device)
    torch.arange(2**40, 2**40 + 3, device=x.device)
    x.unique()
    x.scatter_add(0, i[:, None], y)
    x.index_add(0, i, y[:2])
    x[m] = y[m]
    torch.stack([x, y]).amax(0)
    x ^ y
    x.bitwise_not()
    x.float().long()
    x.double().long()
    """,
    dtypes=("int64",),
    large=True,
)
FEW = Group(
    """
    x.sum() + y.sum()
    x.mean() * 2
    x.prod() + 1
    x.max() + 0
    x.argmin() + 0
    x.sum(0) + 0
    x.sum(-1) + 0
    x.mean(0) + 0
    x.std() + 0
    x.var(0) + 0
    x.norm() + 0
    x.max(0)[0] + 0
    x.amax(-1) + 0
    x.prod(0) + 1
    x.cumsum(0) + 0
    x.cumprod(0) + 0
    x.sort()[0] + 0
    x.argsort() + 0
    x.topk(0)[0] + 0
    x.any() | False
    x.all() | False
    x.nonzero() + 0
    x[m] + 0
    x[x > 0] + 0
    x.median() + 0
    x.logsumexp(0) + 0
    x.softmax(0) + 0
    x.log_softmax(-1) + 0
    x.flatten() + 0
    x.reshape(-1) + 0
    x.view(-1) + 0
    x.unsqueeze(0) + 0
    x.unsqueeze(-1) * y
    x.squeeze() + 0
    x.squeeze(0) + 0
    x.expand(2, *x.shape) + 0
    x.repeat(2, *x.shape[:0]) if x.dim() == 1 else x + 0
    x.t() + 0
    x.T + 0
    x.mT + 0
    torch.cat([x, y]) + 0
    torch.stack([x, y]) + 0
    torch.cat([x, x.new_zeros(0)]) + 0
    torch.vstack([x, y]) + 0
    x.matmul(y.mT) + 0 if x.dim() > 1 else x + 0
    x @ y + 0
    torch.dot(x, y) + 0
    F.relu(x) + 0
    F.mse_loss(x, y) + 0
    F.l1_loss(x, y, reduction="sum") + 0
    F.normalize(x, dim=-1) + 0
    F.layer_norm(x, x.shape[-1:]) + 0
    F.one_hot(x.detach().long().abs(), 9) + 0
    x.clone().fill_(1) + x
    x.item() + 0
    x.tolist()
    float(x) + 0
    len(x) + 0
    list(x.shape), x.numel(), x.dim()
    [r + 0 for r in x]
    x.split(1) + ()
    x.chunk(2) + ()
    x.unbind() + ()
    x.flip(0) + 0
    x.roll(1) + 0
    x.diff() + 0
    x[..., None] + 0
    x[-16:] + 0
    x[:0] + 0
    x[0] + 0
    x[()] + 0
    x += 1
    x[...] = 3
    x[-16:] = 3
    x.zero_() + 0
    x.mul_(y) + 0
    x.unique() + 0
    x.count_nonzero() + 0
    x.equal(y) | False
    x.where(x > 0, y) + 0
    torch.where(x > 0, x, 0) + 0
    torch.atleast_2d(x) + 0
    torch.linalg.norm(x) + 0
    torch.cdist(x, y) + 0
    torch.meshgrid(x, y, indexing="ij")
    torch.broadcast_to(x, (2, *x.shape)) + 0
    torch.tensor([x.sum(), 1.0]) + 0
    torch.stack(list(x)) + 0
    F.pad(x, (1, 1)) + 0
    F.linear(x, x.new_ones(2, x.shape[-1])) + 0
    F.softplus(x) + 0
    x.quantile(0.5) + 0
    x.histc(3, 0, 1) + 0
    """,
    shapes=SMALL,
    dtypes=("float32",),
)


def _by_line() -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in (
        READING, INDEXING, THREE, WRITING, EDGE_WRITING, VIEWS, OUT, TYPES, LARGE, FEW
    ):  # fmt: skip
        for line in filter(None, map(str.strip, group.lines.splitlines())):
            found.setdefault(line, []).append(group)
    return found


FORMS = _by_line()
NAMES = ("x", "y", "i", "j", "m", "rows", "o")


def inputs(group: Group) -> Iterator[tuple[str, list[Any]]]:
    """(which shape and dtype, the values of NAMES)."""
    import torch

    for shape, name in itertools.product(group.shapes, group.dtypes):
        dtype = getattr(torch, name)
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.randn(shape, generator=generator) * 2 for _ in range(2))
        m = x > 0.3
        if group.large:
            x, y = (t.double() * 10**10 for t in (x, y))
        elif dtype.is_complex:
            x, y = torch.complex(x, y), torch.complex(y, x)
        elif dtype == torch.uint8:
            x, y = x.abs(), y.abs()
        rows = torch.tensor([n % 2 == 0 for n in range(shape[0] if shape else 1)])
        x, y = x.to(dtype), y.to(dtype)
        if group.gradient and dtype.is_floating_point:
            x.requires_grad_()
            y.requires_grad_()
        o = torch.empty(0, dtype=dtype)
        yield f"{name} {shape}:", [x, y, torch.tensor([2, 0]), torch.tensor([1, 2]), m, rows, o]


def run(text: str, values: list[Any]) -> list[Any]:
    """The tensors, and numbers as tensors, that the form leaves."""
    import numpy
    import torch
    import torch.nn.functional as F
    from torch.utils import _pytree as pytree

    variables = dict(zip(NAMES, values, strict=True))
    for name in ("x", "y"):
        variables[name] = variables[name].clone()  # leaves can not be written in place
    scope: dict[str, Any] = {"torch": torch, "F": F, "numpy": numpy, **variables}
    try:
        code = compile(text, text, "eval")
    except SyntaxError:
        exec(text, scope)
    else:
        scope["result"] = eval(code, scope)
    kept = {name: value for name, value in scope.items() if name not in ("torch", "F", "numpy")}
    leaves = pytree.tree_leaves({n: v for n, v in kept.items() if not n.startswith("__")})
    return [
        torch.tensor(leaf) if isinstance(leaf, bool | int | float | complex) else leaf
        for leaf in leaves
        if isinstance(leaf, bool | int | float | complex | torch.Tensor)
    ]
