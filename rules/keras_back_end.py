"""Keras: its back end, chosen before it is imported, and imports by TensorFlow."""

import ast
import sys

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    EditImport,
    Example,
    Family,
    Insert,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    SetString,
)
from migrator.rule_api.keras import (
    MODULES,
    in_keras,
    is_legacy,
    keras,
    stays,
)
from migrator.rule_api.python import holds_import, last_import

FAMILY = Family("KER", "Keras and TensorFlow", 98)
_OTHERS = frozenset({"torch", "openvino", "numpy"})  # back ends that a program may be for
_BACK_END, _PRECISION = "KERAS_BACKEND", "JAX_DEFAULT_MATMUL_PRECISION"

BACK_END = Rule(
    code="KER001",
    name="keras-back-end",
    summary="an entry script chooses Keras' back end before Keras is imported",
    why="""Keras 3 reads `KERAS_BACKEND` once, when it is imported. A TPU multiplies float32 in
bfloat16 by default, so JAX is told to keep float32; `mixed_bfloat16` stays as fast. Both lines
go above the first import that may import Keras. A program with something that only TensorFlow
runs (KER003) keeps TensorFlow.""",
    framework="tensorflow",
    references=("https://keras.io/getting_started/#configuring-your-backend",),
    examples=(
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.fit(x, y)
            """,
            after="""
            import os

            os.environ["KERAS_BACKEND"] = "jax"
            os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"  # float32 stays float32

            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.fit(x, y)
            """,
            except_on={
                "tf_tpu": """
            import keras
            import os
            import tensorflow

            try:
                tpu = tensorflow.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
                tensorflow.config.experimental_connect_to_cluster(tpu)
                tensorflow.tpu.experimental.initialize_tpu_system(tpu)
                strategy = tensorflow.distribute.TPUStrategy(tpu)
            except (ValueError, tensorflow.errors.NotFoundError, tensorflow.errors.InternalError) as error:
                tensorflow.get_logger().warning("no TPU was found, so this runs on the CPU or GPU: %s", error)
                strategy = tensorflow.distribute.get_strategy()

            with strategy.scope():
                model = keras.Sequential([keras.layers.Dense(1)])
                model.compile("sgd", "mse")
            model.fit(x, y)
            """  # noqa: E501
            },
            script=True,
        ),
        Example(
            """
            import os
            os.environ["KERAS_BACKEND"] = "tensorflow"
            import keras
            """,
            after="""
            import os
            os.environ["KERAS_BACKEND"] = "jax"
            import keras
            """,
            except_on={"tf_tpu": None},
        ),
        Example(
            """
            import os
            os.environ["KERAS_BACKEND"] = "torch"
            import keras
            """,
            says={2: "the program is for Keras on 'torch': it stays"},
        ),
        Example(
            """
            import os
            os.environ.setdefault("KERAS_BACKEND", back_end)
            import keras
            """,
            says={2: "may choose a back end other than"},
        ),
    ),
)

IMPORT = Rule(
    code="KER002",
    name="keras-import",
    summary="Keras is imported by its own name, not by TensorFlow's",
    why="""`tf.keras` is Keras 3 (TensorFlow 2.16 or later), and `keras` the same without
TensorFlow. `tf.data`, and everything else that runs on the host, stays TensorFlow's. Names that
only `tf.keras` has, such as `ImageDataGenerator`, stay: they work with any back end.""",
    framework="tensorflow",
    imports=("tensorflow",),
    examples=(
        Example(
            """
            import tensorflow as tf
            from tensorflow import keras
            from tensorflow.keras import layers
            from tensorflow.keras.optimizers import Adam

            data = tf.data.Dataset.from_tensor_slices(x).batch(32)
            model = keras.Sequential([layers.Dense(1)])
            model.compile(Adam(), "mse")
            """,
            after="""
            import tensorflow as tf
            import keras
            from keras import layers
            from keras.optimizers import Adam

            data = tf.data.Dataset.from_tensor_slices(x).batch(32)
            model = keras.Sequential([layers.Dense(1)])
            model.compile(Adam(), "mse")
            """,
            except_on={"tf_tpu": None},
        ),
        Example(
            """
            import tensorflow as tf

            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            """,
            after="""
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            """,
            except_on={"tf_tpu": None},
        ),
        Example(
            """
            import tensorflow as tf
            from tensorflow.keras.preprocessing.image import ImageDataGenerator

            data = ImageDataGenerator(rescale=1 / 255).flow(x, y)
            """,
        ),
    ),
)


NUMPY = Rule(
    code="KER005",
    name="keras-numpy",
    summary="`.numpy()` of what Keras computes becomes `keras.ops.convert_to_numpy`",
    why="""Only TensorFlow's tensors have `.numpy()`; `keras.ops.convert_to_numpy` takes those of
any back end. Elements of data sets are TensorFlow's, so they stay.""",
    framework="tensorflow",
    examples=(
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            y = model(x).numpy()
            """,
            after="""
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            y = keras.ops.convert_to_numpy(model(x))
            """,
            except_on={"tf_tpu": None},
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            for row in tf.data.Dataset.from_tensor_slices(x):
                print(row.numpy())
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            y = tf.convert_to_tensor(x).numpy()
            """,
        ),
    ),
)


