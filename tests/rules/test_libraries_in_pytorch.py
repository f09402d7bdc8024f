"""Libraries whose functions the runtime has: if it has all that is used, the import changes."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, migrated, run

HEAD = "import torch\n"


def after(source: str, target: str = "torchax") -> str:
    return migrated(source, target, entry=False)


def reported(source: str) -> list[str]:
    found = constructs(run(source, entry=False))
    return [f"{d.code} {d.message}" for d in found if d.outcome == "reported"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("statement", "becomes", "use"),
    [
        (
            "from torch_scatter import scatter, scatter_max as most",
            "from tpu_runtime.torch_scatter import scatter, scatter_max as most",
            "y = scatter(x, i, 0, reduce='mean') + most(x, index=i, dim=0, dim_size=5)[0]",
        ),
        (
            "from torch_scatter.composite import scatter_softmax",
            "from tpu_runtime.torch_scatter import scatter_softmax",
            "y = scatter_softmax(x, i, dim=0)",
        ),
        ("import torch_scatter", "from tpu_runtime import torch_scatter",
         "y = torch_scatter.scatter_max(x, i, out=None)"),
        ("import torch_scatter as ts", "from tpu_runtime import torch_scatter as ts",
         "y = ts.segment_csr(x, i, reduce='max')"),
        ("from pointnet2_ops import pointnet2_utils as pu",
         "from tpu_runtime import pointnet2_utils as pu", "y = pu.ball_query(0.2, 32, x, c)"),
        ("from pointnet2_ops.pointnet2_utils import (\n    gather_operation,\n    three_nn,\n)",
         "from tpu_runtime.pointnet2_utils import (\n    gather_operation,\n    three_nn,\n)",
         "y = gather_operation(f, three_nn(x, c)[1])"),
        ("from torch_cluster import knn_graph, radius_graph",
         "from tpu_runtime.torch_cluster import knn_graph, radius_graph",
         "y = knn_graph(x, k=4, batch=i), radius_graph(x, r=1.0, max_num_neighbors=8)"),
        ("import torch_cluster", "from tpu_runtime import torch_cluster",
         "y = torch_cluster.radius(x, y, 0.5, i, i)"),
        ("from knn_cuda import KNN", "from tpu_runtime.knn_cuda import KNN",
         "y = KNN(k=4, transpose_mode=True)(x, c)"),
        ("import chamfer", "from tpu_runtime import chamfer", "y = chamfer.forward(x, c)"),
        ("import MultiScaleDeformableAttention as MSDA",
         "from tpu_runtime import ms_deform_attn as MSDA",
         "y = MSDA.ms_deform_attn_forward(x, s, l, p, w, 64)"),
        ("from mmcv.ops import RoIAlign, point_sample as at",
         "from tpu_runtime.mmcv_ops import RoIAlign, point_sample as at",
         "y = RoIAlign(7, 0.25)(x, b) + at(x, points, align_corners=False)"),
        ("from mmcv.ops.nms import nms", "from tpu_runtime.mmcv_ops import nms",
         "y = nms(x, s, 0.5)"),
    ],
)  # fmt: skip
def test_only_the_import_changes(statement: str, becomes: str, use: str, target: str) -> None:
    assert after(f"{HEAD}{statement}\n{use}\n", target) == f"{HEAD}{becomes}\n{use}\n"


def test_an_import_in_a_function() -> None:
    source = f"{HEAD}\n\ndef pool(x, i):\n    import torch_scatter\n"
    source += "    return torch_scatter.scatter_mean(x, i)\n"
    assert "    from tpu_runtime import torch_scatter\n    return" in after(source)


@pytest.mark.parametrize(
    ("statement", "use", "reason"),
    [
        ("from torch_scatter import scatter, scatter_std", "scatter(x, i)", "for scatter_std"),
        ("import torch_scatter as ts", "ts.scatter_std(x, i)", "no counterpart for scatter_std"),
        ("from torch_cluster import fps, knn", "fps(x)", "no counterpart for fps"),
        ("import torch_scatter as ts", "use(ts)", "ts is passed on as a whole"),
        ("from torch_scatter import scatter", "scatter(x, i, reduce='mul')", "reduction 'mul'"),
        ("from torch_scatter import scatter", "scatter(x, i, 0, None, 9, 'mul')", "'mul'"),
        ("from torch_scatter import scatter_max", "scatter_max(x, i, 0, y)", "called with out"),
        ("from torch_scatter import scatter", "scatter(*given)", "other arguments"),
        ("from torch_scatter import scatter", "scatter(x, i, axis=0)", "other arguments"),
        # An older extension of this name writes into what it is given.
        ("import chamfer", "chamfer.forward(x, y, d1, d2, i1, i2)", "other arguments"),
        ("from pointnet2_ops import pointnet2_utils, pointnet2_modules", "use(x)", "CUDA only"),
        ("from pointnet2_ops.pointnet2_modules import PointnetSAModule", "use(x)", "CUDA only"),
        ("import pointnet2_ops.pointnet2_utils", "use(x)", "CUDA only"),
        ("from torch_scatter import *", "scatter(x, i)", "for *"),
        ("from mmcv.ops import nms", "nms(x, s, 0.5, 1)", "other arguments"),
        ("from mmcv.ops import RoIAlign", "RoIAlign(2, pool_mode='max')", "pool_mode 'max'"),
        ("from mmcv.ops import point_sample, SparseConvTensor", "use(x)", "SparseConvTensor"),
        ("from detectron2.layers import DeformConv", "DeformConv(*given)", "other arguments"),
        ("from detectron2.layers import nms_rotated", "nms_rotated(x, s, 0.5)", "rotated"),
        (
            "from detectron2.layers.rotated_boxes import pairwise_iou_rotated as iou",
            "iou(x, x)",
            "rotated",
        ),
    ],
)
def test_what_the_runtime_has_not_is_reported(statement: str, use: str, reason: str) -> None:
    source = f"{HEAD}{statement}\ny = {use}\n"
    assert after(source) == source
    assert any(reason in message for message in reported(source)), reported(source)


def test_an_import_with_a_fallback_stays() -> None:
    source = (
        f"{HEAD}try:\n    import torch_scatter\nexcept ImportError:\n    torch_scatter = None\n"
    )
    assert after(source) == source and not reported(source)


STYLEGAN = """import os
import torch
from torch.utils.cpp_extension import load

