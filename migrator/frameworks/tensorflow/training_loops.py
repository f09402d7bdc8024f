"""Custom training loops: their steps and datasets.

A training step that is called with each batch of a dataset can run on all replicas of a strategy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import argument, parameters
from migrator.frameworks.tensorflow.replica_losses import Training, trainings
from migrator.frameworks.tensorflow.single_assignment import class_of, only_made, value_of

_LOOPS = (ast.For, ast.While)
_AROUND_STEPS = (ast.Module, ast.FunctionDef, ast.ClassDef)
# Dataset methods after which the elements are still the batches made by `batch`.
_AS_BATCHED = frozenset({
    "cache", "filter", "map", "prefetch", "repeat", "shuffle", "skip", "take", "with_options",
})  # fmt: skip
_BATCHES = {"batch": 1, "padded_batch": 3}  # and the position of drop_remainder
_AROUND = ("enumerate", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm")
_DEPTH = 12  # functions that datasets are created from


@dataclass(frozen=True)
class Loop:
    """A loop over a dataset whose body calls a step."""

    call: ast.Call
    statement: ast.For
    data: ast.expr  # its iterable
    counted: ast.Call | None  # `data.enumerate(…)`, if used
    batched: tuple[ast.Call, ...]  # the calls that make its batches
    parts: dict[str, str]  # by the loop's variables: their place in an element

    def outermost(self, names: Names) -> ast.stmt:
        """The outermost loop around it in the same function."""
        found: ast.stmt = self.statement
        for above in names.ancestors(self.statement):
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
                break
            found = above if isinstance(above, _LOOPS) else found
        return found


@dataclass(frozen=True)
class Step:
    """A function that trains on a batch, and the loops that call it."""

    training: Training
    function: ast.FunctionDef
    decorator: ast.expr | None  # tf.function
    loops: tuple[Loop, ...]
    own: str  # `self`, of a method

    @property
    def parameters(self) -> list[str]:
        """The parameters that calls pass."""
        found = [parameter.arg for parameter, _ in parameters(self.function.args)]
        return found[1:] if self.own else found

    def given(self, loop: Loop) -> dict[str, ast.expr]:
        """The argument that a call passes for each parameter, including `self`."""
        by_place = dict(zip(self.parameters, loop.call.args, strict=False))
        found = by_place | {k.arg: k.value for k in loop.call.keywords if k.arg}
        match loop.call.func:
            case ast.Attribute(value=owner) if self.own:
                found[self.own] = owner
        return found

    def shared(self) -> list[str]:
        """The parameters that are parts of a batch."""
        (first, *_) = self.loops
        given = self.given(first)
        return [p for p in self.parameters if _id(given.get(p)) in first.parts]


def _id(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class Unfit:
    """A place that prevents a step from being divided, and the reason."""

    node: ast.AST
    name: str
    reason: str


Found = Step | Unfit
NO_FUNCTION = (
    "trains outside of a tf.function: move the code for one batch into one, and call it in a "
    "loop over the dataset, so that strategy.run can call it on each core "
    "(https://www.tensorflow.org/tutorials/distribute/custom_training)"
)
_ELSEWHERE = (
    "is not only called with the parts of a batch in a loop over a dataset: strategy.run needs "
    "the batches of strategy.experimental_distribute_dataset"
)
_DATA = (
    "is not a dataset with a .batch(…) in this script: end it with .batch(…), or distribute it "
    "with strategy.experimental_distribute_dataset yourself"
)
_REST = "is a part of a batch, and each core has another part: only use it in the step"
_OBJECTS = (
    "is a method of {0}, but this script does not create exactly one {0}(…), so it is unclear "
    "what the step trains"
)
_SMALLER = "keeps a smaller last batch, which can't be divided equally: set drop_remainder=True"


def steps(names: Names) -> list[Found]:
    """The steps of custom loops, and the obstacles in others."""
    return _steps(names, names.tree)


@once_in
def _steps(names: Names, tree: ast.AST) -> list[Found]:
    found: dict[ast.AST, Found] = {}
    for training in trainings(names):
        if training.is_of_fit(names):
            continue
        step = training.function
        if step is None or not isinstance(names.parents.get(step), _AROUND_STEPS):
            found[training.tape] = Unfit(training.tape, "tf.GradientTape", NO_FUNCTION)
        elif step not in found:
            found[step] = _step(names, training, step)
    return list(found.values())


def _step(names: Names, training: Training, function: ast.FunctionDef) -> Found:
    plain = function.args
    if plain.vararg or plain.kwarg or plain.defaults or plain.kw_defaults or plain.posonlyargs:
        return Unfit(function, function.name, "has parameters other than plain positional ones")
    decorator = next(iter(function.decorator_list), None)
    if len(function.decorator_list) > 1 or (decorator and not _compiles(names, decorator)):
        return Unfit(training.tape, "tf.GradientTape", NO_FUNCTION)
    owner = names.parents.get(function)
    is_method = isinstance(owner, ast.ClassDef)
    if isinstance(owner, ast.ClassDef) and (only_made(names, owner) is None or not plain.args):
        return Unfit(function, function.name, _OBJECTS.format(owner.name))
    loops = []
    for use in _uses(names, function):
        loop = _loop(names, use) if _is_own(names, use, owner) else None
        if loop is None:
            return Unfit(use, function.name, _ELSEWHERE)
        if isinstance(loop, Unfit):
            return loop
        loops.append(loop)
    if not loops:
        return Unfit(function, function.name, _ELSEWHERE if decorator else NO_FUNCTION)
    own = plain.args[0].arg if is_method else ""
    step = Step(training, function, decorator, tuple(loops), own)
    shared = {tuple(_id(step.given(loop).get(p)) in loop.parts for p in step.parameters)
              for loop in loops}  # fmt: skip
    if len(shared) > 1 or not step.shared():
        return Unfit(loops[0].call, function.name, _ELSEWHERE)
    return step


def _uses(names: Names, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The references to a step, by name or as a method."""
    if isinstance(names.parents.get(function), ast.ClassDef):
        yield from names.by_attribute.get(function.name, ())
    else:
        yield from names.uses(function.name, names.scope_of(function))


