"""Layer by layer: the outputs of all modules of the models, the gradients that come back to these
outputs, and those of their parameters, as a tree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape
from rich.tree import Tree

from migrator.diagnostics import first_of
from migrator.report.html import verify_numbers as html

from .comparisons import LAST, Comparison, Finding
from .divergence import NEW_GRADIENT, NO_GRADIENT, by_key
from .number_formats import share
from .recordings import Recording

_SEEN = {
    "layer": "output",
    "output": "output",
    "layer gradient": "gradient",
    "gradients": "parameters' gradients",
}


@dataclass
class Layer:
    """A module: what was compared of its outputs, their gradients, those of its parameters."""

    name: str  # in its parent; the model's own
    findings: dict[str, list[Finding]] = field(default_factory=dict)  # by what of it: see _SEEN
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
    takers: Sequence[str] = ()  # if it is a gradient: the layers that it comes back from

    @property
    def mark(self) -> str:
        """What is said of the first layer beyond its bound."""
        said = "the first beyond its bound"
        if self.first is None or _SEEN[self.first.kind] == "output":
            return said
        source = f", from {first_of([*self.takers], 3)}" if self.takers else ""
        return f"{said}: {_SEEN[self.first.kind]}{source}"

    def to_dict(self) -> dict[str, Any]:
        first = None
        if self.first is not None:
            first = {
                "path": self.path, "kind": _SEEN[self.first.kind], "step": self.first.step + 1,
                "line": self.first.line, "reason": self.first.reason,
                "want": self.first.want, "got": self.first.got, "from": [*self.takers],
            }  # fmt: skip
        return {"first": first, "models": [model.to_dict() for model in self.models]}


def layers_of(stepwise: Comparison, inner: Comparison, golden: Recording, run: Recording) -> Layers:
    """The layers by what a run operator by operator showed; `inner`: of modules inside.

    They are no part of the verdict: a model may come to the same in another way.
    """
    only = _only_in_one(golden, run, inner.is_cut)
    every = sorted((*inner.findings, *only, *stepwise.findings), key=lambda f: f.order)
    findings = [f for f in every if f.kind in _SEEN]
    models: dict[str, Layer] = {}
    for finding in findings:
        _layer(models, _path(finding)).findings.setdefault(_SEEN[finding.kind], []).append(finding)
    failed = [f for f in findings if not f.passed]
    first = next(iter(failed), None)
    if first is None:
        return Layers(list(models.values()), None)
    takers = _takers(first, golden) if first.kind == "layer gradient" else ()
    return Layers(list(models.values()), first, ".".join(_path(first)), takers)


def _takers(first: Finding, golden: Recording) -> list[str]:
    """The layers that a gradient comes back from; what calls the layer, if it gave it to none."""
    events = [e for e in golden.events if (e["kind"], e["name"]) == (first.kind, first.name)]
    found: list[str] = next((e.get("takers", []) for e in events if e["step"] == first.step), [])
    above = first.name.rpartition(".")[0]
    return found or [above] * bool(above)


def _only_in_one(golden: Recording, run: Recording, cut: bool) -> Iterator[Finding]:
    """Gradients that come back to a layer's output in one of both runs.

    `cut`: one of them ended earlier: what only it lacks at the end isn't counted.
    """
    wanted, ours = by_key(golden.events), by_key(run.events)
    places = {key: number for number, key in enumerate(wanted)}
    last = max((place for key, place in places.items() if key in ours), default=-1)
    for key, event in wanted.items():
        if key[0] == "layer gradient" and key not in ours and (not cut or places[key] < last):
            yield _one_sided(event, places[key], NO_GRADIENT)
    following = None if cut else LAST - 1
    for key, event in reversed(ours.items()):
        following = places.get(key, following)
        if key[0] == "layer gradient" and key not in wanted and following is not None:
            yield _one_sided(event, following, NEW_GRADIENT)


def _one_sided(event: dict[str, Any], order: int, reason: str) -> Finding:
    return Finding(
        kind=event["kind"], name=event["name"], place="", step=event["step"], order=order,
        line=event["line"], loop=event.get("loop", ""), ratio=math.inf, reason=reason,
    )  # fmt: skip


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


def for_page(layers: Layers) -> list[html.LayerNumbers]:
    """The same for the HTML report."""
    return [_for_page(model, model.name, layers) for model in layers.models]


def _for_page(layer: Layer, path: str, layers: Layers) -> html.LayerNumbers:
    below = [_for_page(each, f"{path}.{each.name}", layers) for each in layer.children.values()]
    parts = [
        (what, share(f.ratio for f in found), all(f.passed for f in found))
        for what, found in layer.findings.items()
    ]
    return html.LayerNumbers(layer.name, parts, layers.mark if path == layers.path else "", below)


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
    mark = f"  [bold red]<- {escape(layers.mark)}[/]" if path == layers.path else ""
    return f"{escape(layer.name)}  {', '.join(parts)}{mark}"
