"""Faults that a migration could make: where a program has room for each, and what it then reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

NUMBER = r"(\d[\d.]*(?:e-?\d+)?)"
LOSSES = frozenset({"loss"})
COMPUTED = frozenset({"output", "loss"})
UPDATED = frozenset({"weights"})
DRAWS = frozenset({"draws"})


@dataclass(frozen=True)
class Planted:
    """A program with a fault in it: the line that was changed, as it was, and the whole text."""

    line: str
    source: str


@dataclass(frozen=True)
class Fault:
    """``size``: what is changed, and by how much; ``shows``: the kinds of values that it changes
    first; ``dropout``: whether it is only there where dropout is; ``drawn``: whether it is only
    there where the device draws its own random numbers."""

    size: str
    shows: frozenset[str]
    find: Callable[[str], Iterator[Planted]]
    dropout: bool = False
    drawn: bool = False


Change = str | Callable[[re.Match[str]], str]


def _at(
    pattern: str, change: Change, unless: str = r"print\(|held_out|agreed"
) -> Callable[[str], Iterator[Planted]]:
    """One fault for each place where ``pattern`` is, outside of lines with ``unless``."""

    def find(source: str) -> Iterator[Planted]:
        for match in re.finditer(pattern, source, re.MULTILINE):
            begin = source.rfind("\n", 0, match.start()) + 1
            line = source[begin : source.find("\n", match.start())]
            if re.search(unless, line):
                continue
            new = match.expand(change) if isinstance(change, str) else change(match)
            yield Planted(line.strip(), source[: match.start()] + new + source[match.end() :])

    return find


def _of(*finders: Callable[[str], Iterator[Planted]]) -> Callable[[str], Iterator[Planted]]:
    return lambda source: (planted for find in finders for planted in find(source))


def _times(factor: float) -> Callable[[re.Match[str]], str]:
    """The last group of a match, a number, times ``factor``."""
    return lambda match: f"{match[1]}{float(match[2]) * factor:.10g}"


def _without_bias(source: str) -> Iterator[Planted]:
    yield from _linear(source, r"nn\.Linear\(", "F.linear({0}, self.{1}.weight)")


def _transposed(source: str) -> Iterator[Planted]:
    yield from _at(r"@ self\.(mix|transitions)\b", r"@ self.\1.t()")(source)
    new = "F.linear({0}, self.{1}.weight.t(), self.{1}.bias)"
    yield from _linear(source, r"nn\.Linear\((\w+), \2\)", new)


def _linear(source: str, made: str, new: str) -> Iterator[Planted]:
    """Calls of layers that are ``made`` so: `self.name(x)` becomes ``new``."""
    for name in dict.fromkeys(m[1] for m in re.finditer(rf"self\.(\w+) = {made}", source)):
        called = _at(rf"self\.{name}\((\w+)\)", lambda m, name=name: new.format(m[1], name))
        yield from called(source)


def _labels(source: str) -> Iterator[Planted]:
    """Labels that are one too high, the last one 0."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "F.cross_entropy":
            label = node.args[1]
            lines = source.splitlines(keepends=True)
            begin = sum(map(len, lines[: label.lineno - 1])) + label.col_offset
            old = ast.get_source_segment(source, label) or ""
            new = f"{source[:begin]}({old} + 1) % CLASSES{source[begin + len(old) :]}"
            yield Planted(lines[node.lineno - 1].strip(), new)


def _groups(source: str) -> Iterator[Planted]:
    """The parameters of two groups, exchanged."""
    names = re.findall(r'"params": (\w+)', source)
    if len(names) == 2:
        exchanged = {names[0]: names[1], names[1]: names[0]}
        new = re.sub(r'"params": (\w+)', lambda m: f'"params": {exchanged[m[1]]}', source)
        yield Planted(f'"params": {names[0]}, "params": {names[1]}', new)


def _seed(source: str) -> Iterator[Planted]:
    """The seed set behind the model in place of in front of it."""
    match = re.search(r"^torch\.manual_seed\(.*\)\n", source, re.MULTILINE)
    model = re.search(r"^\w+(?:, \w+)? = [A-Z]\w+\(\)\.to\(.*\n", source, re.MULTILINE)
    if match and model:
        between = source[match.end() : model.end()]
        yield Planted(
            match[0].strip(), source[: match.start()] + between + match[0] + source[model.end() :]
        )