here = os.path.dirname(__file__)
{name} = load({given}, sources=[os.path.join(here, {source!r}), os.path.join(here, "k.cu")])


def act(x, b, e):
    return {use}
"""
FUSED = "fused.fused_bias_act(x, b, e, 3, 0, 0.2, 2**0.5)"


@pytest.mark.parametrize("given", ["'fused'", "name='fused'"])
def test_an_extension_that_is_compiled_where_it_is_used(given: str) -> None:
    source = STYLEGAN.format(name="fused", given=given, source="fused_bias_act.cpp", use=FUSED)
    text = after(source)
    assert "from tpu_runtime import stylegan_ops as fused\n" in text and "load" not in text
    assert not reported(source)


@pytest.mark.parametrize(
    ("source", "use"),
    [
        ("other.cpp", FUSED),
        ("fused_bias_act.cpp", "fused.another(x)"),
        ("fused_bias_act.cpp", "fused.fused_bias_act(x, b)"),
        ("fused_bias_act.cpp", "apply(fused)"),
    ],
)
def test_other_extensions_are_reported(source: str, use: str) -> None:
    text = STYLEGAN.format(name="fused", given="'fused'", source=source, use=use)
    assert after(text) == text
    assert any(message.startswith("LIB002") for message in reported(text))


def test_detectron2s_deformable_convolutions() -> None:
    source = "import torch\nfrom detectron2 import layers\nfrom detectron2.layers import (\n"
    source += "    DeformConv,\n    ShapeSpec,\n)\n\nTYPES = [DeformConv, ShapeSpec]\n"
    text = after(f"{source}net = layers.ModulatedDeformConv(3, 8, 3)\n")
    assert "TYPES = [tpu_runtime.deform_conv.DeformConv, ShapeSpec]" in text
    assert "net = tpu_runtime.deform_conv.ModulatedDeformConv(3, 8, 3)" in text
    assert "from detectron2.layers import (\n    ShapeSpec,\n)" in text
    assert "import tpu_runtime.deform_conv\n" in text


def test_detectron2s_other_operators_are_torchvisions() -> None:
    names = "ROIAlign, batched_nms, nms, roi_align"
    source = f"import torch\nfrom detectron2.layers import {names}\ny = use({names})\n"
    assert after(source) == source and not reported(source)
