"""tf.distribute: one process has all devices, and Keras divides each batch over them."""

import ast

from migrator.construct import Construct
from migrator.edits import Delete, Edit, Replace, ReplaceStatement, Unwrap
from migrator.frameworks.tensorflow.strategies import MIRRORED, ONE_DEVICE, strategy_of
from migrator.rule import Context, Decision, Example, Rewrite, Rule

from .keras_back_end import keras, stays

STRATEGY = Rule(
    code="KER030",
    name="mirrored-strategy",
    summary="MirroredStrategy becomes keras.distribution.DataParallel",
    why="""It is set once, before a model is made, and divides each batch over all devices; `scope`
has no counterpart, and needs none. One device computes as it did. A batch has to be a multiple of
the number of devices, the last one, too: JAX raises otherwise (`drop_remainder=True`). Batch
normalization then averages over the whole batch, where MirroredStrategy does over each GPU's part.
OneDeviceStrategy goes. With any other use of a strategy the program stays.""",
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
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            strategy = tf.distribute.MirroredStrategy()
            train = strategy.experimental_distribute_dataset(train)
            """,
        ),
    ),
)


@STRATEGY.on("name", MIRRORED, ONE_DEVICE)
def strategy(ctx: Context, found: Construct) -> Decision | None:
    if (held := stays(ctx)) is not None:
        return held
    assert isinstance(found.node, ast.expr)
    known = strategy_of(ctx.names, found.node)
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
    note = "batches have to be multiples of the number of devices, the last ones, too"
    edits.insert(0, ReplaceStatement(known.made, text))
    return Rewrite(edits, requires, note=note, drops=drops)
