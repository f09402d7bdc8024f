"""GPUs as TensorFlow names them: device blocks, lists of devices, memory."""

import ast
from collections.abc import Iterator

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    Unwrap,
    argument,
)
from migrator.rule_api.keras import listed_devices, stays

DEVICE = Rule(
    code="KER010",
    name="tensorflow-device",
    summary="`with tf.device(…)` for a GPU is removed: a TPU needs none",
    why="""Keras on JAX computes on the TPU anyway, and TensorFlow where a TPUStrategy places it.
So the code in the block stays, without the block. A block for the CPU stays, because TensorFlow
prepares data in it.""",
    framework="tensorflow",
    imports=("tensorflow",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            with tf.device("/GPU:0"):
                model = keras.Sequential([keras.layers.Dense(1)])
            """,
            after="""
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            with tf.device("/CPU:0"):
                data = tf.data.Dataset.from_tensor_slices(x)
            """,
            says={4: "does not name a GPU"},
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            with tf.device(args.device):
                model = keras.Sequential([keras.layers.Dense(1)])
            """,
            says={4: "the device is chosen elsewhere"},
        ),
    ),
)

LISTED = Rule(
    code="KER011",
    name="tensorflow-gpus",
    summary="settings for GPUs are removed; code that counts GPUs asks for the target's devices",
    why="""A TPU machine has no GPU, and TensorFlow's list of them is empty there. Memory growth
and virtual GPUs have no counterpart, and need none. `keras.distribution.list_devices()` lists
the back end's devices, and `tf.config.list_logical_devices("TPU")` TensorFlow's.""",
    framework="tensorflow",
    imports=("tensorflow",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            gpus = tf.config.list_physical_devices("GPU")
            if gpus:
                try:
                    for gpu in gpus:
                        tf.config.experimental.set_memory_growth(gpu, True)
                except RuntimeError as e:
                    print(e)
            model = keras.Sequential([keras.layers.Dense(1)])
            """,
            after="""
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            print("GPUs:", len(tf.config.list_physical_devices("GPU")))
            """,
            after="""
            import keras

            print("GPUs:", len(keras.distribution.list_devices()))
            """,
            except_on={
                "tf_tpu": """
            import keras
            import tensorflow as tf

            print("GPUs:", len(tf.config.list_logical_devices("TPU")))
            """
            },
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            gpus = tf.config.list_physical_devices("GPU")
            strategy = made_for(gpus[0].name)
            """,
            says={4: "is empty on a TPU machine, and line 5 takes a GPU from it"},
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            print("with CUDA:", tf.test.is_built_with_cuda())
            """,
            says={4: "not which device is used"},
        ),
    ),
)

_LISTS = (
    "tensorflow.config.list_physical_devices",
    "tensorflow.config.experimental.list_physical_devices",
    "tensorflow.config.list_logical_devices",
    "tensorflow.config.experimental.list_logical_devices",
)
_SETTINGS = (
    "tensorflow.config.experimental.set_memory_growth",
    "tensorflow.config.experimental.set_virtual_device_configuration",
    "tensorflow.config.set_logical_device_configuration",
    "tensorflow.config.experimental.set_visible_devices",
    "tensorflow.config.set_visible_devices",
)
_QUESTIONS = ("tensorflow.test.is_gpu_available", "tensorflow.test.gpu_device_name")
_BUILT = ("tensorflow.test.is_built_with_cuda", "tensorflow.test.is_built_with_gpu_support")


@DEVICE.on("name", "tensorflow.device")
def device(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node)
    named = argument(call, 0, "device_name") if call is not None else None
    if not isinstance(named, ast.Constant) or not isinstance(named.value, str):
        return Report("the device is chosen elsewhere: remove the block, a TPU needs none")
    if "gpu" not in named.value.lower():
        return Keep("does not name a GPU")
    if (held := stays(ctx)) is not None:
        return held
    item = ctx.names.parent(call) if call is not None else None
    block = ctx.names.parent(item) if isinstance(item, ast.withitem) else None
    if not isinstance(block, ast.With) or not isinstance(item, ast.withitem):
        return Report("is passed on: remove it, a TPU needs no block")
    return Rewrite([Unwrap(block, [item])])


@LISTED.on("name", *_LISTS)
def listed(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node)
    kind = argument(call, 0, "device_type") if call is not None else None
    if isinstance(kind, ast.Constant) and kind.value not in ("GPU", "XLA_GPU"):
        return Keep("does not list GPUs")
    if call is None or kind is None:
        return Report("the type of device is unknown here: a TPU machine has no GPUs")
    if (held := stays(ctx)) is not None:
        return held
    assigned = ctx.names.statement(call)
    if isinstance(assigned, ast.Assign) and assigned.value is call:
        return _assigned(ctx, assigned, call)
    if not _is_asked(ctx, call):
        return Report(f"is empty on a TPU machine: {listed_devices(ctx)[0]} has names")
    return _asks_target(ctx, call)


def _assigned(ctx: Context, statement: ast.Assign, call: ast.Call) -> Decision:
    """A list by a name: it goes with what is set by it, or asks for those of the target."""
    target = statement.targets[0]
    if len(statement.targets) > 1 or not isinstance(target, ast.Name):
        return Report(f"is empty on a TPU machine: {listed_devices(ctx)[0]} has names")
    scope = ctx.names.scope_of(target)
    if len(scope.bindings.get(target.id, ())) > 1:
        return Report("is empty on a TPU machine, and its variable is also used for something else")
    going = _going(ctx)
    uses = [*ctx.names.uses(target.id, scope)]
    left = [use for use in uses if _outermost(ctx, use, going) is None]
    blocks = {block for use in uses if (block := _outermost(ctx, use, going)) is not None}
    gone: list[Edit] = [Delete(block) for block in blocks]
    if not left:
        return Rewrite([Delete(statement), *gone], drops=[*blocks])
    taking = [use.lineno for use in left if not _is_asked(ctx, use)]
    if taking:
        return Report(f"is empty on a TPU machine, and line {taking[0]} takes a GPU from it")
    asked, requires = _listing(ctx, call)
    return Rewrite([asked, *gone], requires, drops=[*blocks])


def _listing(ctx: Context, call: ast.Call) -> tuple[Replace, tuple[str, ...]]:
    listing, requires = listed_devices(ctx)
    return Replace(call, listing), requires


def _asks_target(ctx: Context, call: ast.Call) -> Decision:
    asked, requires = _listing(ctx, call)
    return Rewrite([asked], requires)


def _is_asked(ctx: Context, use: ast.expr) -> bool:
    """Whether only the number of devices is asked for, whether there are any, or their names."""
    match ctx.names.parent(use):
        case ast.Call(func=ast.Name(id="len" | "bool" | "print" | "str"), args=args):
            return use in args
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return test is use
        case ast.UnaryOp(op=ast.Not()) | ast.BoolOp() | ast.FormattedValue() | ast.Expr():
            return True
    return False


@LISTED.on("name", *_SETTINGS)
def setting(ctx: Context, found: Construct) -> Decision | None:
    if (held := stays(ctx)) is not None:
        return held
    block = _outermost(ctx, found.node, _going(ctx))
    if block is None:
        return Report("is a setting for GPUs: remove it, a TPU needs none")
    return Rewrite([Delete(block)], drops=[block])


def _outermost(ctx: Context, node: ast.AST, going: set[ast.AST]) -> ast.stmt | None:
    """The largest of the statements that go around a node."""
    around = [a for a in ctx.names.ancestors(node) if a in going and isinstance(a, ast.stmt)]
    return around[-1] if around else None


def _going(ctx: Context) -> set[ast.AST]:
    """Statements that only set something of GPUs, and the blocks that hold nothing else."""
    going: set[ast.AST] = set()
    for statement in reversed([n for n in ctx.names.order if isinstance(n, ast.stmt)]):
        if _sets(ctx, statement, going):
            going.add(statement)
    return going


def _sets(ctx: Context, statement: ast.stmt, going: set[ast.AST]) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=function)):
            return ctx.names.qualified(function) in _SETTINGS
        case ast.For(body=body, orelse=[]):
            return _all_go(ctx, body, going)
        case ast.If(test=test, body=body, orelse=[]):
            return _all_go(ctx, body, going) and _asks_for_gpus(ctx, test)
        case ast.Try(body=body, handlers=handlers, orelse=[], finalbody=[]):
            return _all_go(ctx, body, going) and all(map(_only_says, _bodies(handlers)))
    return False


def _all_go(ctx: Context, body: list[ast.stmt], going: set[ast.AST]) -> bool:
    """Whether a block sets something of GPUs, and else only says what it has done."""
    return any(s in going for s in body) and all(
        s in going or _says(s) or _lists(ctx, s) for s in body
    )


def _bodies(handlers: list[ast.ExceptHandler]) -> Iterator[list[ast.stmt]]:
    return (handler.body for handler in handlers)


def _only_says(body: list[ast.stmt]) -> bool:
    return all(map(_says, body))


def _says(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass():
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)):
            calls = [n for a in args for n in ast.walk(a) if isinstance(n, ast.Call)]
            return all(isinstance(c.func, ast.Name) and c.func.id in _PURE for c in calls)
    return False


_PURE = ("len", "str")


def _lists(ctx: Context, statement: ast.stmt) -> bool:
    """`logical_gpus = tf.config.list_logical_devices("GPU")`, to say how many there are."""
    match statement:
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=function)):
            return ctx.names.qualified(function) in _LISTS
    return False


def _asks_for_gpus(ctx: Context, test: ast.expr) -> bool:
    """Whether a test asks for what a list of GPUs holds, and does nothing else."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and not (
            (isinstance(node.func, ast.Name) and node.func.id in ("len", "bool"))
            or ctx.names.qualified(node.func) in _LISTS
        ):
            return False
    named = [n for n in ast.walk(test) if isinstance(n, ast.Name | ast.Attribute)]
    lists = (
        ctx.names.qualified(value.func) in _LISTS
        for node in named
        for value in [ctx.names.only_value(node)]
        if isinstance(value, ast.Call)
    )
    return any(lists) or any(ctx.names.qualified(node) in _LISTS for node in named)


@LISTED.on("name", *_QUESTIONS)
def question(ctx: Context, found: Construct) -> Decision | None:
    if (held := stays(ctx)) is not None:
        return held
    call = ctx.names.call_of(found.node)
    if call is None or not _is_asked(ctx, call):
        return Report(f"finds no GPU on a TPU machine: {listed_devices(ctx)[0]} has names")
    return _asks_target(ctx, call)


@LISTED.on("name", *_BUILT)
def built(ctx: Context, found: Construct) -> Decision | None:
    return Keep("tells how TensorFlow was built, not which device is used")


@LISTED.on("name", "tensorflow.config.optimizer.set_jit")
def compiled(ctx: Context, found: Construct) -> Decision | None:
    if (held := stays(ctx)) is not None:
        return held
    statement = ctx.names.statement(found.node)
    if isinstance(statement, ast.Expr) and statement.value is ctx.names.call_of(found.node):
        return Rewrite([Delete(statement)])
    return Keep("compiles graphs for GPUs and CPUs; programs for a TPU are always compiled")
