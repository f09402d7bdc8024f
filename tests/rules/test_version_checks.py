"""Checks of versions that a TPU machine fails are reported, and no others."""

import pytest
from helpers import run
from target import TARGET

from migrator.analysis.find_version_checks import may_be_in

HEAD = "import sys\nimport torch\nimport timm\nfrom timm import __version__ as timm_version\n"
MODEL = "\nx = torch.ones(3).cuda()\n"

OLD = 'assert timm.__version__ == "0.3.2"'
FAILS = {
    'assert timm.__version__ == "0.3.2"  # version check': "timm ",
    'assert timm_version == "0.3.2"': "timm ",
    'assert torch.__version__.startswith("1.")': "the versions of",
    'assert torch.__version__ < "2"': "the versions of",
    "assert sys.version_info < (3, 9)": "the versions of",
    'if int(torch.__version__.split(".")[0]) > 1:\n    raise SystemExit': "the versions of",
    'if sys.version_info[:2] > (3, 8):\n    print("too new")\n    sys.exit(1)': "the versions of",
    f"try:\n    {OLD}\nexcept AssertionError:\n    raise": "timm ",
    f"try:\n    {OLD}\nexcept AssertionError:\n    print(1)\n    sys.exit(1)": "timm ",
    f"try:\n    {OLD}\nexcept ImportError:\n    pass": "timm ",
    f"try:\n    x = 1\nexcept AssertionError:\n    pass\nelse:\n    {OLD}": "timm ",
    "try:\n    if sys.version_info > (3, 8):\n        exit(1)\nexcept Exception:\n    pass":
        "the versions of",
}  # fmt: skip
PASSES = (
    'assert timm.__version__ >= "0.3.2"',
    'assert torch.__version__ >= "1.7"',
    'assert torch.__version__ == REQUIRED',
    'assert unknown_package.__version__ == "1.0"',
    'if torch.__version__ < "1.7":\n    raise RuntimeError("too old")',
    'if torch.__version__ < "1.7":\n    assert torch.__version__ < "1.8"',
    'if torch.__version__ > "1.7":\n    print("new")',
    f"try:\n    {OLD}\nexcept AssertionError:\n    pass",
    f"try:\n    {OLD}\nexcept (ImportError, Exception) as e:\n    print(e)",
    f"try:\n    try:\n        {OLD}\n    except AssertionError:\n        raise\nexcept:\n    pass",
    'try:\n    if torch.__version__ > "1.7":\n        raise Own()\nexcept Base:\n    pass',
    "assert False",
)  # fmt: skip


@pytest.mark.parametrize(("code", "versions"), FAILS.items())
def test_a_check_that_fails_is_reported_with_the_versions(code: str, versions: str) -> None:
    result = run(HEAD + code + MODEL, TARGET)
    (found,) = (d for d in result.diagnostics if d.code == "UPG007")
    assert found.outcome == "reported" and f"fails with {versions}" in found.message
    assert code in result.source.decode() and may_be_in((HEAD + code).encode())


def test_the_oldest_that_starts_is_named() -> None:
    result = run(HEAD + OLD + MODEL, TARGET)
    (found,) = (d for d in result.diagnostics if d.code == "UPG007")
    assert "0.4.5 is the first that starts" in found.message


@pytest.mark.parametrize("code", PASSES)
def test_a_check_that_passes_or_is_caught_is_not_reported(code: str) -> None:
    result = run(HEAD + code + MODEL, TARGET)
    assert not [d for d in result.diagnostics if d.code == "UPG007" and d.outcome == "reported"]
