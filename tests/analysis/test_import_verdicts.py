"""Import verdicts: what is known of each module that a program imports, and who says it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers import cli, write_tree

from migrator.analysis.cuda_libraries import MODULES
from migrator.analysis.import_verdicts import Verdict, imports_of, known_modules, verdict_of
from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.files.discover import Disk
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS

SETUP = """
from setuptools import Extension, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

PACKAGE = "ours"


def make_cuda_ext(name, module, sources):
    return CUDAExtension(name=f"{module}.{name}", sources=sources)


setup(
    name=PACKAGE,
    ext_modules=[
        CUDAExtension("droid_kernels", ["src/a.cpp", "src/b.cu"]),
        CUDAExtension(f"{PACKAGE}._C", ["src/b.cu"]),
        make_cuda_ext(name="nms_ext", module="ours.ops", sources=["src/nms.cu"]),
        CppExtension("host_only", ["src/c.cpp"]),
        Extension("ours.boxes", ["ours/boxes.pyx"]),
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
PROJECT = {
    ".git/HEAD": "",
    ".gitmodules": '[submodule "x"]\n\tpath = third_party/knn-search\n\turl = https://x\n',
    "setup.py": SETUP,
    "ours/__init__.py": "from .version import __version__\nSPEED = 3\n",
    "ours/net.py": "",
    "ours/ops/__init__.py": "",
    "ours/ops/src/nms.cu": "",
    "ours/host/__init__.py": "",
    "ours/host/boxes.pyx": "",
    "plain/__init__.py": "",
}


def verdicts(root: Path, source: str, name: str = "ours/train.py") -> dict[str, Verdict]:
    path = write_tree(root, {**PROJECT, name: source}) / name
    project = ProjectFacts(path, root, disk := Disk(), ProjectCache(disk, DEVICE_CONSTRUCTS))
    return {module: verdict_of(module, project).verdict for module in source.split()}


EACH = {
    "os.path": Verdict.STANDARD, "__future__": Verdict.STANDARD,
    "numpy.linalg": Verdict.WORKS, "torch": Verdict.WORKS, "jax": Verdict.WORKS,
    "flash_attn.ops": Verdict.NEEDS_CUDA, "mmcv.ops": Verdict.NEEDS_CUDA,
    "torch_npu": Verdict.NEEDS_CUDA,
    "ours.net": Verdict.OWN, ".net": Verdict.OWN, ".SPEED": Verdict.OWN, "plain": Verdict.OWN,
    ".version": Verdict.OWN, "plain.version": Verdict.OWN,
    "droid_kernels": Verdict.EXTENSION, "ours._C": Verdict.EXTENSION, "._C": Verdict.EXTENSION,
    "ours.ops.nms_ext": Verdict.EXTENSION, ".ops.fused": Verdict.EXTENSION,
    "host_only": Verdict.FOR_CPU, "ours.boxes": Verdict.FOR_CPU, ".host.iou": Verdict.FOR_CPU,
    "knn_search": Verdict.COMPILED, "knn_search.ops": Verdict.COMPILED,
    "scan_cuda_core": Verdict.EXTENSION,
    "quick._C": Verdict.COMPILED, "quick.ops._ext": Verdict.COMPILED,
    "nms3d_ext": Verdict.COMPILED, "_C": Verdict.COMPILED, "_ext.nms": Verdict.COMPILED,
    ".scan_cuda": Verdict.EXTENSION,
    "plain.scan_cuda": Verdict.EXTENSION, "plain.nms_ext": Verdict.COMPILED,  # no such files
    "GPUtil": Verdict.NEEDS_CUDA, "fla": Verdict.NEEDS_CUDA, "nvtx": Verdict.WORKS,
    "quick.config.defaults._C": Verdict.UNKNOWN,  # of yacs
    "pyrallis": Verdict.UNKNOWN, "next_ext.part": Verdict.UNKNOWN,
}  # fmt: skip


def test_every_module_has_a_verdict(tmp_path: Path) -> None:
    assert verdicts(tmp_path, "\n".join(EACH)) == EACH


def test_a_package_without_native_sources_lacks_no_compiled_module(tmp_path: Path) -> None:
    said = verdicts(tmp_path, ".settings_local plain.settings_local", "plain/run.py")
    assert set(said.values()) == {Verdict.OWN}


def test_a_folder_of_modules_is_a_package_without_a_file_that_says_so(tmp_path: Path) -> None:
    write_tree(tmp_path, {"nets/small.py": "", "data/words.txt": ""})
    said = verdicts(tmp_path, "nets data")
    assert said == {"nets": Verdict.OWN, "data": Verdict.UNKNOWN}


def test_what_is_known_to_work_has_a_source() -> None:
    known = known_modules()
    assert len({each.package for each in known.values()}) >= 150
    for module, each in known.items():
        assert re.fullmatch(r"https://pypi\.org/project/[\w.-]+/", each.source), module
        assert each.package in each.source
    assert not known.keys() & MODULES.keys()
    assert {"PIL", "cv2", "scipy", "torchvision", "timm", "transformers", "einops"} <= known.keys()


def test_imports_are_listed_with_their_files(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"a.py": "import os\nimport b\nimport pyrallis, numpy.linalg\n",
                                 "b.py": "from pyrallis import field\n"})  # fmt: skip
    disk = Disk()
    cache = ProjectCache(disk, DEVICE_CONSTRUCTS)
    found = imports_of(ProjectFacts(root / n, root, disk, cache) for n in ("a.py", "b.py"))
    assert {each.module: [p.name for p in files] for each, files in found.items()} == {
        "numpy": ["a.py"], "pyrallis": ["a.py", "b.py"],
    }  # fmt: skip


# ---- what a run says -----------------------------------------------------------------------------

TRAIN = "import torch\nimport pyrallis\n{}\nprint(torch.ones(2).cuda())\n"


def checked(root: Path, line: str, **files: str) -> tuple[float, list[str]]:
    write_tree(root, {**PROJECT, "train.py": TRAIN.format(line), **files})
    run = cli("train.py", "--target", "torchax", "--check", "--format", "json", cwd=root)
    said = json.loads(run.stdout)
    found = [d for f in said["files"] for d in f["diagnostics"] if d["outcome"] == "reported"]
    return said["summary"]["automatic"], [d["message"] for d in found]


COMPILED = [
    ("import droid_kernels", "droid_kernels is compiled by setup.py, for CUDA"),
    ("from ours import _C", "ours._C is compiled by setup.py, for CUDA"),
    ("from ours.ops import nms_ext", "ours.ops.nms_ext is compiled by setup.py, for CUDA"),
    ("from ours.ops.fused import f", "fused is compiled from what lies in ours/ops, for CUDA"),
    ("import knn_search", "part of the git submodule third_party/knn-search, which is not"),
    ("import scan_cuda_core", "scan_cuda_core is compiled, by its name, for CUDA"),
]


@pytest.mark.parametrize(("line", "words"), COMPILED)
def test_a_program_that_cannot_be_imported_is_not_done(
    line: str, words: str, tmp_path: Path
) -> None:
    automatic, messages = checked(tmp_path, line)
    (message,) = messages
    assert automatic < 100 and words in message


@pytest.mark.parametrize("line", [
    "import host_only", "from ours import boxes", "from ours.host import iou", "import ours.net",
    "from ours import SPEED", "import numpy", "import ours.version",
])  # fmt: skip
def test_what_needs_no_cuda_is_no_construct(line: str, tmp_path: Path) -> None:
    assert checked(tmp_path, line) == (100, [])


def test_an_import_that_may_fail_keeps_its_fallback(tmp_path: Path) -> None:
    line = "try:\n    import droid_kernels\nexcept ImportError:\n    droid_kernels = None"
    assert checked(tmp_path, line) == (100, [])


def test_a_file_without_a_word_of_gpus_is_looked_at(tmp_path: Path) -> None:
    files = {"knn.py": "import knn_search\n\n\ndef near(x):\n    return knn_search.near(x)\n"}
    automatic, (message,) = checked(tmp_path, "import knn", **files)
    assert automatic < 100 and "knn_search" in message


def test_what_nobody_knows_matters_in_gpu_code_alone(tmp_path: Path) -> None:
    write_tree(tmp_path, {**PROJECT, "tool.py": "import knn_search\nprint(knn_search.near(1))\n"})
    run = cli("tool.py", "--target", "torchax", "--check", cwd=tmp_path)
    assert b"knn_search" not in run.stdout and run.returncode == 0


def test_assess_says_what_a_check_says(tmp_path: Path) -> None:
    automatic, _ = checked(tmp_path, "import droid_kernels")
    said = cli("assess", "train.py", "--color", "never", cwd=tmp_path).stdout.decode()
    assert f"{automatic:.0f}%" in said and "LIB002" in said and "100%" not in said
    assert "Imported, and not known to run without a GPU: pyrallis\n" in said


def test_an_unknown_import_is_listed_in_a_line(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"train.py": TRAIN.format("")})
    run = cli("train.py", "--target", "torchax", "--check", "--report", "page.html", cwd=root)
    assert run.stdout.decode().count("pyrallis") == 1
    line = "Imported, and not known to run without a GPU: pyrallis"
    assert f"{line}\n" in run.stdout.decode()
    assert line in (root / "page.html").read_text("utf-8")
    said = cli("train.py", "--target", "torchax", "--check", "--format", "markdown", cwd=root)
    assert line in said.stdout.decode()
    said = cli("train.py", "--target", "torchax", "--check", "--format", "json", cwd=root)
    assert [(i["module"], i["verdict"]) for i in json.loads(said.stdout)["imports"]] == [
        ("pyrallis", "unknown"), ("torch", "works"),
    ]  # fmt: skip


def test_what_is_gone_is_no_unknown_import(tmp_path: Path) -> None:
    """The rules for old versions say what takes its place."""
    source = "import torch\nimport urllib2\nimport nobodys\nprint(urllib2, torch.ones(1).cuda())\n"
    write_tree(tmp_path, {"train.py": source})
    done = cli("train.py", "--target", "torchax", "--check", cwd=tmp_path)
    told = [line for line in done.stdout.decode().splitlines() if line.startswith("Imported, and")]
    assert len(told) == 1 and told[0].endswith(": nobodys")
