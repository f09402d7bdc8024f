"""Commands: as a shell reads them, and as programs start them."""

from __future__ import annotations

import pytest
from helpers import constructs, run

from migrator.diagnostics import Outcome
from tests.formats.indexes import CPU

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
        ("pip uninstall -y triton && git clone ${A}", None),
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
    assert "cannot be decoded" in result.diagnostics[0].message


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