# A statement that changes something in place, and the one that it is moved behind: the next one
# that matches, where {} is what the first one changes.
_MOVED = {
    r"(\w+)(?:\[.*?\]|\.grad)? ?[-+*/]= ": r"\b{}\b",
    r"(\w+)(?:\.\w+\([^()]*\))*\.\w+_\(": r"\b{}\b",
    r"torch\.nn\.utils\.(clip_grad)_\w+\(|for \w+ in \w+\.parameters\(": r"optimizer\.step\(",
    r"\w*optimizer\.step\(": r"\.lerp_\(|kept\.mul_\(",
}


def _moved(source: str) -> Iterator[Planted]:
    """A statement of the training loop, behind the first one that reads what it changes."""
    lines = source.splitlines(keepends=True)

    def text(node: ast.stmt) -> str:
        return "".join(lines[node.lineno - 1 : node.end_lineno])

    loops = [node for node in ast.parse(source).body if isinstance(node, ast.For)]
    bodies = [node.body for loop in loops for node in ast.walk(loop) if isinstance(node, ast.For)]
    for body in bodies:
        for place, node in enumerate(body):
            for changing, reading in _MOVED.items():
                match = re.match(changing, text(node).strip())
                reads = match and reading.format(match.groups() and match[1])
                behind = [n for n in body[place + 1 :] if reads and re.search(reads, text(n))]
                if not match or not behind or text(behind[0]).strip().startswith("print("):
                    continue
                begin, end = node.lineno - 1, node.end_lineno
                last = behind[0].end_lineno
                new = [*lines[:begin], *lines[end:last], *lines[begin:end], *lines[last:]]
                yield Planted(f"{text(node).strip()} | {text(behind[0]).strip()}", "".join(new))


# For an expression, the place where random numbers are drawn: what the device gives in place of
# them. The recorder draws on the CPU in other runs, by functions that it wraps.
_INNER = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"  # what is in parentheses
_OWN = '(lambda drawn: drawn if hasattr(torch.rand, "__wrapped__") else {})({})'


def _drawn(pattern: str, instead: str) -> Callable[[str], Iterator[Planted]]:
    return _at(pattern, lambda match: _OWN.format(match.expand(instead), match[0]))


