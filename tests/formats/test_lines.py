"""Shell scripts, Dockerfiles and requirements: lines that speak of GPUs, and no other one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import constructs, run

from migrator import migrate_paths
from migrator.analysis.gpu_text_patterns import has_settings
from migrator.diagnostics import Outcome
from migrator.files.discover import discover
from migrator.formats import documents
from migrator.formats.embedded_text import CONSTRAINT, REQUIREMENT
from migrator.formats.file_kinds import line_kind
from migrator.frameworks import find_framework
from tests.formats.indexes import CPU

LAUNCH = """#!/bin/bash
# trains on cuda
#SBATCH --gres=gpu:4
set -e\t
export NCCL_DEBUG=INFO
pip install torch==1.13.1+cu117 torchvision \\
    --extra-index-url https://download.pytorch.org/whl/cu117
CUDA_VISIBLE_DEVICES=0,1 python train.py \\
  --device cuda:0 --lr 0.1   # cuda
echo "cudart is a word"
torchrun --nproc_per_node=2 ddp.py
nvidia-smi
"""


def test_a_launcher() -> None:
    result = run(LAUNCH, path="scripts/launch.sh")
    before, after = LAUNCH.splitlines(), result.source.decode().splitlines()
    assert {a for a, b in zip(before, after, strict=True) if a != b} == {
        before[5], before[6], before[8], before[11],
    }  # fmt: skip
    more = "torchax==0.0.13 jax==0.10.2 jaxlib==0.10.2 libtpu==0.0.52 torchvision==0.24.0"
    assert after[5:7] == [
        f"pip install torch==2.9.0 {more} \\",
        "    --extra-index-url https://download.pytorch.org/whl/cpu",
    ]
    assert after[8] == "  --device jax --lr 0.1   # cuda"
    assert after[11] == "tpu-info"
    found = {str(d.range): (str(d.outcome), d.construct) for d in constructs(result)}
    assert found["3:1"] == ("reported", "#SBATCH --gres=gpu:4")
    assert found["5:1"] == ("kept", "export NCCL_DEBUG=INFO")
    assert found["11:1"] == ("kept", "torchrun --nproc_per_node=2 ddp.py")
    assert set(found) == {"3:1", "5:1", "6:1", "8:1", "11:1", "12:1"}


def test_processes_for_each_device_stay_on_torch_xla() -> None:
    (found,) = constructs(run("torchrun --nproc_per_node=2 x.py\n", "torch_xla", path="a.sh"))
    assert found.outcome is Outcome.KEPT


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_and_encoding_stay(end: str, last: bool) -> None:
    text = end.join(["# für", "python x.py --device=cuda", "true"]) + end * last
    result = run(text.encode(), path="a.sh")
    assert result.source == text.replace("cuda", "jax").encode()
    assert run(result.source, path="a.sh").source == result.source


def test_a_dockerfile() -> None:
    """What is installed on an image for CUDA goes with the image, which is reported."""
    text = "FROM {}\nRUN pip install torch && rm -r /tmp/x\n"
    result = run(text.format("python:3.11"), "torch_xla", path="Dockerfile")
    assert result.source.decode().splitlines() == [
        "FROM python:3.11",
        "RUN pip install torch==2.9.0 'torch_xla[tpu]==2.9.0' && rm -r /tmp/x",
    ]
    left = run(text.format("nvidia/cuda:12.1.0-runtime"), "torch_xla", path="Dockerfile")
    assert left.source == left.original
    assert [d.outcome for d in constructs(left)] == [Outcome.REPORTED, Outcome.REPORTED]
    assert "RUN pip install torch==2.9.0 'torch_xla[tpu]==2.9.0'" in constructs(left)[1].message


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("torch", "torch==2.9.0\ntorch_xla[tpu]==2.9.0"),
        ("torch >= 1.7, < 2  # why", "torch==2.9.0\ntorch_xla[tpu]==2.9.0  # why"),
        ("torchvision==0.8.2+cu110", "torchvision==0.24.0"),
        ("torchaudio", "torchaudio==2.9.0"),
        ("--extra-index-url https://download.pytorch.org/whl/cu117", None),
        ("-f https://download.pytorch.org/whl/torch_stable.html", None),
        ("--index-url https://download.pytorch.org/whl/rocm5.6", None),
        ("torchmetrics>=0.7", "torchmetrics>=0.7"),
        (
            "torch @ https://example.org/torch-1.whl#sha256=abc",
            "torch==2.9.0\ntorch_xla[tpu]==2.9.0",
        ),
        ("nvidia-cublas-cu11==11.10.3.66", "nvidia-cublas-cu11==11.10.3.66"),
        ("# torch==1.7", "# torch==1.7"),
        ("-r requirements/torch.txt", "-r requirements/torch.txt"),
        ("git+https://github.com/pytorch/vision", "git+https://github.com/pytorch/vision"),
        (
            "https://download.pytorch.org/whl/cu118/torch-2.1.0%2Bcu118-cp310-cp310-linux_x86_64.whl",
            "torch==2.9.0\ntorch_xla[tpu]==2.9.0",
        ),
        ("./wheels/torchvision-0.15+cu118-cp310-cp310-linux_x86_64.whl", "torchvision==0.24.0"),
    ],
)
def test_requirements(line: str, after: str | None) -> None:
    result = run(f"numpy\n{line}\nscipy\n", "torch_xla", path="requirements.txt")
    cpu = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert result.source.decode() == f"numpy\n{after or cpu}\nscipy\n"
    assert run(result.source, "torch_xla", path="requirements.txt").source == result.source


def test_what_is_there_already_is_not_required_twice() -> None:
    text = "jax[tpu]==0.4.1\ntorch\ntorchax\nlibtpu\n"
    result = run(text, path="requirements-dev.txt")
    assert result.source.decode().splitlines() == [
        "jax==0.10.2", "torch==2.9.0", "jaxlib==0.10.2", "torchax==0.0.13", "libtpu==0.0.52",
    ]  # fmt: skip


def test_requirements_of_a_project_without_gpu_code_stay(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    (tmp_path / "a.yaml").write_text("device: cuda\n")
    (tmp_path / "a.py").write_text("import torch\nprint(torch.ones(2))\n")
    report = migrate_paths([tmp_path])
    assert not report.changed and not report.diagnostics(*Outcome)
    (tmp_path / "b.py").write_text("import torch\nimport yaml\nprint(torch.ones(2).cuda())\n")
    changed = {f.path.name for f in migrate_paths([tmp_path]).changed}
    assert changed == {"b.py", "requirements.txt", "a.yaml"}
    named = migrate_paths([tmp_path / "requirements.txt"])
    assert len(named.changed) == 1


def test_a_text_that_shows_an_import_is_not_a_program(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\n\nx = torch.ones(2).cuda()\n")
    (tmp_path / "report.yml").write_text(
        "- placeholder: |\n    import net\n    # ...\n"
        '  description: |\n    python -c "import torch; print(torch.cuda.is_available())"\n'
    )
    report = migrate_paths([tmp_path])
    assert not report.errors and not any(file.result.failed for file in report.files)
    assert {file.path.name for file in report.changed} == {"net.py"}


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("device: cuda", "device: jax"),
        ("  eval_device: 'cuda:1'  # cuda", "  eval_device: 'jax'  # cuda"),
        ("- device: cuda", "- device: jax"),
        ('{"a": 1, "device": "cuda", "b": 2}', '{"a": 1, "device": "jax", "b": 2}'),
        ("a: {device: cuda, n: 1}", "a: {device: jax, n: 1}"),
        ("device: cuda or cpu", None),
        ("# device: cuda", None),
        ("name: cuda_device", None),
        ('text: "the device: cuda"', None),
    ],
)
def test_settings(line: str, after: str | None) -> None:
    result = run(f"x: 1\n{line}\ny: für\n", path="conf/a.yaml")
    assert result.source.decode() == f"x: 1\n{after or line}\ny: für\n"


@pytest.mark.parametrize(
    "line", ["gpus: 4", "gpu_ids: [0, 1]", "accelerator: gpu", "backend: nccl", "use_cuda: true"]
)
def test_settings_that_a_person_has_to_look_at_are_named(line: str) -> None:
    result = run(f"{line}\n", path="a.yml")
    assert not result.changed and [d.construct for d in constructs(result)] == [line]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  accelerator: gpu", "Lightning"),
        ("accelerator: 'mps'  # a Mac", "Lightning"),
        ("backend: hccl", "`xla`"),
        ("dist: {backend: nccl}", "`xla`"),
        ("devices: [0, 1]", "mentions GPUs"),
        ("  NUM_GPUS: 8", "mentions GPUs"),
        ("gpus: -1", "mentions GPUs"),
        ("distributed_type: MULTI_GPU", "mentions GPUs"),
        ("distributed_type: DEEPSPEED", "shards over GPUs"),
        ("distributed_type: 'FSDP'", "shards over GPUs"),
        ("mixed_precision: fp16", "bf16"),
        ("train: {lr: 0.1, fp16: true}", "bf16"),
        ("env: {ACCELERATE_MIXED_PRECISION: fp16}", "bf16"),
    ],
)
def test_settings_are_named_with_what_takes_their_place(line: str, message: str) -> None:
    result = run(f"{line}\n", "torch_xla", path="a.yml")
    (found,) = constructs(result)
    assert not result.changed and found.code == "CFG001" and message in found.message


@pytest.mark.parametrize(
    "line",
    ["mixed_precision: bf16", "fp16: false", "accelerator: cpu", "accelerator: auto",
     "devices: auto", "platform: macos  # or gpu",
     "num_workers_per_gpu: 4", "batch_size_per_gpu: 12", "run_name: cuda_run",
     "description: pip install torch on cuda",
     "- cudart"],
)  # fmt: skip
def test_settings_that_say_nothing_of_the_device_are_not_named(line: str) -> None:
    assert not constructs(run(f"a: nccl_gpu\n{line}\n", path="a.yml"))


WORKFLOW = """name: ci  # pip install torch
on: [push]
jobs:
  test:
    env:
      WHERE: "pip install torch"
    steps:
      - name: pip install torch
        run: pip install torch --index-url https://download.pytorch.org/whl/cu121
      - run: |
          # pip install torch
          python -m pip install torchvision \\
            --upgrade

          (cd x && pip install torchaudio)
      - uses: x/y@v1
        with:
          args:
            device: cuda
      - run: >-
          python train.py
          --device cuda
      - run: pip install torch==${{ matrix.torch }}
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_workflow(end: str) -> None:
    result = run(WORKFLOW.replace("\n", end), "torch_xla", path=".github/workflows/ci.yml")
    assert result.source.decode().replace(end, "\n") == (
        WORKFLOW.replace("torch --index-url", "torch==2.9.0 'torch_xla[tpu]==2.9.0' --index-url")
        .replace(f"--index-url {CPU[:-3]}cu121", f"--extra-index-url {CPU}")
        .replace("torchvision", "torchvision==0.24.0")
        .replace("torchaudio", "torchaudio==2.9.0")
        .replace("device: cuda", "device: xla")
        .replace("--device cuda", "--device xla")
    )
    assert [d.construct for d in constructs(result) if d.outcome is Outcome.REPORTED] == [
        "- run: pip install torch==${{ matrix.torch }}"
    ]


