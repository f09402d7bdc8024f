"""Values and gradients of single operators on torchax; run as tests/runtime/conftest.py says.

benchmarks/operator_audit.py compares the whole of OpInfo; here is what most models consist of.
"""

import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from support import agrees
from tiers import thorough_between
from torch import Tensor

tpu.setup()

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
import operator_audit  # noqa: E402
from audit_samples import differs  # noqa: E402

_NAMES = """
    nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose2d
    nn.functional.batch_norm nn.functional.layer_norm nn.functional.group_norm
    nn.functional.instance_norm nn.functional.rms_norm nn.functional.local_response_norm
    nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.avg_pool2d
    nn.functional.adaptive_avg_pool2d nn.functional.adaptive_max_pool2d
    nn.functional.relu nn.functional.gelu nn.functional.silu nn.functional.leaky_relu
    nn.functional.elu nn.functional.softplus nn.functional.hardswish nn.functional.softshrink
    nn.functional.prelu nn.functional.glu softmax log_softmax sigmoid tanh
    nn.functional.cross_entropy nn.functional.mse_loss nn.functional.smooth_l1_loss
    nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
    nn.functional.nll_loss nn.functional.kl_div nn.functional.huber_loss
    nn.functional.cosine_similarity nn.functional.triplet_margin_loss
    __getitem__ index_select gather scatter scatter_add index_add index_put masked_fill
    masked_scatter masked_select where take narrow slice_scatter diagonal
    sum mean std var amax max.reduction_with_dim max.reduction_no_dim prod cumsum logsumexp norm
    linalg.vector_norm topk sort median
    nanmedian masked.median
    mm bmm matmul addmm einsum nn.functional.linear nn.functional.bilinear
    nn.functional.embedding nn.functional.interpolate.nearest nn.functional.interpolate.bilinear
    nn.functional.interpolate.bicubic nn.functional.pad.constant nn.functional.pad.reflect
    nn.functional.pad.replicate nn.functional.grid_sample nn.functional.pixel_shuffle
    nn.functional.unfold nn.functional.scaled_dot_product_attention
    cat stack split chunk tensor_split repeat_interleave roll flip diag tril
    cdist linalg.solve linalg.det linalg.inv linalg.svd
"""
SUBSET = _NAMES.split()


@pytest.mark.parametrize("name", thorough_between(3, SUBSET))
def test_operator(name: str) -> None:
    found = operator_audit.audit(name, "torchax", operator_audit.torchax(), most=1)
    # Running statistics that are not contiguous are refused.
    wanted = "raises" if name == "nn.functional.batch_norm" else "right"
    assert found["verdict"] == wanted, found


# Torch's own subgradients, which are not those of jax.grad.

EDGES: dict[str, Callable[[Tensor], Tensor]] = {
    "norm at 0": lambda x: x.norm(),
    "normalize at 0": lambda x: F.normalize(x, dim=0).sum(),
    "clamp at the bound": lambda x: x.clamp(0, 1).sum(),
    "relu at 0": lambda x: x.relu().sum(),
    "abs at 0": lambda x: x.abs().sum(),
    "max with ties": lambda x: x.max(),
    "max along a dimension with ties": lambda x: x.max(0)[0],
    "prod at 0": lambda x: x.prod(),
    "sqrt at 0": lambda x: x.sqrt().sum(),
    "std of a constant": lambda x: x.std(),
    "where beside NaN": lambda x: torch.where(x > 0, x.log(), 0 * x).sum(),
    "maximum with ties": lambda x: torch.maximum(x, x.detach() * 1).sum(),
    "dist of equals": lambda x: torch.dist(x, x.detach()),
    "relu6 at 0": lambda x: F.relu6(x).sum(),
    "root at 0": lambda x: (x**0.5).sum(),
    "acos at 1": lambda x: torch.acos(x + 1).sum(),
    "logsumexp of -inf": lambda x: (x - math.inf).logsumexp(0),
    "max_pool with ties": lambda x: F.max_pool1d(torch.cat([x, x]).reshape(1, 1, 6), 2).sum(),
    "amax with ties": lambda x: x.amax(0),
    "cdist of equals": lambda x: torch.cdist(x[None], x.detach()[None]).sum(),
    "median with ties": lambda x: x.median(),
    "hardshrink at the bound": lambda x: F.hardshrink(x + 0.5).sum(),
    "sign at 0": lambda x: x.sgn().sum(),
}


@pytest.mark.parametrize("name", EDGES)
def test_subgradient(name: str) -> None:
    gradients = []
    for device in ("cpu", "jax"):
        x = torch.zeros(3, device=device, requires_grad=True)
        gradients.append(torch.autograd.grad(EDGES[name](x), x)[0].cpu())
    assert torch.equal(*(g.nan_to_num(nan=7e7) for g in gradients)), gradients


# Arguments by torch's names, where torchax has others.

BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: F.linear(input=x, weight=x, bias=x[0]),
    "det": lambda x: torch.linalg.det(A=x),
    "solve": lambda x: torch.linalg.solve(A=x, B=x.T),
    "solve from the right": lambda x: torch.linalg.solve(x, x.T, left=False),
    "svdvals": lambda x: torch.linalg.svd(A=x, full_matrices=False)[1],
    "matrix_power": lambda x: torch.linalg.matrix_power(input=x, n=2),
    "corrcoef": lambda x: torch.corrcoef(input=x),
    "take_along_dim": lambda x: torch.take_along_dim(input=x, indices=x.argsort(1), dim=1),
    "tensor_split": lambda x: torch.tensor_split(
        input=x, tensor_indices_or_sections=torch.tensor([1])
    )[1],
}


@pytest.mark.parametrize("name", BY_NAME)
def test_arguments_have_the_names_that_torch_gives_them(name: str) -> None:
    agrees(BY_NAME[name], torch.tensor([[3.0, 1.0, 2.0], [1.0, 4.0, 0.5], [0.0, 1.0, 5.0]]), 1e-5)


# What the device cannot do.


def test_operators_of_the_cpu() -> None:
    weight = torch.rand(5, 3)
    places = torch.tensor([[1, 2], [0, 1]])
    results = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for device in ("cpu", "jax"):
            w = weight.to(device).requires_grad_()
            value = F.embedding_bag(places.to(device), w, mode="max")
            results.append(torch.autograd.grad((value**2).sum(), w)[0].cpu())
    assert torch.equal(*results)
    assert any("_embedding_bag is computed on the CPU" in str(w.message) for w in caught)


def test_not_in_compiled_functions() -> None:
    import jax
    from torchax import interop

    with pytest.raises(Exception, match=r"aten.polygamma is not available .* compiled"):
        jax.jit(interop.jax_view(lambda x: torch.polygamma(1, x)))(jax.numpy.ones(3))


def test_refused() -> None:
    with pytest.raises(RuntimeError, match="hash_tensor is not available on this device: "):
        torch.hash_tensor(torch.ones(3, device="jax"))


def test_audit_sees_what_is_wrong() -> None:
    torch.manual_seed(0)
    x = torch.rand(4).numpy()
    assert differs(x, x, "values") == ""
    assert "off by" in differs(x * 1.01, x, "values")
    assert "shape" in differs(x[:2], x, "values")
    assert "not finite" in differs(x / (x > x.min()), x, "values")
    assert differs(x > 0.5, x > 2, "values") == "other integers"


def test_attention_in_half_precision_does_not_overflow_before_it_is_scaled() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 16, 32)
    query, value = (x * 20 + 60).half(), x.half()
    expected = F.scaled_dot_product_attention(query.float(), query.float(), value.float())
    found = F.scaled_dot_product_attention(*(t.to("jax") for t in (query, query, value)))
    torch.testing.assert_close(found.cpu().float(), expected, atol=0.2, rtol=0)


def test_volumes_that_are_sampled_with_reflection() -> None:
    """torchax reflects otherwise: values come from the CPU, and there is no wrong gradient."""
    x, grid = torch.randn(1, 2, 3, 4, 5), torch.rand(1, 2, 3, 4, 3) * 3 - 1.5
    for padding in ("border", "reflection"):
        how = {"padding_mode": padding, "align_corners": False}
        expected = torch.nn.functional.grid_sample(x, grid, **how)
        found = torch.nn.functional.grid_sample(x.to("jax"), grid.to("jax"), **how)
        torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-5)
    given = x.to("jax").requires_grad_()
    sampled = torch.nn.functional.grid_sample(given, grid.to("jax"), **how)
    with pytest.raises(Exception, match="grid_sampler_3d is not available on this device"):
        sampled.sum().backward()


@pytest.mark.parametrize("function", [torch.atan2, torch.copysign, torch.igamma, torch.igammac])
def test_a_number_that_is_a_tensor_of_the_cpu(function: Callable[..., Tensor]) -> None:
    x, number = torch.tensor([0.5, 1.0, 3.0]), torch.tensor(2.0)
    for there, here in (((x, number), (x.to("jax"), number)), ((number, x), (number, x.to("jax")))):
        assert torch.allclose(function(*here).cpu(), function(*there))


NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "xlogy": lambda x: torch.xlogy(x, 2),
    "xlogy of a number": lambda x: torch.special.xlogy(2.5, x),
    "xlog1py": lambda x: torch.special.xlog1py(x, 2.5),
    "xlog1py of a number": lambda x: torch.special.xlog1py(True, x),
    "isin": lambda x: torch.isin(x, 2),
    "isin of a number": lambda x: torch.isin(2, x, invert=True),
    "a polynomial": lambda x: torch.special.chebyshev_polynomial_t(x, 3),
    "polynomials at a number": lambda x: torch.special.hermite_polynomial_he(2.5, x),
    "scatter": lambda x: x.scatter(0, torch.tensor([1, 0]).to(x.device), 3, reduce="multiply"),
    "scatter at one place": lambda x: x.scatter(0, torch.tensor(1).to(x.device), 3),
    "scatter_add at one place": lambda x: x.scatter_add(0, torch.tensor(1).to(x.device), x + 1),
    "scatter of bools": lambda x: (x > 0).scatter_reduce(0, 0 * x.long(), x > 5, "sum"),
    "put of bools": lambda x: (x > 0).put_(0 * x.long(), x > 1, accumulate=True),
    "index_fill": lambda x: x.index_fill_(0, torch.tensor(2).to(x.device), torch.tensor(7)),
    "clamp": lambda x: x.double().clamp(min=math.nan) + x.double().clamp_(0, math.inf),
    "xlogy in place": lambda x: (x + 0.5).xlogy_(2),
    "polygamma in place": lambda x: (x + 0.5).polygamma_(1),
    "nan_to_num in place": lambda x: (x / torch.zeros_like(x)).cfloat().nan_to_num_(1.0, 2.0, 3.0),
    "the sign of NaN": lambda x: (x / torch.zeros_like(x)).sign() + (x / 0).sgn(),
    "zeta at poles": lambda x: torch.special.zeta(torch.tensor(2.5), x - 2),
    "gamma of no shape": lambda x: torch.igamma(torch.tensor(0.0), x + 0.5),
    "gamma of an endless shape": lambda x: torch.igammac(torch.tensor(math.inf), x),
    "parts of other shapes": lambda x: torch.complex(x.float()[:, None], x.float()),
    "an imaginary part": lambda x: torch.complex(x.float(), torch.tensor(math.inf)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_among_the_arguments(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([0, 2, 1, 3], dtype=dtype)
    expected, found = NUMBERS[name](x), NUMBERS[name](x.to("jax")).cpu()
    assert found.is_complex() == expected.is_complex()
    torch.testing.assert_close(found, expected.to(found.dtype), equal_nan=True)


def test_a_whole_turn_is_a_copy() -> None:
    """Torchax returns the tensor itself."""
    given = torch.ones(2, 2).to("jax")
    torch.rot90(given, 4).add_(1)
    assert given.sum().item() == 4


def test_a_number_by_a_mask_leaves_the_dtype() -> None:
    counts = torch.tensor([1, 2, 3], device="jax")
    counts[counts > 1] = 2.5
    assert not counts.is_floating_point() and counts.tolist() == [1, 2, 2]


@pytest.mark.parametrize(("shape", "dim"), [((2, 5, 3), 1), ((2, 5, 3), -1), ((4,), 0)])
def test_one_place_of_a_cache_is_written(shape: tuple[int, ...], dim: int) -> None:
    found = []
    for device in ("cpu", "jax"):
        cache = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape).to(device)
        of_one = [1 if d == dim % len(shape) else size for d, size in enumerate(shape)]
        new = torch.full(of_one, 7.0, device=device, requires_grad=True)
        result = (cache * 2).index_copy_(dim, torch.tensor([2], device=device), new)
        (result * result).sum().backward()
        assert new.grad is not None
        found.append((result.tolist(), new.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_transposed_convolutions_in_groups(groups: int, dims: int) -> None:
    """As in StyleGAN2's generator, which has a group for each image."""
    torch.manual_seed(0)
    shapes = (2, 8, 5, 6)[: dims + 2], (8, 6, 3, 2)[: dims + 2]
    function = F.conv_transpose2d if dims == 2 else F.conv_transpose1d
    results = []
    for device in ("cpu", "jax"):
        x, weight = (torch.randn(s, generator=torch.Generator().manual_seed(0)) for s in shapes)
        inputs = [x.to(device).requires_grad_(), weight.to(device).requires_grad_()]
        y = function(*inputs, stride=2, padding=1, groups=groups)
        y.square().sum().backward()
        results.append([y.detach(), *(x.grad for x in inputs)])
    for right, found in zip(*results, strict=True):
        assert found is not None and torch.allclose(right, found.cpu(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [torch.std, torch.var, torch.std_mean, torch.var_mean])
def test_no_dimensions_mean_all(function: Callable[..., Any]) -> None:
    x = torch.tensor([[1.5, -2.0, 3.0], [0.0, 2.0, -7.0]])
    for dim in ((), []):
        found, wanted = function(x.to("jax"), dim=dim), function(x, dim=dim)
        for one, of_cpu in zip(*map(torch.utils._pytree.tree_leaves, (found, wanted)), strict=True):
            assert one.shape == () and torch.allclose(one.cpu(), of_cpu)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (2, 3, 3)])
def test_qr_has_the_mode_that_is_asked_for(shape: tuple[int, ...], mode: str) -> None:
    x = torch.randn(shape)
    expected = torch.linalg.qr(x, mode=mode)
    q, r = torch.linalg.qr(x.to("jax"), mode=mode)
    assert (q.shape, r.shape) == (expected[0].shape, expected[1].shape)
    assert torch.allclose(r.cpu().abs(), expected[1].abs(), atol=1e-5)
    if mode != "r":
        assert torch.allclose((q @ r).cpu(), x, atol=1e-5)
        assert torch.qr(x.to("jax"), some=mode == "reduced")[0].shape == q.shape
