"""tf.distribute: one process has all devices, and Keras divides each batch over them."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    Example,
    Insert,
    Replace,
    ReplaceStatement,
    Report,
    Rewrite,
    Rule,
    Snippet,
    Unwrap,
)
from migrator.rule_api.keras import (
    MIRRORED,
    ONE_DEVICE,
    WORKERS,
    is_own_strategy,
    keras,
    stays,
    strategy_of,
    tpu_obstacles,
)

STRATEGY = Rule(
    code="KER030",
    name="mirrored-strategy",
    summary="MirroredStrategy becomes keras.distribution.DataParallel, or a TPUStrategy",
    why="""With TensorFlow, a `TPUStrategy` takes the place of `MirroredStrategy`,
`MultiWorkerMirroredStrategy` and `OneDeviceStrategy`, and its uses stay. Keras on JAX has
`DataParallel`, set once before a model is made, which divides each batch over all devices; `scope`
has no counterpart, and needs none. OneDeviceStrategy is removed there. With any other use of a
strategy the program stays.

Each batch, also the last (`drop_remainder=True`), has to be a multiple of the number of devices, or
JAX raises an error. Batch normalization then averages over the whole batch, where MirroredStrategy
does over each GPU's part.""",
    framework="tensorflow",
    imports=("tensorflow",),
    references=("https://keras.io/guides/distribution/",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            strategy = tf.distribute.MirroredStrategy()
            batch = 64 * strategy.num_replicas_in_sync
            with strategy.scope():
                model = keras.Sequential([keras.layers.Dense(1)])
                model.compile("sgd", "mse")
            """,
            after="""
            import keras

            keras.distribution.set_distribution(keras.distribution.DataParallel())
            batch = 64 * len(keras.distribution.list_devices())
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            """,
            except_on={
                "tf_tpu": """
            import keras
            import os
            import tensorflow as tf

            try:
                tpu = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
                tf.config.experimental_connect_to_cluster(tpu)
                tf.tpu.experimental.initialize_tpu_system(tpu)
                strategy = tf.distribute.TPUStrategy(tpu)
            except (ValueError, tf.errors.NotFoundError, tf.errors.InternalError) as error:
                tf.get_logger().warning("no TPU was found, so this runs on the CPU or GPU: %s", error)
                strategy = tf.distribute.get_strategy()
            batch = 64 * strategy.num_replicas_in_sync
            with strategy.scope():
                model = keras.Sequential([keras.layers.Dense(1)])
                model.compile("sgd", "mse")
            """  # noqa: E501
            },
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            strategy = tf.distribute.MirroredStrategy()
            train = strategy.experimental_distribute_dataset(train)
            """,
            except_on={
                "tf_tpu": """
            import keras
            import os
            import tensorflow as tf

            try:
                tpu = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
                tf.config.experimental_connect_to_cluster(tpu)
                tf.tpu.experimental.initialize_tpu_system(tpu)
                strategy = tf.distribute.TPUStrategy(tpu)
            except (ValueError, tf.errors.NotFoundError, tf.errors.InternalError) as error:
                tf.get_logger().warning("no TPU was found, so this runs on the CPU or GPU: %s", error)
                strategy = tf.distribute.get_strategy()
            train = strategy.experimental_distribute_dataset(train)
            """  # noqa: E501
            },
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            strategy = tf.distribute.get_strategy()
            batch = 64 * strategy.num_replicas_in_sync
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
            """,
        ),
    ),
)


@STRATEGY.on("name", MIRRORED, ONE_DEVICE, *WORKERS, node=ast.expr)
def strategy(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    if (held := stays(ctx)) is not None:
        return held
    if ctx.api.strategy is not None:
        return _on_tpus(ctx, ctx.api.strategy, found)
    known = strategy_of(ctx.names, node)
    assert known is not None  # any other is an obstacle
    spelled, requires = keras(ctx)
    own = f"{spelled}.distribution"
    edits: list[Edit] = [
        *(Unwrap(block, [item]) for block, item in known.scopes),
        *(Replace(count, f"len({own}.list_devices())") for count in known.counts),
    ]
    drops = [item for _, item in known.scopes]
    if found.key == ONE_DEVICE:
        return Rewrite([Delete(known.made), *edits], drops=drops)
    text = f"{own}.set_distribution({own}.DataParallel())"
    note = "each batch, including the last, has to be a multiple of the number of devices"
    edits.insert(0, ReplaceStatement(known.made, text))
    return Rewrite(edits, requires, note=note, drops=drops)


@STRATEGY.on("tensorflow", "only")
def used_otherwise(ctx: Context, found: Construct) -> Decision | None:
    """A strategy that is more to a program than another back end has a word for."""
    if ctx.api.strategy is None or found.node in tpu_obstacles(ctx.names):
        return None
    return strategy(ctx, found) if is_own_strategy(_name(ctx, found)) else None


def _name(ctx: Context, found: Construct) -> str:
    return ctx.names.qualified(found.node) or ""


def _on_tpus(ctx: Context, word: Snippet, found: Construct) -> Decision | None:
    """The same name for a strategy of all TPU cores; all that is done with it stays."""
    made = ctx.names.statement(found.node)
    if not isinstance(made, ast.Assign):  # not called, else it would be an obstacle
        return None
    if _name(ctx, found) in WORKERS and "TF_CONFIG" in ctx.source.text:
        return Report(
            "is configured by TF_CONFIG, but one process drives all TPU devices of a machine"
        )
    text = word.code.replace("{name}", ctx.source.code(made.targets[0]))
    edits: list[Edit] = [Insert(ctx.names.tree, made, [text]), Delete(made)]
    note = "each batch is divided over all TPU cores, as it was over the GPUs"
    return Rewrite(edits, word.requires, note=note)