@BACK_END.on("variable", _BACK_END, node=ast.Constant)
def chosen(ctx: Context, found: Construct, node: ast.Constant) -> Decision | None:
    wanted = ctx.api.keras_backend or "tensorflow"
    value = _given(ctx, node)
    if value is None:
        return Report(f"may choose a back end other than {wanted}: set it to {wanted}")
    if value.value == wanted:
        return Keep("is the target's back end")
    if value.value != "tensorflow" or not ctx.api.keras_backend:
        return Report(f"the program is for Keras on {value.value!r}: it stays")
    if (held := stays(ctx)) is not None:
        return held
    return Rewrite([SetString(value, wanted)])


def _given(ctx: Context, name: ast.Constant) -> ast.Constant | None:
    """The value that a variable is set to."""
    value: ast.expr | None = None
    match ctx.names.parent(name):
        case ast.Subscript(ctx=ast.Store()) as place:
            match ctx.names.parent(place):
                case ast.Assign(value=value):
                    pass
        case ast.Call(args=[_, value]):
            pass
    return value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


@BACK_END.on("file", "setup")
def set_up(ctx: Context, found: Construct) -> Decision | None:
    wanted = ctx.api.keras_backend
    if not wanted or not ctx.file.is_entry or not _uses_keras(ctx) or stays(ctx) is not None:
        return None
    precision = ctx.options.precision or "highest"
    said = {n.value for n in ctx.names.order if isinstance(n, ast.Constant)}
    if said & _OTHERS and _BACK_END in said:
        return None
    lines = []
    if _BACK_END not in said:
        lines.append(f'os.environ["{_BACK_END}"] = "{wanted}"')
    if _PRECISION not in said:
        comment = "  # float32 stays float32" if precision == "highest" else ""
        lines.append(f'os.environ["{_PRECISION}"] = "{precision}"{comment}')
    if not lines:
        return None
    anchor, before = _above_keras(ctx)
    is_imported, edits = _imports_of_os(ctx, anchor, before)
    if not is_imported:
        lines[:0] = ["import os", ""]
    gap = [] if anchor is not None and is_standard(anchor) and not is_imported else [""]
    inserted = Insert(ctx.names.tree, anchor, [*gap, *lines, ""], before, ahead=True)
    return Rewrite([inserted, *edits])


def _uses_keras(ctx: Context) -> bool:
    if any(found.kind == "keras" for found in ctx.constructs):
        return True
    project = ctx.project
    read = (project.reader.read(path) or b"" for path in project.reached()) if project else ()
    return any(ctx.framework.is_imported_in(source) and b"keras" in source for source in read)


def _above_keras(ctx: Context) -> tuple[ast.stmt | None, bool]:
    """Behind the imports of the standard library: what comes next may bring Keras."""
    names = ctx.names
    first = next((s for s in names.tree.body if holds_import(s) and not is_standard(s)), None)
    if first is None:
        return last_import(names, set()), False
    above = last_import(names, {first})
    return (above, False) if above is not None else (first, True)


