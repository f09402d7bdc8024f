"""torch.nn.parallel.data_parallel: one call of a model whose batch several GPUs share."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import DEVICE, TARGETS, constructs, migrated, reported, run

from migrator.diagnostics import Outcome

CALL = "nn.parallel.data_parallel"
DCGAN = f"""
import torch
import torch.nn as nn


class Discriminator(nn.Module):
    def __init__(self, ngpu):
        super().__init__()
        self.ngpu = ngpu
        self.main = nn.Linear(2, 1)

    def forward(self, input):
        if QUESTION and self.ngpu > 1:
            output = {CALL}(self.main, input, range(self.ngpu))
        else:
            output = self.main(input)
        return output.view(-1, 1)
"""
QUESTIONS = ("input.is_cuda", "isinstance(input.data, torch.cuda.FloatTensor)")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_dcgan_tutorial(question: str, target: str) -> None:
    after = migrated(DCGAN.replace("QUESTION", question), target)
    assert after.count("output = self.main(input)") == 2
    assert "data_parallel" not in after


@pytest.mark.parametrize("where", ["torch_tpu", "portable"])
def test_several_gpus_stay_where_a_program_may_run_on_them(where: str) -> None:
    options = {"portable": True} if where == "portable" else {}
    target = "torchax" if where == "portable" else where
    text = DCGAN.replace("QUESTION", "input.is_cuda")
    result = run(text, target, **options)
    assert result.source.decode() == text
    assert {d.outcome for d in constructs(result)} == {Outcome.KEPT}


IN_FULL = {
    "(net, x)": "net({x})",
    "(net, x, [0, 1])": "net({x})",
    "(net, x, device_ids=ids, output_device=0)": "net({x})",
    "(module=net, inputs=x, device_ids=ids)": "net({x})",
    "(net, (x, y), [0, 1])": "net({x}, y.to({d}))",
    "(net, (x,), [0, 1])": "net({x})",
    "(net, x, [0, 1], module_kwargs={'scale': 2})": "net({x}, scale=2)",
    "(a if b else c, x, ids)": "(a if b else c)({x})",
    "(net, x + 1, ids)": "net((x + 1).to({d}))",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("given", IN_FULL)
def test_the_batch_goes_through_the_model_on_the_device(given: str, target: str) -> None:
    text = f"import torch\nfrom torch.nn.parallel import data_parallel\nx = torch.ones(2)\n" \
           f"y = torch.ones(2)\nz = data_parallel{given}\n"  # fmt: skip
    device = f'"{DEVICE[target]}"'
    expected = IN_FULL[given].format(x=f"x.to({device})", d=device)
    assert f"z = {expected}\n" in migrated(text, target).replace("'", '"')


# What may be a tuple, or is given as something else than a call shows.
UNKNOWN = (
    f"def f(net, x):\n    return {CALL}(net, x, [0, 1])\n",
    f"def f(net, *x):\n    return {CALL}(net, x, [0, 1])\n",
    f"def f(net, x):\n    return {CALL}(net, x.size(0) and x, [0, 1], None, 0, kwargs)\n",
    f"def f(*given):\n    return {CALL}(*given)\n",
    f"run = {CALL}\n",
)


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_known_is_reported(text: str, target: str) -> None:
    source = f"import torch\nfrom torch import nn\n\n\n{dedent(text)}"
    result = run(source, target)
    assert result.source.decode() == source
    (found,) = constructs(result)
    assert found.outcome is Outcome.REPORTED


@pytest.mark.parametrize("target", TARGETS)
def test_a_question_in_front_of_what_is_reported_stays(target: str) -> None:
    text = (
        "import torch\nfrom torch import nn\n\n\ndef f(net, x, ids):\n    if x[0].is_cuda:\n"
        f"        return {CALL}(net, x, ids)\n    return net(*x)\n"
    )
    assert run(text, target).source.decode() == text


BY_HAND = """
import torch
from torch import nn
from torch.nn.parallel.replicate import replicate
from torch.nn.parallel.scatter_gather import gather, scatter

model, ids = nn.Linear(4, 2).cuda(), [0, 1]
replicas = replicate(model, ids)
parts = scatter(torch.randn(8, 4).cuda(), ids)
y = gather(nn.parallel.parallel_apply(replicas, parts), 0)
"""
RANKS = """
import torch.distributed as dist
if __name__ == '__main__':
    dist.init_process_group('nccl')
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("start", ["", RANKS], ids=["alone", "ranks"])
def test_what_data_parallel_does_by_hand_is_reported(start: str, target: str) -> None:
    """No process group does it, and none is needed."""
    result = run(start + BY_HAND, target)
    reported = [d for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert [d.construct.rpartition(".")[2] for d in reported] == [
        "replicate", "scatter", "gather", "parallel_apply"
    ]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_a_class_that_is_only_asked_for_adds_nothing_up(target: str) -> None:
    """RT-DETR's is_parallel(), in a file that computes with a number of ranks elsewhere."""
    source = """import torch
from torch import nn


def is_parallel(model):
    return type(model) in (nn.parallel.DataParallel, nn.parallel.DistributedDataParallel)


def mean(values, world_size):
    return values / world_size
"""
    result = run(source, target)
    assert b"(tpu_runtime.DataParallel, nn.parallel.DistributedDataParallel)" in result.source
    assert not reported(result)
