"""Keras: float16 becomes bfloat16, without loss scaling; what compiles; float64."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    Safety,
    SetString,
    argument,
)
from migrator.rule_api.keras import keras_name, stays

MIXED = Rule(
    code="KER020",
    name="mixed-float16",
    summary="`mixed_float16` becomes `mixed_bfloat16`, and loss scaling is removed",
    why="""TPUs compute in bfloat16, not in float16. bfloat16 has the range of float32, so
Keras only scales losses for `mixed_float16`. Its significand has 8 bits instead of 11.""",
    framework="tensorflow",
    references=("https://keras.io/api/mixed_precision/",),
    examples=(
        Example(
            """
            import keras

            keras.mixed_precision.set_global_policy("mixed_float16")
            """,
            after="""
            import keras

            keras.mixed_precision.set_global_policy("mixed_bfloat16")
            """,
        ),
        Example(
            """
            import keras

            optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3))
            """,
            after="""
            import keras

            optimizer = keras.optimizers.Adam(1e-3)
            """,
        ),
        Example(
            """
            import keras

            policy = "mixed_float16" if args.half else "float32"
            """,
            says={3: "is a policy for GPUs"},
        ),
        Example(
            """
            import keras

            adam = keras.optimizers.Adam()
            optimizer = keras.optimizers.LossScaleOptimizer(adam, initial_scale=1024)
            """,
            says={4: "by its own settings"},
        ),
    ),
)

COMPILED = Rule(
    code="KER021",
    name="jit-compile",
    summary="`jit_compile` is removed where it would slow a TPU down",
    why="""With `jit_compile=False`, nothing is compiled on JAX, and a TPU waits for each
operation. By default Keras compiles what it can. What a TPUStrategy runs, TensorFlow compiles as
a whole, so `jit_compile=True` inside of it is removed.""",
    framework="tensorflow",
    examples=(
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse", jit_compile=False)
            """,
            after="""
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            """,
            except_on={"tf_tpu": None},
        ),
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse", jit_compile="auto")
            """,
        ),
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse", jit_compile=args.jit)
            """,
            except_on={
                "tf_tpu": """
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            """
            },
        ),
    ),
)

DOUBLE = Rule(
    code="KER022",
    name="keras-float64",
    summary="a TPU has no float64",
    why="""JAX has no 64-bit types unless `JAX_ENABLE_X64` is set, and warns once that it uses
float32 instead. On a TPU float64 is emulated, and slow.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    examples=(
        Example(
            """
            import keras

            keras.config.set_floatx("float64")
            """,
        ),
        Example(
            """
            import keras

            keras.config.set_floatx("float32")
            """,
            says={3: "a TPU has this type"},
        ),
        Example(
            """
            import keras

            keras.config.set_floatx(args.dtype)
            """,
            says={3: "may be float64"},
        ),
    ),
)

_POLICIES = (
    "set_global_policy", "set_policy", "Policy", "set_dtype_policy", "DTypePolicy",
)  # fmt: skip
_SCALES = tuple(
    f"{library}{module}.LossScaleOptimizer"
    for library in ("keras.", "tensorflow.keras.")
    for module in ("optimizers", "mixed_precision", "mixed_precision.experimental")
)
_FLOATX = tuple(
    f"{library}{module}.set_floatx"
    for library in ("keras.", "tensorflow.keras.")
    for module in ("backend", "config")
)


@MIXED.on("precision", "mixed_float16", node=ast.Constant)
def mixed(ctx: Context, found: Construct, node: ast.Constant) -> Decision | None:
    if (held := stays(ctx)) is not None:
        return held
    above = ctx.names.parent(node)
    is_dtype = isinstance(above, ast.keyword) and above.arg in ("dtype", "policy", "name")
    call = ctx.names.parent(above) if isinstance(above, ast.keyword) else above
    if isinstance(call, ast.Call):
        name = keras_name(ctx.names, call.func)
        if name.rpartition(".")[2] in _POLICIES or (is_dtype and name):
            return Rewrite([SetString(node, "mixed_bfloat16")])
    return Report("is a policy for GPUs: a TPU's is mixed_bfloat16")


@MIXED.on("name", *_SCALES)
def scaled(ctx: Context, found: Construct) -> Decision | None:
    if (held := stays(ctx)) is not None:
        return held
    call = ctx.names.call_of(found.node)
    inner = argument(call, 0, "inner_optimizer", "opt", "optimizer") if call is not None else None
    if call is None or inner is None:
        return Report("scales losses for float16: bfloat16 needs no scaling")
    if len(call.args) + len(call.keywords) > 1:
        return Report("scales losses for float16, by its own settings: bfloat16 needs no scaling")
    return Rewrite([Replace(call, "{inner}", {"inner": inner})])


@COMPILED.on("keyword", "jit_compile", node=ast.keyword)
def compiled(ctx: Context, found: Construct, keyword: ast.keyword) -> Decision | None:
    call = ctx.names.parent(keyword)
    if not isinstance(call, ast.Call):
        return None
    if (held := stays(ctx)) is not None:
        return held
    value = keyword.value
    if not ctx.api.keras_backend:
        if isinstance(value, ast.Constant) and value.value in (False, "auto", None):
            return Keep("code run by a strategy is always compiled for a TPU")
        return Rewrite([EditCall(call, drop=[keyword])])
    if isinstance(value, ast.Constant) and value.value is False:
        return Rewrite([EditCall(call, drop=[keyword])])
    if isinstance(value, ast.Constant):
        return Keep("compiles, as Keras does by default on JAX")
    return Report("may turn compilation off, and a TPU then waits for each operation: remove it")


@DOUBLE.on("name", *_FLOATX)
def floatx(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node)
    value = argument(call, 0, "value") if call is not None else None
    match value:
        case ast.Constant(value="float32" | "bfloat16"):
            return Keep("a TPU has this type")
        case ast.Constant(value="float16"):
            return Report("float16 has no advantage on a TPU, and its range is small: use bfloat16")
        case ast.Constant(value="float64"):
            return Report(f"a TPU has none: {ctx.api.float64}")
    return Report(f"may be float64: {ctx.api.float64}")
