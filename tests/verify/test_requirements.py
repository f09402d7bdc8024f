"""The pinned set comes from the distribution's metadata alone."""

import pytest

from migrator.analysis import python_requirements as requirements
from migrator.analysis.python_requirements import Requirement, pinned, without_extra
from migrator.errors import UsageError
from migrator.targets import find_target, targets

XLA_TARGET = find_target("torch_xla")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('torch==2.9.0; extra == "torchax"', "torch==2.9.0"),
        ("a==1 ; extra == 'torchax'", "a==1"),
        (
            'b==1; (sys_platform == "linux" and x == "y") and extra == "torchax"',
            'b==1; (sys_platform == "linux" and x == "y")',
        ),
        ("c==1; extra == 'torchax' and os_name == 'nt'", "c==1; os_name == 'nt'"),
        ('torch==2.9.0; extra == "torch-xla"', None),
        ("libcst>=1.8", None),
    ],
)
def test_a_line_of_the_metadata_loses_its_extra(line: str, expected: str | None) -> None:
    assert without_extra(line, "torchax") == expected


def test_the_extra_may_be_spelled_by_the_metadata() -> None:
    assert without_extra("torch_xla==2.9.0; extra == 'torch-xla'", "torch_xla") == (
        "torch_xla==2.9.0"
    )


@pytest.mark.parametrize("target", targets())
def test_checkout_and_metadata_pin_the_same(target: str) -> None:
    names = {requirement.name for requirement in pinned(find_target(target))}
    assert find_target(target).environment.package in names
    installed = [Requirement(line).name for line in requirements._from_metadata(target)]
    assert not installed or set(installed) == names


def test_parts_of_a_requirement() -> None:
    libtpu = Requirement("libtpu==0.0.52; sys_platform == 'linux'")
    assert (libtpu.name, libtpu.module, libtpu.exact) == ("libtpu", "libtpu", "0.0.52")
    assert libtpu.conditional
    numpy = Requirement("numpy>=2,<3")
    assert (numpy.exact, numpy.conditional) == (None, False)
    assert Requirement("opencv-python-headless>=4.11,<5").module == "cv2"


@pytest.mark.parametrize(
    ("asked", "versions", "none"),
    [
        ("<2", ">=2,<3", True), ("<=2", ">=2,<3", False), ("~=2.1", ">=2,<3", False),
        (">2.0.3,<2.0.4", ">=2,<3", False), ("==1.26.4+mkl", ">=2,<3", True), ("", ">=2", False),
        ("!=2.*", ">=2,<3", True), ("^1.26", ">=2,<3", True), ("^2", ">=2,<3", False),
        ("~3.10", ">=3.11,<3.14", True), ("3.12", ">=3.11,<3.14", False), ("*", ">=1", False),
        ("3.10.*", ">=3.11,<3.14", True), ("main", ">=1", False), (">=3.14", ">=3.11,<3.14", True),
    ],
)  # fmt: skip
def test_versions_that_have_none_in_common(asked: str, versions: str, none: bool) -> None:
    assert requirements.excludes(asked, versions) is none


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("git+https://github.com/Dao-AILab/flash-attention.git@v2.5", "flash-attn"),
        ("git+https://github.com/NVIDIA/TransformerEngine.git@stable", "transformer-engine"),
        ("git+ssh://git@github.com/NVIDIA/apex", "apex"),
        ("git@github.com:state-spaces/mamba.git", "mamba-ssm"),
        ("git+https://github.com/pytorch/vision", "torchvision"),
        ("git+https://github.com/someone/vision", None),
        ("git+https://github.com/a/b.git#egg=c_d", "c-d"),
        ("https://example.org/a/b/c.html", None),
    ],
)
def test_the_package_of_a_repository(url: str, package: str | None) -> None:
    assert requirements.repository_of(url) == package


def test_an_unknown_target_is_named() -> None:
    known = r"known: keras_jax, tf_tpu, torch_tpu, torch_xla, torchax"
    with pytest.raises(UsageError, match=rf"unknown target 'mps' \({known}\)"):
        find_target("mps")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("torch_xla", "torch_xla[tpu]==2.9.0"),
        ("torch_xla[tpu]~=2.1", "torch_xla[tpu]==2.9.0"),
        ("torch-xla [ pallas ] >= 2", "torch_xla[pallas,tpu]==2.9.0"),
        ("torch_xla[tpu,pallas]==2.9.0", "torch_xla[pallas,tpu]==2.9.0"),
        (
            "torch_xla[tpuvm] @ https://example.org/a.whl",
            "torch_xla[tpu]==2.9.0",
        ),  # of torch_xla 2.0
    ],
)
def test_extras_of_a_user_stay_beside_that_for_the_tpu(asked: str, text: str) -> None:
    wanted = requirements.tested(XLA_TARGET)["torch-xla"]
    assert requirements.in_place_of(asked, wanted) == text
    assert requirements.constraint(text) == "torch_xla==2.9.0"


def test_other_packages_take_no_extras_over() -> None:
    assert requirements.in_place_of("jax[tpu]==0.4", "jax==0.10.2") == "jax==0.10.2"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("torch-xla[tpu] == 2.9", True),
        ("torch_xla==2.9.0", False),
        ("torch_xla[tpu]>=2.9.0", False),
        ("torch_xla[tpu]==2.9.0; python_version > '3'", False),
        ("torch_xla[tpu", False),
    ],
)
def test_requirements_that_say_the_same(other: str, same: bool) -> None:
    assert requirements.alike("torch_xla[tpu]==2.9.0", other) is same


def test_pythons_are_those_with_wheels_for_a_tpu() -> None:
    assert requirements.pythons(find_target("torchax")) == ">=3.11,<3.14"
    assert requirements.pythons(find_target("torch_xla")) == ">=3.11,<3.13"
