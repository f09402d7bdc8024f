"""Lines that say several things: extras of torch_xla, variables of CUDA, texts in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, constructs, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome, Severity


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
        ("torch_xla", "torch_xla\nlibtpu-nightly\n", "libtpu-nightly", "remove it"),
        ("torchax", "torch\nlibtpu-nightly\n", "libtpu-nightly", "needs libtpu==0.0.52"),
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


@pytest.mark.parametrize(
    "code",
    [
        'import json\noptions = json.loads(\'{"device": "cuda:0", "steps": 4}\')\n',
        'import yaml\nTEXT = """\nsteps: 4\ndevice: cuda\n"""\noptions = yaml.safe_load(TEXT)\n',
        "from omegaconf import OmegaConf as O\noptions = O.create('train:\\n  accelerator: gpu')\n",
    ],
)
def test_a_configuration_in_the_code_is_named(code: str) -> None:
    (found,) = constructs(run(f"import torch\n{code}torch.zeros(options['steps'])\n"))
    assert (found.code, found.outcome) == ("CFG001", Outcome.REPORTED)


WORKFLOW = "jobs:\n  test:\n    runs-on: {}\n    steps:\n      - run: pip install torch\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("machine", "driver"), [("ubuntu-latest", False), ("[self-hosted]", True)])
def test_a_machine_of_githubs_gets_no_driver(
    tmp_path: Path, target: str, machine: str, driver: bool
) -> None:
    name = ".github/workflows/ci.yml"
    program = "import torch\nprint(torch.ones(2).cuda())\n"
    write_tree(tmp_path, {name: WORKFLOW.format(machine), "train.py": program})
    report = migrate_paths([tmp_path], target)
    (text,) = (f.result.source.decode() for f in report.files if f.path.name == "ci.yml")
    assert target in text and ("libtpu" in text or "[tpu]" in text) == driver
    write_tree(tmp_path, {name: text})
    assert not any(f.path.name == "ci.yml" for f in migrate_paths([tmp_path], target).changed)


def test_what_goes_with_an_image_for_cuda_stays_with_it(tmp_path: Path) -> None:
    """The image's Python may be too old for what the target needs."""
    docker = "FROM {}\nRUN pip install torch==2.1.0\n"
    program = "import torch\nprint(torch.ones(2).cuda())\n"
    for base, stays in (("nvidia/cuda:12.1.0-devel-ubuntu22.04", True), ("python:3.11", False)):
        files = {"Dockerfile": docker.format(base), "train.py": program}
        report = migrate_paths([write_tree(tmp_path / base[:3], files)])
        assert [f.path.name for f in report.changed if f.path.name == "Dockerfile"] == (
            [] if stays else ["Dockerfile"]
        )
