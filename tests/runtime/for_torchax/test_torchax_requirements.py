"""What migrator.analysis.python_requirements says of jax, against jax's own metadata."""

from importlib.metadata import requires

from migrator.analysis.python_requirements import bounds, excludes
from migrator.targets import find_target


def test_scipy_is_the_one_that_jax_asks_for() -> None:
    scipy = bounds(find_target("torchax"))["scipy"]
    assert scipy in {text.partition(";")[0].strip() for text in requires("jax") or ()}
    assert not excludes(bounds(find_target("torchax"))["numpy"].removeprefix("numpy"), ">=2")
