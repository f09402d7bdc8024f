"""FRW004: what asks Ray for GPUs."""

from __future__ import annotations

import pytest
from helpers import constructs, run

HEAD = "import ray\nimport ray.train\nfrom ray import tune\n"


def said(line: str) -> list[str]:
    return [found.message for found in constructs(run(f"{HEAD}{line}\n", entry=False))]


@pytest.mark.parametrize("line", [
    "ray.init(num_gpus=4)",
    "@ray.remote(num_gpus=0.5)\ndef f(x):\n    return x",
    "actor = Actor.options(num_gpus=per_worker).remote()",
    "ray.train.ScalingConfig(num_workers=2, use_gpu=True)",
    "tune.with_resources(f, {'cpu': 2, 'gpu': 1})",
    "tune.run(f, resources_per_trial={'GPU': count})",
])  # fmt: skip
def test_a_request_for_gpus_is_reported(line: str) -> None:
    (message,) = said(line)
    assert "waits for ever" in message and ("TPU" in message or "use_tpu" in message)


@pytest.mark.parametrize("line", [
    "ray.init(num_cpus=4)", "ray.init(num_gpus=0)", "f(num_gpus=4)", "build(use_gpu=True)",
    "ray.train.ScalingConfig(num_workers=2, use_gpu=False)",
    "tune.run(f, resources_per_trial={'cpu': 4, 'gpu': 0})", "options(num_gpus=1)",
])  # fmt: skip
def test_nothing_else_is(line: str) -> None:
    assert said(line) == []
