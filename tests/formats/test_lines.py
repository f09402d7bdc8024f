"""Shell scripts, Dockerfiles and requirements: lines that speak of GPUs, and no other one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import constructs, run

from migrator import migrate_paths
from migrator.diagnostics import Outcome, Severity
from migrator.files.discover import discover
from migrator.formats.embedded import CONSTRAINT, REQUIREMENT
from migrator.formats.kinds import kind

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
    text = "FROM nvidia/cuda:12.1.0-runtime\nRUN pip install torch && rm -r /tmp/x\n"
    result = run(text, "torch_xla", path="Dockerfile")
    assert result.source.decode().splitlines() == [
        "FROM nvidia/cuda:12.1.0-runtime",
        "RUN pip install torch==2.9.0 'torch_xla[tpu]==2.9.0' && rm -r /tmp/x",
    ]
    assert [d.outcome for d in constructs(result)] == [Outcome.REPORTED, Outcome.REWRITTEN]


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
    (tmp_path / "b.py").write_text("import torch\nprint(torch.ones(2).cuda())\n")
    changed = {f.path.name for f in migrate_paths([tmp_path]).changed}
    assert changed == {"b.py", "requirements.txt", "a.yaml"}
    named = migrate_paths([tmp_path / "requirements.txt"])
    assert len(named.changed) == 1


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
        ("devices: [0, 1]", "speaks of GPUs"),
        ("  NUM_GPUS: 8", "speaks of GPUs"),
        ("gpus: -1", "speaks of GPUs"),
        ("distributed_type: MULTI_GPU", "speaks of GPUs"),
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
    assert (kind(Path(name)) in (REQUIREMENT, CONSTRAINT)) is is_one


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


CPU = "https://download.pytorch.org/whl/cpu"
CU117 = "https://download.pytorch.org/whl/cu117"


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (f"pip install -r r.txt --extra-index-url {CU117}",
         f"pip install -r r.txt --extra-index-url {CPU}"),
        (f"pip install numpy --extra-index-url={CU117}",
         f"pip install numpy --extra-index-url {CPU}"),
        (f"pip install numpy -f{CU117}/torch_stable.html",
         f"pip install numpy --extra-index-url {CPU}"),
        ("pip install torchvision==0.1 && echo done torch # torch",
         "pip install torchvision==0.24.0 && echo done torch # torch"),
        ("cd torch && pip install torchvision", "cd torch && pip install torchvision==0.24.0"),
        ("pip install torchvision -t torch", "pip install torchvision==0.24.0 -t torch"),
        ("FOO=1 pip install torchvision", "FOO=1 pip install torchvision==0.24.0"),
        ("(pip install torchvision)", "(pip install torchvision==0.24.0)"),
        ("x=$(pip install torchvision)", "x=$(pip install torchvision==0.24.0)"),
        ("uv pip install torchvision==0.1 --torch-backend=cu121",
         "uv pip install torchvision==0.24.0 --torch-backend=cpu"),
        (f"uv add torchvision --index pytorch={CU117}",
         f"uv add torchvision==0.24.0 --index pytorch={CPU}"),
        ("poetry add --group dev torchvision@^0.1", "poetry add --group dev torchvision==0.24.0"),
        ("pdm add torchvision", "pdm add torchvision==0.24.0"),
        ("pipenv install torchvision", "pipenv install torchvision==0.24.0"),
        ("poetry add torchvision --source torch-cu118", None),
        ("conda create -n x python=3.8 pytorch pytorch-cuda=12.1 -c pytorch -c nvidia", None),
        ("mamba install pytorch", None),
        ("pip install --pre torch -i https://download.pytorch.org/whl/nightly/cu121", None),
        ("pip install git+https://github.com/facebookresearch/xformers.git@main", None),
        ("pip install -e git+https://github.com/NVIDIA/apex#egg=apex", None),
        ("git clone https://github.com/NVIDIA/apex", None),
        ('pip install "numpy<2"', None),
        ("pip install torch numpy==1.23", None),
        ("pip install intel-extension-for-pytorch", None),
        ('pip install "jax[cuda12]==0.4.8" flax', None),
        ("pip install torch==$V torchvision", None),
        ("pip install https://download.pytorch.org/whl/cu117/torch-1.13.whl", None),
        ("pip uninstall torch", None),
        ("(python x.py --device cuda)", "(python x.py --device jax)"),
        ('CMD ["python","a.py","--device=cuda"]', 'CMD ["python","a.py","--device=jax"]'),
        ("python x.py --device=cuda:$LOCAL_RANK", None),
        ("torchrun --nproc_per_node=4 t.py --device cuda",
         "torchrun --nproc_per_node=4 t.py --device jax"),
        ("n=$(nvidia-smi -L | wc -l)", None),
        ("pip install torch-scatter -f https://example.org/torch-1.7+${CUDA}.html", None),
        ("a && \\\n  # by pip\n  pip install torchvision",
         "a && \\\n  # by pip\n  pip install torchvision==0.24.0"),
        ("cuda:0", None),
    ],
)  # fmt: skip
def test_commands_are_read_as_a_shell_does(line: str, after: str | None) -> None:
    result = run(f"set -e\n{line}\n", path="a.sh")
    assert not result.failed
    assert result.source.decode() == f"set -e\n{after or line}\n"
    if after is None and "uninstall" not in line and line != "cuda:0":
        assert [d.outcome for d in constructs(result)] == [Outcome.REPORTED]


@pytest.mark.parametrize(
    "text",
    [
        "torch==1.10.0+cu113 -f https://download.pytorch.org/whl/cu113/torch_stable.html",
        "torch==1.13.1 \\\n    --hash=sha256:00",
        'torch==1.13; sys_platform == "linux"\ntorch==1.12; sys_platform == "darwin"',
        "spconv-cu117",
        "git+https://github.com/Dao-AILab/flash-attention",
        "-e git+https://github.com/NVIDIA/apex.git#egg=apex",
        "xformers @ git+https://github.com/facebookresearch/xformers.git@main",
        "https://example.org/v2/flash_attn-2.5.8+cu122torch2.3-cp310-cp310-linux_x86_64.whl",
        "git+https://github.com/pytorch/vision.git@v0.15",
        "-f https://data.pyg.org/whl/torch-2.0.0+cu118.html",
        "--extra-index-url https://pypi.nvidia.com",
        "-f https://pytorch-extension.intel.com/release-whl/stable/xpu/us/",
        "intel_extension_for_pytorch==2.1",
        "torch-npu",
        "torch_directml>=0.2",
        "optimum[onnxruntime-gpu]",
        "jax[cuda12]",
        "numpy<2",
    ],
)
def test_requirements_that_a_person_has_to_look_at_are_named(text: str) -> None:
    result = run(f"{text}\n", path="requirements.txt")
    assert not result.changed
    assert {d.outcome for d in constructs(result)} == {Outcome.REPORTED}


@pytest.mark.parametrize(
    "header",
    [
        "# This file was autogenerated by uv via the following command:\n#    uv export\n-e .\n",
        "#\n# This file is autogenerated by pip-compile with Python 3.11\n#\n",
    ],
)
@pytest.mark.parametrize("path", ["requirements.txt", "constraints.txt"])
def test_a_compiled_list_is_made_again(header: str, path: str) -> None:
    """Its other pins fit the torch that it has, and no other."""
    beside = "numpy==1.24.4\nnvidia-nccl-cu12==2.20.5 ; sys_platform == 'linux'\n  # via torch\n"
    text = f"{header}{beside}torch==2.4.1 \\\n    --hash=sha256:0\n"
    result = run(text, path=path)
    assert not result.changed
    (found,) = result.diagnostics
    assert (found.code, found.outcome, found.range.line) == ("REQ001", "reported", 1)
    assert "compile it again" in found.message and "torch==2.9.0" in found.message
    (right,) = run(text.replace("2.4.1", "2.9.0"), path=path).diagnostics
    assert right.outcome == "kept"
    (other,) = run(header + beside, path=path).diagnostics
    assert other.outcome == "kept"


def test_an_index_of_torch_alone_does_not_stay_the_only_one() -> None:
    text = f"pip install torch --index-url {CPU}\n"
    after = f"pip install torch==2.9.0 'torch_xla[tpu]==2.9.0' --extra-index-url {CPU}\n"
    assert run(text, "torch_xla", path="a.sh").source.decode() == after
    text, after = (t.replace("pip install ", "").replace(" --", "\n--") for t in (text, after))
    after = after.replace(" ", "\n", 1).replace("'", "")
    assert run(text, "torch_xla", path="requirements.txt").source.decode() == after


def test_what_is_not_text_is_one_line() -> None:
    result = run(b"\xff\xfe --device cuda", path="a.sh")
    assert result.failed and result.source == b"\xff\xfe --device cuda"
    assert "can not be decoded" in result.diagnostics[0].message


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("RUN apt-get update && \\\n    pip install torch", True),
        ("RUN pip --no-cache-dir install torch", True),
        ("RUN /opt/conda/bin/pip install torch==1.9 && rm -r x", True),
        ("RUN if true; then pip install torch; fi", True),
        ('RUN echo "pip install torch"', False),
        ("RUN pip install -r torch.txt", False),
    ],
)
def test_torch_by_pip_however_it_is_written(line: str, changes: bool) -> None:
    text = run(f"FROM python:3.11\n{line}\n", "torch_xla", "Dockerfile").source.decode()
    wanted = "torch==2.9.0 'torch_xla[tpu]==2.9.0'"
    changed = line.replace("torch==1.9", "torch").replace("install torch", f"install {wanted}")
    assert text == f"FROM python:3.11\n{changed if changes else line}\n"


def test_commands_that_a_program_starts_are_named() -> None:
    source = (
        "import os\nimport subprocess\n"
        'free = subprocess.check_output(["nvidia-smi", "--query-gpu=memory.free"])\n'
        'os.popen("nvidia-smi -L").read()\n'
        'subprocess.run("python t.py --device cuda", shell=True)\n'
        'subprocess.run(["ls", folder])\nsubprocess.call(command)\n'
    )
    result = run(source)
    assert result.source.decode() == source
    assert [d.range.line for d in constructs(result)] == [3, 4, 5]
    assert {d.outcome for d in constructs(result)} == {Outcome.REPORTED}


# ---- torch_xla brings libtpu by an extra ---------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch-xla[tpu]~=2.1", "torch_xla[tpu]==2.9.0"),
        ("torch_xla", "torch_xla[tpu]==2.9.0"),
        ("torch_xla[pallas]==2.6  # kernels", "torch_xla[pallas,tpu]==2.9.0  # kernels"),
        ("torch-xla[tpu]==2.9.0", "torch-xla[tpu]==2.9.0"),
    ],
)
def test_an_entry_of_torch_xla_gets_the_extra(before: str, after: str) -> None:
    text = run(f"torch\n{before}\n", "torch_xla", path="requirements.txt").source.decode()
    assert text == f"torch==2.9.0\n{after}\n"
    assert not run(text, "torch_xla", path="requirements.txt").changed


def test_a_constraint_has_no_extras() -> None:
    text = "torch==2.1\ntorch_xla[tpu]==2.1\nnumpy\n"
    result = run(text, "torch_xla", path="constraints.txt")
    assert result.source.decode() == "torch==2.9.0\ntorch_xla==2.9.0\nnumpy\n"
    for each in (result, run(result.source, "torch_xla", path="constraints.txt")):
        (advice,) = [d.message for d in each.diagnostics if d.severity is Severity.ADVICE]
        assert "has to ask for torch_xla[tpu]==2.9.0" in advice


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("requirements.txt", "torch\n", False),
        ("pyproject.toml", '[project]\ndependencies = ["torch"]\n', False),
        ("requirements.txt", "torchmetrics\n-f https://download.pytorch.org/whl/cpu\n", True),
        ("constraints-dev.txt", "torch\n", True),
    ],
)
def test_a_constraint_is_named_where_nothing_installs_what_it_means(
    tmp_path: Path, file: str, text: str, named: bool
) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = torch.ones(2).cuda()\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/constraints.txt").write_text("torch==2.1\n")
    (tmp_path / file).write_text(text)
    report = migrate_paths([tmp_path], target="torch_xla")
    advised = {path.name for path, d in report.advice if "extras" in d.message}
    assert ("constraints.txt" in advised) is named
    assert (tmp_path / "sub/constraints.txt") in {each.path for each in report.changed}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('pip install "torch_xla[tpu]~=2.1"', 'pip install "torch_xla[tpu]==2.9.0"'),
        ("pip install torch_xla[tpu]~=2.1", "pip install 'torch_xla[tpu]==2.9.0'"),
        ("pip install torch_xla[tpu]==2.9.0", "pip install torch_xla[tpu]==2.9.0"),
        ("pip install 'torch_xla[pallas]'", "pip install 'torch_xla[pallas,tpu]==2.9.0'"),
        ("uv add torch", "uv add torch==2.9.0 'torch_xla[tpu]==2.9.0'"),
    ],
)
@pytest.mark.parametrize(
    ("path", "line"), [("a.sh", "{}"), ("Dockerfile", "RUN {}"), ("a.yml", "- run: {}")]
)
def test_brackets_are_quoted_for_shells(path: str, line: str, before: str, after: str) -> None:
    result = run(f"{line.format(before)}\n", "torch_xla", path=path)
    assert result.source.decode() == f"{line.format(after)}\n"
    assert not run(result.source, "torch_xla", path=path).changed


@pytest.mark.parametrize(("outer", "inner"), ["\"'", "'\""])
def test_quotes_fit_into_those_around_a_command(outer: str, inner: str) -> None:
    after = f"{outer}pip install torch==2.9.0 {inner}torch_xla[tpu]==2.9.0{inner}{outer}"
    before = f"{outer}pip install torch{outer}"
    for path, start in (("a.py", "import os\nos.system({})  # cuda\n"),
                        ("pyproject.toml", "[tool.pdm.scripts]\na = {}\n")):  # fmt: skip
        result = run(start.format(before), "torch_xla", path=path)
        assert result.source.decode() == start.format(after)
        assert not run(result.source, "torch_xla", path=path).changed


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("python train.py --fp16", True),
        ("python train.py --tf32 True --fp16 False", True),
        ("python train.py --mixed_precision=fp16", True),
        ("ACCELERATE_MIXED_PRECISION=fp16 python train.py", True),
        ("python train.py --fp16 False --bf16", False),
        ("python train.py --fp16-opt-level O1 --no-fp16", False),
    ],
)
def test_half_precision_of_a_command_is_told(line: str, is_told: bool) -> None:
    found = [d.message for d in constructs(run(f"{line}\n", path="a.sh"))]
    assert len(found) == is_told and all("bf16" in message for message in found)


def test_a_command_that_its_quotes_can_not_hold_is_told() -> None:
    source = (
        'import os  # cuda\nos.system("""pip install torch""")\n'
        'os.system("pip install \\"torch_xla\\"")\n'
    )
    result = run(source, "torch_xla")
    assert not result.changed
    assert [d.range.line for d in constructs(result)] == [2, 3]
    assert all("torch_xla[tpu]==2.9.0" in d.message for d in constructs(result))


@pytest.mark.parametrize(
    ("target", "text", "line", "message"),
    [
        ("torch_xla", "torch\nlibtpu==0.0.19\n", "libtpu==0.0.19", "torch_xla[tpu]==2.9.0 brings"),
        ("torch_xla", "torch_xla\nlibtpu-nightly\n", "libtpu-nightly", "leave it out"),
        ("torchax", "torch\nlibtpu-nightly\n", "libtpu-nightly", "takes libtpu==0.0.52"),
        ("torchax", "torch\ntorch_xla[tpu]~=2.1\n", "torch_xla[tpu]~=2.1", "overwrites torchax"),
    ],
)
def test_packages_that_clash_with_the_targets_are_named(
    target: str, text: str, line: str, message: str
) -> None:
    for path, said in (
        ("requirements.txt", text),
        ("a.sh", f"pip install {' '.join(text.split())}\n"),
    ):
        result = run(said, target, path=path)
        (left,) = [d for d in constructs(result) if d.outcome is Outcome.REPORTED]
        assert message in left.message and line in left.construct


def test_a_libtpu_that_no_torch_stands_beside_is_of_another_program() -> None:
    (found,) = constructs(run("libtpu==0.0.19\n", "torch_xla", path="requirements.txt"))
    assert found.outcome is Outcome.KEPT


# ---- a line that says several things of GPUs -----------------------------------------------------

REWRITTEN, KEPT, REPORTED = Outcome.REWRITTEN, Outcome.KEPT, Outcome.REPORTED


@pytest.mark.parametrize(
    ("line", "after", "outcomes"),
    [
        ("pip install torchvision && python x.py --device cuda",
         "pip install torchvision==0.24.0 && python x.py --device xla", [REWRITTEN, REWRITTEN]),
        ("pip install torchvision && python x.py --backend nccl",
         "pip install torchvision==0.24.0 && python x.py --backend nccl", [REPORTED, REWRITTEN]),
        ("python t.py --device cuda --device-map cuda --log_device=cuda:0",
         "python t.py --device xla --device-map cuda --log_device=cuda:0", [REPORTED, REWRITTEN]),
        ('python t.py --device "cuda:1" --backend nccl',
         'python t.py --device "xla" --backend nccl', [REPORTED, REWRITTEN]),
        ("nvidia-smi; python t.py --device=cuda", "nvidia-smi; python t.py --device=xla",
         [REPORTED, REWRITTEN]),
        ("NCCL_DEBUG=INFO python t.py --backend nccl", None, [REPORTED]),
        ("torchrun t.py --device cuda --backend nccl",
         "torchrun t.py --device xla --backend nccl", [REPORTED, REWRITTEN]),
        ("torchrun t.py --backend nccl", None, [KEPT, REPORTED]),
        ('if ! nvidia-smi; then echo "no cuda"; fi', None, [REPORTED]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("path", "start"), [("a.sh", ""), ("Dockerfile", "RUN ")])
def test_each_part_of_a_command_is_decided(
    path: str, start: str, line: str, after: str | None, outcomes: list[Outcome]
) -> None:
    result = run(f"{start}{line}\n", "torch_xla", path=path)
    assert result.source.decode() == f"{start}{after or line}\n"
    assert sorted(str(d.outcome) for d in constructs(result)) == sorted(map(str, outcomes))
    assert run(result.source, "torch_xla", path=path).source == result.source


def test_each_part_of_a_programs_command_is_decided() -> None:
    source = 'import os\nos.system("nvidia-smi && python x.py --device cuda --backend nccl")\n'
    result = run(source)
    assert result.source.decode() == source.replace("--device cuda", "--device jax")
    assert [d.outcome for d in constructs(result)].count(REPORTED) == 2


@pytest.mark.parametrize(
    ("path", "line", "left"),
    [
        ("a.yml", 'train: {device: cuda, map_location: "cuda:0", gpus: 4}', 1),
        ("a.yml", "train: {device: cuda, backend: nccl, devices: [0, 1]}", 2),
        ("config.json", '{"device": "cuda", "devices": ["cuda:0"]}', 1),
        ("config.json", '{"device": "cuda", "cmd": "python t.py --device cuda"}', 1),
        ("config.json", '{"device": "cuda", "accelerator": "gpu"}', 1),
        ("config.json", '{"device": "cuda", "lr": 0.1}', 0),
    ],
)
def test_each_setting_of_a_line_is_decided(path: str, line: str, left: int) -> None:
    result = run(f"{line}\n", path=path)
    after = line.replace("device: cuda", "device: jax").replace(
        '"device": "cuda"', '"device": "jax"'
    )
    assert result.source.decode() == f"{after}\n"
    found = [d.outcome for d in constructs(result)]
    assert (found.count(REWRITTEN), found.count(REPORTED)) == (1, left)
    kept = constructs(run(f"{line}\n", path=path, portable=True))
    assert [d.outcome for d in kept] == [REPORTED] * (left + 1)


@pytest.mark.parametrize("asked", ["torch[opt]", "torch[opt]>=2.1"])
def test_extras_of_torch_stay(asked: str) -> None:
    result = run(f"pip install '{asked}'\n", "torch_xla", path="a.sh")
    assert result.source == b"pip install 'torch[opt]==2.9.0' 'torch_xla[tpu]==2.9.0'\n"
    result = run(f"{asked}\n", "torch_xla", path="requirements.txt")
    assert result.source == b"torch[opt]==2.9.0\ntorch_xla[tpu]==2.9.0\n"
    for path, text in (("a.sh", "pip install 'torch[opt]==2.9.0' 'torch_xla[tpu]==2.9.0'\n"),
                       ("requirements.txt", result.source.decode())):  # fmt: skip
        assert not run(text, "torch_xla", path=path).changed


def test_extras_that_choose_a_device_go() -> None:
    result = run("torch\njax[cuda12]\n", path="requirements.txt")
    assert b"\njax==0.10.2\n" in result.source


# ---- CUDA_VISIBLE_DEVICES ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "line", "hides"),
    [
        ("a.sh", 'CUDA_VISIBLE_DEVICES="" python eval.py', True),
        ("a.sh", "CUDA_VISIBLE_DEVICES= python eval.py", True),
        ("a.sh", "CUDA_VISIBLE_DEVICES=-1 python eval.py --x", True),
        ("a.sh", "export CUDA_VISIBLE_DEVICES='-1'  # the CPU", True),
        ("a.sh", "export CUDA_VISIBLE_DEVICES=", True),
        ("a.sh", "CUDA_VISIBLE_DEVICES=0,1 python train.py", False),
        ("a.sh", 'CUDA_VISIBLE_DEVICES="0" python train.py -1', False),
        ("a.sh", "CUDA_VISIBLE_DEVICES=$GPU python train.py", False),
        ("Dockerfile", 'ENV CUDA_VISIBLE_DEVICES=""', True),
        ("Dockerfile", "ENV CUDA_VISIBLE_DEVICES -1", True),
        ("Dockerfile", "ENV CUDA_VISIBLE_DEVICES 0", False),
        ("a.yml", '  CUDA_VISIBLE_DEVICES: ""', True),
        ("a.yml", "  CUDA_VISIBLE_DEVICES: -1  # the CPU", True),
        ("a.yml", "env: {CUDA_VISIBLE_DEVICES: '', A: 1}", True),
        ("a.yml", "  - CUDA_VISIBLE_DEVICES=-1", True),
        ("a.yml", '  CUDA_VISIBLE_DEVICES: "0"', False),
        ("a.yml", "  - CUDA_VISIBLE_DEVICES=0,1", False),
        ("a.yml", '- run: CUDA_VISIBLE_DEVICES="" python eval.py', True),
        ("config.json", '{"CUDA_VISIBLE_DEVICES": ""}', True),
    ],
)
def test_all_gpus_are_hidden_as_in_python(path: str, line: str, hides: bool) -> None:
    (found,) = constructs(run(f"{line}\n", path=path))
    assert found.outcome is (REPORTED if hides else KEPT)
    assert ("hides all GPUs" in found.message) is hides


def test_what_is_hidden_is_told_beside_a_rewrite() -> None:
    result = run('CUDA_VISIBLE_DEVICES="" python eval.py --device cuda\n', path="a.sh")
    assert [d.outcome for d in constructs(result)].count(REPORTED) == 1 and result.changed


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ('os.environ.update({"CUDA_VISIBLE_DEVICES": ""})', REPORTED),
        ('os.environ.update({"A": "", "CUDA_VISIBLE_DEVICES": "0"})', KEPT),
        ('os.environ.update(CUDA_VISIBLE_DEVICES="-1")', REPORTED),
        ('os.environ |= {"CUDA_VISIBLE_DEVICES": "-1"}', REPORTED),
        ('env = dict(os.environ, CUDA_VISIBLE_DEVICES="")', REPORTED),
        ("env = dict(os.environ, CUDA_VISIBLE_DEVICES=str(gpu))", KEPT),
        ('env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}', REPORTED),
        ('os.putenv("CUDA_VISIBLE_DEVICES", "-1")', REPORTED),
        ('os.putenv("CUDA_VISIBLE_DEVICES", "1")', KEPT),
        ('os.unsetenv("CUDA_VISIBLE_DEVICES")', KEPT),
        ('seen = "CUDA_VISIBLE_DEVICES" in os.environ', REPORTED),
        ('seen = "CUDA_VISIBLE_DEVICES" not in os.environ', REPORTED),
    ],
)
def test_the_variable_however_it_is_written(code: str, outcome: Outcome) -> None:
    (found,) = constructs(run(f"import os\nimport torch\n{code}\n"))
    assert (found.code, found.outcome, found.range.line) == ("CUD007", outcome, 3)


@pytest.mark.parametrize(
    ("lines", "outcomes"),
    [
        ("setenv =\n    A = 1\n    CUDA_VISIBLE_DEVICES =", [REPORTED]),
        ("set_env = CUDA_VISIBLE_DEVICES = -1", [REPORTED]),
        ("setenv =\n    CUDA_VISIBLE_DEVICES = 0", [KEPT]),
        ("passenv =\n    HOME\n    CUDA_VISIBLE_DEVICES", [KEPT]),
        ("pass_env = HOME", []),
    ],
)
def test_the_variable_in_tox(lines: str, outcomes: list[Outcome]) -> None:
    text = f"[testenv]\ndeps = pytest\n{lines}\n"
    result = run(text, path="tox.ini")
    assert not result.changed and [d.outcome for d in constructs(result)] == outcomes


# ---- texts in YAML -------------------------------------------------------------------------------

TEXTS = """notes: |
  To train, say

  device: cuda
  and wait.
  - device: cuda
device: cuda
runs:
  - about: >-  # folded
      device: cuda
    device: cuda
  - run: |
      python t.py --device cuda
data:
  train.yaml: |
    device: cuda
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_text_is_not_rewritten_as_settings(end: str) -> None:
    result = run(TEXTS.replace("\n", end), path="a.yml")
    before, after = TEXTS.splitlines(), result.source.decode().replace(end, "\n").splitlines()
    changed = [n for n, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b]
    assert changed == [7, 11, 13, 16]
    left = [d.range.line for d in constructs(result) if d.outcome is REPORTED]
    assert left == [4, 6, 10]
