"""`torch.add(x, y, out=z)` as a write of `x + y` to z.

torchax 0.0.13 supports few of these, and gives z the shape and the dtype of the result.
"""

from typing import Any

import torch
from torchax.tensor import Environment

from ..device import DEVICE_TYPE
from ..tensors.tensor_identity import become
from .calls import Function, holds_device_tensor, is_device_tensor, native


def write_result(
    env: Environment, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of a call with `out=`; NotImplemented if it writes to no device tensor."""
    out = kwargs.get("out")
    outputs = out if isinstance(out, (tuple, list)) else (out,)
    if not all(map(is_device_tensor, outputs)):
        return NotImplemented
    rest = {name: value for name, value in kwargs.items() if name != "out"}
    with torch.no_grad(), env:
        if not holds_device_tensor((args, rest)):  # torch.arange(5, out=z)
            rest = {"device": DEVICE_TYPE, "dtype": outputs[0].dtype, **rest}
        results = function(*args, **rest)
        for output, result in zip(
            outputs, results if isinstance(results, tuple) else (results,), strict=True
        ):
            if not native(torch.can_cast, (result.dtype, output.dtype), {}):
                raise RuntimeError(
                    f"a result of {result.dtype} cannot be written to out= of {output.dtype}"
                )
            if result.shape == output.shape:
                output.copy_(result)
            else:
                become(output, result.to(output.dtype))
    return out
