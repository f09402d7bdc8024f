"""What takes the place of results that are not computed."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from tpu_runtime.compilation import lowering

STATUS = Path("/proc/self/status")


def resident() -> int:
    """KiB."""
    return int(STATUS.read_text().partition("VmRSS:")[2].split()[0])


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_zeros_take_no_memory(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lowering.COMPUTE, "off")
    program = jax.jit(lambda x: (jnp.broadcast_to(x, (2**10, 2**18)), x + 1))
    compiled = lowering.compiled(program.trace(jnp.ones(2**18, dtype)), "step")
    before = resident()
    large, small = compiled(jnp.ones(2**18, dtype))
    assert resident() - before < 2**16
    assert large.shape == (2**10, 2**18) and large.dtype == small.dtype == dtype
    assert float(large[3, 5]) == 0 and not small.any()