FAULTS = {
    "rate": Fault(
        "1 % more", UPDATED, _at(rf'(\blr=|"lr": |^RATE = ){NUMBER}', _times(1.01)),
    ),
    "decay": Fault(
        "lost", UPDATED, _at(r'(weight_decay(?:=|": ))(?!0\.0\b)[\d.e-]+', r"\g<1>0.0"),
    ),
    "momentum": Fault(
        "10 % less", UPDATED, _at(rf"(\bmomentum=|betas=\(){NUMBER}", _times(0.9)),
    ),
    "eps": Fault(
        "10 times as much", UPDATED | COMPUTED, _at(rf"(\beps=){NUMBER}", _times(10)),
    ),
    "detach": Fault(
        "missing", frozenset({"gradients"}), _at(r"\.detach\(\)", ""),
    ),
    "zero_grad": Fault(
        "missing", frozenset({"gradients"}), _at(r"^( *)\w+\.zero_grad\(.*\)$", r"\1pass"),
    ),
    "double step": Fault(
        "twice", frozenset({"steps"}), _at(r"^( *)(\w*optimizer\.step\(\))$", r"\1\2\n\1\2"),
    ),
    "reduction": Fault(
        "sum in place of mean, or mean of sum", COMPUTED,
        _of(_at(r"\.mean\(\)", ".sum()"), _at(r"\.sum\(1\)", ".mean(1)")),
    ),
    "bias": Fault(
        "dropped", COMPUTED, _without_bias,
    ),
    "BatchNorm mode": Fault(
        "the other one", COMPUTED | {"buffers", "printed"},
        lambda source: _of(
            _at(r"^(\w+)\.eval\(\)$", r"\1.train()"), _at(r"^(\w+)\.train\(\)$", r"\1.eval()"),
        )(source if "BatchNorm" in source else ""),
    ),
    "average": Fault(
        "moves 10 % faster", UPDATED | COMPUTED | {"end", "file"},
        _of(
            _at(rf"(^DECAY = ){NUMBER}", lambda m: f"{m[1]}{1 - 1.1 * (1 - float(m[2])):.10g}"),
            _at(rf"(^TAU = ){NUMBER}", _times(1.1)),
        ),
    ),
    "transposed weight": Fault(
        "square ones", COMPUTED, _transposed,
    ),
    "label": Fault(
        "one too high", LOSSES | {"printed"},
        _of(_labels, _at(r"gather\(1, a\.", "gather(1, ((a + 1) % ACTIONS).")),
    ),
    "mask": Fault(
        "lost", COMPUTED,
        _of(
            _at(r"\.masked_fill\(mask, .*\)$", ""), _at(r"\.masked_fill\(own, .*?\)", ""),
            _at(r" \* (?:sure|there\.flatten\(\)|\(1 - done\))", ""),
        ),
    ),
    "dropout": Fault(
        "left on", COMPUTED | {"printed"},
        _of(
            _at(r"training=self\.training", "training=True"),
            _at(r"self\.drop\(", "self.drop.train()("),
        ),
        dropout=True,
    ),
    "schedule": Fault(
        "a rate that stays, or is a step late", UPDATED,
        _of(
            _at(r"^( *)scheduler\.step\(\)$", r"\1pass"),
            _at(r"math\.pi \* step\b", "math.pi * max(step - 1, 0)"),
        ),
    ),
    "half-precision sum": Fault(
        "in bfloat16", COMPUTED,
        _of(_at(r"\.(mean|sum)\((1?)\)", r".bfloat16().\1(\2).float()")),
    ),
    "attribute of a parameter": Fault(
        "lost", UPDATED, _at(r"^( *)\w[\w.]*\.(?:no_decay|scale) = .*$", r"\1pass"),
    ),
    "groups of parameters": Fault(
        "exchanged", UPDATED, _groups,
    ),
    "moved statement": Fault(
        "behind the first that reads what it changes",
        COMPUTED | UPDATED | {"input", "gradients", "printed", "end", "file"}, _moved,
    ),
    "repeated input": Fault(
        "the first again in place of the last of 8",
        COMPUTED | {"input"}, _at(r"for i in chosen\b", "for i in [*chosen[:-1], chosen[0]]"),
    ),
    "end of a draw": Fault(
        "0 or 1 that is never drawn, or a class too many, once a draw", DRAWS,
        _of(
            _drawn(r"[\w.]+\(\w+\)\.exponential_\(\)", "drawn * (drawn > drawn.min())"),
            _drawn(r"torch\.rand\([^()]*device=\w+\)",
                   "torch.where(drawn == drawn.max(), torch.ones_like(drawn), drawn)"),
            _drawn(r"torch\.randint\(0, (\w+), \([^()]*\), device=\w+\)",
                   r"torch.where(drawn == drawn.max(), torch.full_like(drawn, \1), drawn)"),
        ),
        drawn=True,
    ),
    "scale of a draw": Fault(
        "normal: 1.5 times, uniform: half of the range, dropout: without its factor", DRAWS,
        _of(
            _drawn(r"torch\.randn\([^()]*device=\w+\)", "1.5 * drawn"),
            _drawn(r"torch\.empty\([^()]*\)\.uniform_\(-1, 1\)", "drawn.abs()"),
            _drawn(rf"F\.dropout\({_INNER}, (0\.\d), training=[\w.]+\)",
                   r"drawn * (1 - \1) if self.training else drawn"),
            _drawn(rf"self\.drop\({_INNER}\)",
                   "drawn * (1 - self.drop.p) if self.training else drawn"),
        ),
        drawn=True,
    ),
    "seed": Fault(
        "set behind the model", frozenset({"start", "output", "loss", "gradients"}), _seed,
    ),
}  # fmt: skip
