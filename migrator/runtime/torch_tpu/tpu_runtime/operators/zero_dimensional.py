"""`torch.tensor([loss, 1.0])`: tensors without dimensions in a list.

While `torch.Tensor.__getitem__` is a function of Python, as `separated_index_lists` makes it, torch
takes such a tensor for a sequence, and raises "len() of a 0-d tensor". Only then is the list read
here.
"""

import functools
from typing import Any

import torch


def install() -> None:
    torch.tensor = _reading(torch.tensor, 0)
    torch.as_tensor = _reading(torch.as_tensor, 0)
    torch.Tensor.new_tensor = _reading(torch.Tensor.new_tensor, 1)  # type: ignore[method-assign]


def _reading(original: Any, place: int) -> Any:
    @functools.wraps(original)
    def made(*given: Any, **options: Any) -> Any:
        try:
            return original(*given, **options)
        except TypeError as error:
            if "0-d tensor" not in str(error) or len(given) <= place:
                raise
        data = given[place]
        if place == 0 and options.get("dtype") is None and not given[1:]:  # not of `new_tensor`
            options["dtype"] = functools.reduce(torch.promote_types, _dtypes(data))
        return original(*given[:place], _numbers(data), *given[place + 1 :], **options)

    return made


def _numbers(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_numbers(part) for part in data]
    return data.tolist() if isinstance(data, torch.Tensor) else data


def _dtypes(data: Any) -> list[torch.dtype]:
    if isinstance(data, (list, tuple)):
        return [dtype for part in data for dtype in _dtypes(part)]
    return [data.dtype if isinstance(data, torch.Tensor) else torch.tensor(data).dtype]
