"""The pinned set comes from the distribution's metadata alone."""

import pytest

from migrator import requirements
from migrator.config import UsageError
from migrator.requirements import Requirement, pinned, without_extra


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


@pytest.mark.parametrize("target", requirements.TARGETS)
def test_checkout_and_metadata_pin_the_same(target: str) -> None:
    names = {requirement.name for requirement in pinned(target)}
    assert {"torch", target, "safetensors"} <= names
    installed = [Requirement(line).name for line in requirements._from_metadata(target)]
    assert not installed or set(installed) == names


def test_parts_of_a_requirement() -> None:
    libtpu = Requirement("libtpu==0.0.52; sys_platform == 'linux'")
    assert (libtpu.name, libtpu.module, libtpu.exact) == ("libtpu", "libtpu", "0.0.52")
    assert libtpu.conditional
    numpy = Requirement("numpy>=2,<3")
    assert (numpy.exact, numpy.conditional) == (None, False)
    assert Requirement("opencv-python-headless>=4.11,<5").module == "cv2"


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(UsageError, match="unknown target 'mps': one of torchax, torch_xla"):
        pinned("mps")
