"""TensorFlow and Keras as a framework: the constructs that involve a GPU, or only TensorFlow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis import find_upgrades
from migrator.analysis.prefilter import Tokens
from migrator.analysis.syntax.names import Names
from migrator.construct import Construct
from migrator.frameworks.by_name import by_name
from migrator.frameworks.framework import Framework, ModuleView
from migrator.frameworks.tensorflow.installed import installed
from migrator.frameworks.tensorflow.keras_names import (
    MODULES,
    computing_backend,
    in_keras,
    keras_name,
)
from migrator.frameworks.tensorflow.keras_ops import activation, dtype_of, operation
from migrator.frameworks.tensorflow.replica_losses import terms
from migrator.frameworks.tensorflow.replica_metrics import scaled
from migrator.frameworks.tensorflow.tensorflow_obstacles import obstacles
from migrator.frameworks.tensorflow.tpu_obstacles import (
    divided,
    losses_of_parts,
    obstacles_elsewhere,
    own_averages,
    replica_functions,
)
from migrator.frameworks.tensorflow.traced import is_part, is_traced, traced_functions

# TargetApi of GPU code, and of Keras, which uses an available GPU without naming it.
_TOKENS = Tokens(
    b"/GPU:", rb"\bgpu:\d", rb"[\"']GPU[\"']", b"set_memory_growth", b"is_gpu_available",
    b"is_built_with_cuda", b"MirroredStrategy", b"OneDeviceStrategy", b"mixed_float16",
    b"LossScaleOptimizer", b"TF_FORCE_GPU", b"CUDA_VISIBLE", b"KERAS_BACKEND", b"GradientTape",
    rb"\btf\.(?:function|compat|estimator)\b", rb"(?:import|from|\btf\.|tensorflow\.)\s*keras\b",
    b"__command__", b"__setting__", b"__requirement__", b"__dependency__", b"__constraint__",
    b"__compiled__", b"__conda__", b"__build__", b"__table__", b"__pixi__",
    rb"[\"']tensorflow[-\w]*[\"'<>=!~ ;\[]", rb"[\"']keras[-\w]*[\"'<>=!~ ;\[]",  # in a setup.py
    rb"[\"']tf[-_]nightly[-\w]*[\"'<>=!~ ;\[]",
)  # fmt: skip
_FLOAT16 = "mixed_float16"


def constructs(view: ModuleView) -> list[Construct]:
    """The constructs of a module: names that rules handle, and those that need more than a name."""
    names = view.names
    named = by_name(view)
    own = [
        *_keras(names), *_computed(names), *_constants(names, view.vocabulary.variables),
        *installed(names),
    ]  # fmt: skip
    known = {c.node for c in own}
    upgrades = (c for c in find_upgrades.find(names) if c.node not in known)
    found = [*(c for c in named if c.node not in known), *own, *upgrades]
    place = {node: number for number, node in enumerate(names.order)}
    return sorted(found, key=lambda c: place.get(_placed(names, c.node), 0))


def _placed(names: Names, node: ast.AST) -> ast.AST:
    """The node that determines the position: for aliases and keywords, their parent."""
    return names.parents.get(node, node) if isinstance(node, ast.keyword | ast.arg) else node


def _keras(names: Names) -> Iterator[Construct]:
    """Imports of Keras, and `tf.keras` in an expression."""
    for node in names.order:
        match node:
            case ast.Import(names=aliases):
                if any(in_keras(alias.name) for alias in aliases):
                    yield Construct("keras", "import", node)
            case ast.ImportFrom(level=0, module=str(module), names=aliases):
                if any(in_keras(f"{module}.{alias.name}") for alias in aliases):
                    yield Construct("keras", "import", node)
            case ast.Attribute() if (name := names.qualified(node)) in MODULES:
                yield Construct("keras", name or "", node)
            case ast.Call(func=ast.Attribute(attr="numpy", value=value), args=[], keywords=[]):
                if _is_computed(names, value):
                    yield Construct("keras", "numpy", node)


def _is_computed(names: Names, value: ast.expr) -> bool:
    """Whether a value is the result of a Keras model, layer or function."""
    value = names.only_value(value)
    if not isinstance(value, ast.Call):
        return False
    if keras_name(names, value.func):
        return True
    made = names.only_value(value.func)
    if not isinstance(made, ast.Call):
        return False
    if keras_name(names, made.func):
        return True
    bound = names.lookup(made.func) if isinstance(made.func, ast.Name) else []
    return any(isinstance(b.node, ast.ClassDef) and is_part(names, b.node) for b in bound)


def _computed(names: Names) -> Iterator[Construct]:
    """TensorFlow operations in Keras models, and code that only runs in TensorFlow."""
    stopped = obstacles(names)
    yield from (Construct("tensorflow", "only", node) for node in stopped)
    for node in obstacles_elsewhere(names):
        if node not in stopped:
            yield Construct("tensorflow", "unfit", node)
    yield from _of_replicas(names)
    functions = traced_functions(names)
    for node in names.order:
        if node in stopped or not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = names.qualified(node) or ""
        if computing_backend(name) and operation(names, node, name):
            yield Construct("tensorflow", "operation", node)
        elif name.startswith("tensorflow.") and in_keras(name) is None:
            if is_traced(names, node, functions):
                if operation(names, node, name):
                    yield Construct("tensorflow", "operation", node)
                elif dtype_of(name):
                    yield Construct("tensorflow", "dtype", node)
            elif activation(name) and _is_given_to_keras(names, node):
                yield Construct("tensorflow", "activation", node)


def _of_replicas(names: Names) -> Iterator[Construct]:
    """Code that gives other results on several replicas than on one."""
    for step in divided(names):
        yield Construct("tensorflow", "step", step.function)
    for loss in losses_of_parts(names):
        yield Construct("tensorflow", "loss", loss)
    for average in own_averages(names):
        yield Construct("tensorflow", "term", average)
    for function in replica_functions(names):
        for term in terms(names, function):
            yield Construct("tensorflow", "term", term)
        for value in scaled(names, function):
            yield Construct("tensorflow", "measured", value)


def _is_given_to_keras(names: Names, node: ast.AST) -> bool:
    """Whether a function is passed to a layer."""
    above = names.parents.get(node)
    call = names.parents.get(above) if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call) or call.func is node:
        return False
    return keras_name(names, call.func).startswith("keras.layers.")


def _constants(names: Names, variables: frozenset[str]) -> Iterator[Construct]:
    for node in names.order:
        match node:
            case ast.Constant(value=str(text)) if text == _FLOAT16:
                yield Construct("precision", _FLOAT16, node)
            case ast.Constant(value=str(text)) if text in variables:
                yield Construct("variable", text, node)
            case ast.Call(func=ast.Attribute(attr="compile"), keywords=keywords):
                for keyword in keywords:
                    if keyword.arg == "jit_compile":
                        yield Construct("keyword", "jit_compile", keyword)


def _has_tokens(source: bytes) -> bool:
    return _TOKENS.are_in(source)


def _uses_device(construct: Construct) -> bool:
    return construct.kind in ("keras", "precision")


FRAMEWORK = Framework(
    name="tensorflow",
    module="tensorflow",
    packages=("tensorflow", "keras"),
    constructs=constructs,
    has_tokens=_has_tokens,
    uses_device=_uses_device,
    recorder="of_keras",
    follows_operations=False,
)