COMPOSE = """services:
  a:
    command: python train.py --device cuda
  b:
    command: ["python", "train.py", "--device", "cuda:0", "--x"]
  c:
    command:
    - python
    - --device
    - cuda
    name: --device
  d:
    args:
      - "--device=cuda"
      - cuda
"""


def test_commands_in_yaml_and_json() -> None:
    after = COMPOSE.replace("--device cuda", "--device jax").replace("cuda:0", "jax")
    after = after.replace("- --device\n    - cuda", "- --device\n    - jax")
    assert run(COMPOSE, path="compose.yml").source.decode() == after.replace("=cuda", "=jax")
    text = '{\n "args": [\n  "--device",\n  "cuda",\n  "cuda"\n ],\n "cmd": "x --device cuda"\n}\n'
    assert run(text, path="config.json").source.decode() == text.replace(
        '"--device",\n  "cuda"', '"--device",\n  "jax"'
    ).replace("--device cuda", "--device jax")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("reqs.txt", True), ("dev-requirements.txt", True), ("requirements_gpu.in", True),
     ("constraints-cu118.txt", True), ("requirements/gpu.in", True), ("test_reqs.txt", True),
     ("prereqs.txt", False), ("requests.txt", False), ("torch.txt", False)],
)  # fmt: skip
def test_which_files_list_requirements(name: str, is_one: bool) -> None:
    assert (line_kind(Path(name)) in (REQUIREMENT, CONSTRAINT)) is is_one


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("a.json", False), ("train_config.json", True), ("configs/a.json", True), ("a.yml", True),
     ("annotations/instances.json", False), ("reconfigured.json", False)],
)  # fmt: skip
def test_which_files_are_configurations(path: str, is_one: bool, tmp_path: Path) -> None:
    file = tmp_path / "x" / path
    file.parent.mkdir(parents=True)
    file.write_text('{"device": "cuda"}\n')
    assert discover([tmp_path]).files == ([file] if is_one else [])
    assert migrate_paths([file]).changed  # it is named itself


