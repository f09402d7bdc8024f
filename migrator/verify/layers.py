"""Layer by layer: the outputs and gradients of all modules of the models, as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape
from rich.tree import Tree

from .cells import share
from .findings import Comparison, Finding

_SEEN = {"layer": "output", "output": "output", "gradients": "gradient"}


@dataclass
class Layer:
    """A module: what was compared of its outputs and of its parameters' gradients."""

    name: str  # in its parent; the model's own
    findings: dict[str, list[Finding]] = field(default_factory=dict)  # by output and gradient
    children: dict[str, Layer] = field(default_factory=dict)

    @property
    def failed(self) -> list[Finding]:
        return [f for found in self.findings.values() for f in found if not f.passed]

    def to_dict(self) -> dict[str, Any]:
        """As JSON: the worst of each kind by what is allowed, and the children."""
        return {
            "name": self.name,
            **{what: _worst(found) for what, found in self.findings.items()},
            "passed": not self.failed,
            "children": [child.to_dict() for child in self.children.values()],
        }


def _worst(found: Sequence[Finding]) -> dict[str, Any]:
    worst = max(found, key=lambda f: f.ratio)
    return {"of_allowed": worst.ratio, "reason": worst.reason, "step": worst.step + 1}


@dataclass(frozen=True)
class Layers:
    """The models of a program, and the first layer that leaves its bound."""

    models: Sequence[Layer]
    first: Finding | None
    path: str = ""  # of that layer: the model's name, and the way to the module

    def to_dict(self) -> dict[str, Any]:
        first = None
        if self.first is not None:
            first = {
                "path": self.path, "kind": _SEEN[self.first.kind], "step": self.first.step + 1,
                "line": self.first.line, "reason": self.first.reason,
                "want": self.first.want, "got": self.first.got,
            }  # fmt: skip
        return {"first": first, "models": [model.to_dict() for model in self.models]}


def layers_of(stepwise: Comparison, inner: Comparison) -> Layers:
    """The layers by what a run operator by operator showed; `inner`: of modules inside.

    They are no part of the verdict: a model may come to the same in another way.
    """
    every = sorted((*inner.findings, *stepwise.findings), key=lambda f: f.order)
    findings = [f for f in every if f.kind in _SEEN]
    models: dict[str, Layer] = {}
    for finding in findings:
        _layer(models, _path(finding)).findings.setdefault(_SEEN[finding.kind], []).append(finding)
    failed = [f for f in findings if not f.passed]
    first = next(iter(failed), None)
    return Layers(list(models.values()), first, ".".join(_path(first)) if first else "")


def _path(finding: Finding) -> list[str]:
    """The way to a module: that of a gradient is the way to its parameter, without its name."""
    if finding.kind == "gradients":
        return finding.place.split(".")[:-1] or [finding.name]
    return finding.name.split(".")


def _layer(models: dict[str, Layer], path: Iterable[str]) -> Layer:
    level, layer = models, None
    for name in path:
        layer = level.setdefault(name, Layer(name))
        level = layer.children
    assert layer is not None
    return layer


def tree(layers: Layers) -> Iterator[Tree]:
    """For the terminal: each module with how far it is from its bound; the first is marked."""
    for model in layers.models:
        shown = Tree(_row(model, model.name, layers))
        _grow(shown, model, model.name, layers)
        yield shown


def _grow(shown: Tree, layer: Layer, path: str, layers: Layers) -> None:
    for child in layer.children.values():
        way = f"{path}.{child.name}"
        _grow(shown.add(_row(child, way, layers)), child, way, layers)


def _row(layer: Layer, path: str, layers: Layers) -> str:
    parts = [
        f"{what} {'[red]' if any(not f.passed for f in found) else '[green]'}"
        f"{share(f.ratio for f in found)}[/]"
        for what, found in layer.findings.items()
    ]
    mark = "  [bold red]<- the first beyond its bound[/]" if path == layers.path else ""
    return f"{escape(layer.name)}  {', '.join(parts)}{mark}"