def is_standard(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import(names=aliases):
            heads = {alias.name.partition(".")[0] for alias in aliases}
        case ast.ImportFrom(level=0, module=str(module)):
            heads = {module.partition(".")[0]}
        case _:
            return False
    return heads <= sys.stdlib_module_names


def _imports_of_os(ctx: Context, anchor: ast.stmt | None, before: bool) -> tuple[bool, list[Edit]]:
    """Whether `os` is imported above the set-up; else what takes away a later import of it."""
    line = 0 if anchor is None else anchor.lineno - before
    edits: list[Edit] = []
    for statement in ctx.names.tree.body:
        if not isinstance(statement, ast.Import):
            continue
        plain = [a for a in statement.names if a.name == "os" and a.asname is None]
        if plain and statement.lineno <= line:
            return True, []
        if plain:
            alone = len(statement.names) == len(plain)
            edits.append(Delete(statement) if alone else EditImport(statement, drop=plain))
    return False, edits


@IMPORT.on("keras", "import")
def imported(ctx: Context, found: Construct) -> Decision | None:
    node = found.node
    if not ctx.api.keras_backend:
        return Keep("the target runs Keras with TensorFlow")
    if (held := stays(ctx)) is not None:
        return held
    match node:
        case ast.ImportFrom(module=str(module), names=aliases):
            new = in_keras(module)
            if new == module:
                return Keep("Keras uses the chosen back end")
            if any(is_legacy(f"{module}.{alias.name}") for alias in aliases):
                return Keep("only tf.keras has it, for any back end")
            if new is not None:
                return Rewrite([EditImport(node, module=new)])
            return _from_tensorflow(ctx, node)
        case ast.Import(names=aliases):
            new_names = {a: in_keras(a.name) or a.name for a in aliases}
            changed = {a: name for a, name in new_names.items() if name != a.name}
            if not changed:
                return Keep("Keras uses the chosen back end")
            if any(a.asname is None for a in changed):
                return Report("binds the name tensorflow: write `import keras`")
            rename = {a: _spelled(name, a.asname or "") for a, name in changed.items()}
            return Rewrite([EditImport(node, rename=rename)])
    return None


def _from_tensorflow(ctx: Context, node: ast.ImportFrom) -> Decision:
    """`from tensorflow import keras`"""
    mine = [a for a in node.names if in_keras(f"{node.module}.{a.name}")]
    if [a.name for a in mine] != ["keras"]:
        return Report("imports Keras' modules under another name: import them from keras")
    statement = "import " + _spelled("keras", mine[0].asname or "keras")
    away = Delete(node) if len(node.names) == 1 else EditImport(node, drop=mine)
    return Rewrite([Insert(ctx.names.tree, node, [statement], before=True), away])


def _spelled(name: str, local: str) -> str:
    return name if name == local else f"{name} as {local}"


@IMPORT.on("keras", *MODULES, node=ast.expr)
def spelled_out(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    if not ctx.api.keras_backend:
        return Keep("the target runs Keras with TensorFlow")
    if (held := stays(ctx)) is not None:
        return held
    whole: ast.expr = node
    while isinstance(above := ctx.names.parent(whole), ast.Attribute):
        whole = above
    if is_legacy(ctx.names.qualified(whole) or ""):
        return Keep("only tf.keras has it, for any back end")
    above = ctx.names.parent(node)
    match above:
        case ast.Assign(targets=[ast.Name(id="keras")]) if MODULES[found.key] == "keras":
            lines = Insert(ctx.names.tree, above, ["import keras"], before=True)
            return Rewrite([lines, Delete(above)])
    spelled, requires = keras(ctx)
    return Rewrite([Replace(node, spelled + MODULES[found.key].removeprefix("keras"))],
                   requires)  # fmt: skip


@NUMPY.on("keras", "numpy", node=ast.Call)
def array(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    if not ctx.api.keras_backend:
        return Keep("is a TensorFlow tensor")
    if (held := stays(ctx)) is not None:
        return held
    assert isinstance(node.func, ast.Attribute)
    spelled, requires = keras(ctx)
    template = f"{spelled}.ops.convert_to_numpy({{value}})"
    return Rewrite([Replace(node, template, {"value": node.func.value})], requires)
