"""`torch.compile` of models: XLA compiles by itself, and checkpoints keep their names."""

from typing import Any

import torch


class CompiledModule(torch.nn.Module):
    """A model as `torch.compile` returns it: around the original, which is its ``_orig_mod``.

    So its parameters have the same names, and files of one machine are read on the other. All
    other attributes are those of the original.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._modules["_orig_mod"] = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The original's results."""
        return self._modules["_orig_mod"](*args, **kwargs)  # type: ignore[misc]

    @property
    def training(self) -> bool:
        """That of the original, which may be switched by itself."""
        return self._modules["_orig_mod"].training  # type: ignore[union-attr]

    @training.setter
    def training(self, value: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", ()):
            self._modules["_orig_mod"].training = value  # type: ignore[union-attr]

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__["_modules"]["_orig_mod"]
        return module if name == "_orig_mod" else getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" in modules and name != "training":
            setattr(modules["_orig_mod"], name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._modules["_orig_mod"], name)


def compile(model: Any = None, **options: object) -> Any:
    """`torch.compile` without a compiler of its own; a function stays as it is."""
    if model is None:
        return compile
    return CompiledModule(model) if isinstance(model, torch.nn.Module) else model