def _is_own(names: Names, use: ast.expr, owner: ast.AST | None) -> bool:
    """Whether a method belongs to the only object of its class; always true for functions."""
    held = use.value if isinstance(use, ast.Attribute) else None
    if not isinstance(owner, ast.ClassDef):
        return True
    return isinstance(held, ast.Name) and class_of(names, held) is owner


def _compiles(names: Names, decorator: ast.expr | None) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called is not None and names.qualified(called) == "tensorflow.function"


def _loop(names: Names, use: ast.expr) -> Loop | Unfit:
    """The loop over a dataset in which this reference calls a step."""
    call = names.call_of(use)
    name = ast.unparse(use)
    inner = None if call is None else next(_fors(names, call), None)
    if call is None or inner is None or any(isinstance(a, ast.Starred) for a in call.args):
        return Unfit(use, name, _ELSEWHERE)
    outer = names.function(inner)
    if outer is not None and outer.decorator_list:
        return Unfit(
            use, name, ("is called in a function with a decorator: move the loop out of it")
        )
    data, target = inner.iter, inner.target
    while isinstance(data, ast.Call) and names.qualified(data.func) in _AROUND and data.args:
        if names.qualified(data.func) == "enumerate":
            if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                return Unfit(use, name, _ELSEWHERE)
            target = target.elts[1]
        data = data.args[0]
    counted = None
    match data:
        case ast.Call(func=ast.Attribute(value=inside, attr="enumerate")):
            if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                return Unfit(use, name, _ELSEWHERE)
            counted, data, target = data, inside, target.elts[1]
    parts = _parts_of_result(target)
    batched = _batched(names, data)
    if not batched:
        return Unfit(data, ast.unparse(data), _DATA)
    for made in batched:
        last = argument(made, _BATCHES[_method(made)], "drop_remainder")
        if last is not None and not (isinstance(last, ast.Constant) and last.value is True):
            return Unfit(made, ".batch", _SMALLER)
    loop = Loop(call, inner, data, counted, batched, parts)
    other = _other_use(names, loop)
    return loop if other is None else Unfit(other, other.id, _REST)