def test_large_data_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.runs.worker.MAX_BYTES", 1000)
    (tmp_path / "config.json").write_text('{"device": "cuda"}\n' * 100)
    (tmp_path / "a.ipynb").write_text(
        json.dumps({"cells": [], "nbformat": 4, "metadata": {"picture": "cuda" * 1000}})
    )
    report = migrate_paths([tmp_path])
    assert report.exit_code == 0 and not report.changed


def test_data_is_no_configuration() -> None:
    assert not run('{"device": "cuda"}\n' * 10_000, path="config.json").changed


PINNED = "gcr.io/kaggle-gpu-images/python@sha256:0123"


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        ({"enable_gpu": "true", "docker_image": PINNED},
         {"enable_gpu": False, "docker_image": None}),
        ({"machine_shape": "NvidiaTeslaT4", "enable_tpu": False},
         {"machine_shape": "TpuV5E8", "enable_tpu": True}),
        ({"enable_tpu": True, "docker_image": PINNED}, {"enable_tpu": True, "docker_image": None}),
        ({"enable_gpu": False, "enable_tpu": False, "docker_image": PINNED}, None),
    ],
)  # fmt: skip
def test_a_kernel_of_kaggle_asks_for_a_tpu(
    asked: dict[str, object], after: dict[str, object] | None, tmp_path: Path
) -> None:
    """In lines of its own or in one; the pinned image would be started in place of a TPU's."""
    kernel = {"code_file": "a.py", "kernel_type": "script"}
    file = tmp_path / "kernel-metadata.json"
    (tmp_path / "a.py").write_text("import torch\nx = torch.ones(2).cuda()\n")
    for indent in (2, None):
        file.write_text(json.dumps({**kernel, **asked}, indent=indent))
        result = migrate_paths([tmp_path], "torch_xla").files[-1].result
        assert json.loads(result.source) == {**kernel, **(after or asked)}
        codes = {d.code for d in result.diagnostics if d.outcome is Outcome.REWRITTEN}
        assert codes == ({"CFG002"} if after else set())


def test_enable_gpu_in_other_files_is_reported() -> None:
    result = run('{"enable_gpu": true}', path="config.json")
    assert not result.changed and "mentions GPUs" in constructs(result)[0].message


def test_lines_that_say_nothing_are_comments() -> None:
    """Most lines of most configurations: nobody asks what such a line means."""
    text = b"name: gpu tests  # cuda\ndevice: cuda\nsteps:\n  - x"
    path, says = Path("a.yaml"), find_framework("torch").says
    holder = documents.read_document(path, text, says, has_settings)
    assert holder is not None
    *_, calls = [part.source.decode() for part in holder.parts]
    assert [line.partition("(")[0] for line in calls.splitlines()][1:] == [
        "__setting__", '# "steps:"', '# "  - x"',
    ]  # fmt: skip
    assert holder.with_sources([calls.replace(": cuda", ": tpu").encode()]) == text.replace(
        b"device: cuda", b"device: tpu"
    )
    assert documents.read_document(path, b"name: torch\nlr: 0.1\n", says, has_settings) is None
