"""The variables around a function, as a dict that writes through."""

from types import FunctionType
from typing import Any

from ..tensors.structures import MISSING


class ClosureVariables(dict[str, Any]):
    """A function's closure variables, and its defaults."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__()
        self.function = function
        self.refresh()

    def refresh(self, function: FunctionType | None = None) -> None:
        """Their current values; ``function`` is a new one with the same code."""
        self.function = function or self.function
        self.clear()
        names = self.function.__code__.co_freevars
        for name, cell in zip(names, self.function.__closure__ or (), strict=True):
            try:
                self[name] = cell.cell_contents
            except ValueError:  # no value yet
                self[name] = MISSING
        for number, value in enumerate(self.function.__defaults__ or ()):
            self[f"default {number}"] = value
        for name, value in (self.function.__kwdefaults__ or {}).items():
            self[f"default {name}"] = value

    def put(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        cells = self.function.__closure__ or ()
        cell = cells[self.function.__code__.co_freevars.index(name)]
        if value is MISSING:
            del cell.cell_contents
        else:
            cell.cell_contents = value


def get_item(holder: Any, name: Any, default: Any = None) -> Any:
    """A variable, an attribute or an item; a dict subclass may have a different `get`."""
    if isinstance(holder, dict):
        return dict.get(holder, name, default)
    return holder.get(name, default)


def set_item(holder: Any, name: Any, value: Any) -> None:
    """Set a variable, an attribute (of ``vars``) or an item."""
    if isinstance(holder, ClosureVariables):
        holder.put(name, value)
    elif value is MISSING:
        holder.pop(name, None)
    else:
        holder[name] = value