def _fors(names: Names, node: ast.AST) -> Iterator[ast.For]:
    """The `for` loops around a call in the same function."""
    for above in names.ancestors(node):
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.While):
            return
        if isinstance(above, ast.For):
            yield above


def _parts_of_result(target: ast.expr, path: str = "") -> dict[str, str]:
    if isinstance(target, ast.Name):
        return {target.id: path}
    found: dict[str, str] = {}
    for place, part in enumerate(target.elts if isinstance(target, ast.Tuple) else ()):
        found |= _parts_of_result(part, f"{path}[{place}]")
    return found


def _other_use(names: Names, loop: Loop) -> ast.Name | None:
    """A variable of the loop that is used outside of the call, in the loop or after it."""
    own = {*loop.call.args, *(k.value for k in loop.call.keywords)}
    scope = names.scope_of(loop.statement)
    for name in loop.parts:
        for node in names.uses(name, scope):
            around = next(
                (f for f in _fors(names, node) if name in _parts_of_result(f.target)), None
            )
            if around not in (None, loop.statement) or node in own:
                continue
            if node.lineno > loop.statement.lineno and not _is_given(names, node, loop):
                return node
    return None


def _is_given(names: Names, node: ast.Name, loop: Loop) -> bool:
    """Whether a name is passed to another call of the same step."""
    call = names.parents.get(node)
    return (
        isinstance(call, ast.Call)
        and node in call.args
        and ast.unparse(call.func) == ast.unparse(loop.call.func)
    )


# ---- data sets -----------------------------------------------------------------------------------


def _batched(names: Names, data: ast.expr, depth: int = 0) -> tuple[ast.Call, ...]:
    """The calls that make a dataset's batches; none if they are not found."""
    if depth > _DEPTH:
        return ()
    match data:
        case ast.Name():
            values = _values(names, data)
            found = [_batched(names, value, depth + 1) for value in values]
            return tuple(dict.fromkeys(c for f in found for c in f)) if all(found) else ()
        case ast.Attribute() if (held := value_of(names, data)) is not data:
            return _batched(names, held, depth + 1)
        case ast.Call(func=ast.Attribute(attr="zip"), args=[ast.Tuple(elts=several)]):
            found = [_batched(names, each, depth + 1) for each in several]
            return tuple(c for f in found for c in f) if all(found) else ()
        case ast.Call(func=ast.Attribute(value=inner, attr=method)):
            if method in _BATCHES:
                return (data,)
            return _batched(names, inner, depth + 1) if method in _AS_BATCHED else ()
    return ()


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _values(names: Names, name: ast.Name) -> list[ast.expr]:
    """The values of a name: the last assignment above, or what all calls pass for a parameter."""
    found = names.lookup(name)
    if len(found) == 1 and found[0].kind == "param":
        return _given_for(names, found[0])
    if not found or any(bound.kind != "assign" or bound.value is None for bound in found):
        return []
    here = names.scope_of(found[0].node) is names.scope_of(name)
    above = [b for b in found if not here or getattr(b.node, "lineno", 0) < name.lineno]
    blocks = {id(names.block(s)) if (s := names.statement(b.node)) else 0 for b in found}
    if not above or len(blocks) > 1:
        return []
    assert above[-1].value is not None
    return [above[-1].value]


def _given_for(names: Names, parameter: Binding) -> list[ast.expr]:
    function = names.parents.get(parameter.node)
    if not isinstance(function, ast.FunctionDef) or not isinstance(parameter.node, ast.arg):
        return []
    owner = names.parents.get(function)
    place = [a.arg for a in function.args.args].index(parameter.node.arg)
    place -= isinstance(owner, ast.ClassDef)
    found = []
    for use in _uses(names, function):
        call = names.call_of(use) if _is_own(names, use, owner) else None
        given = argument(call, place, parameter.node.arg) if call is not None else None
        if given is None:
            return []
        found.append(given)
    return found


def leaves_last_out(call: ast.Call) -> bool:
    """Whether a call of `batch` has drop_remainder."""
    return argument(call, _BATCHES[_method(call)], "drop_remainder") is not None
