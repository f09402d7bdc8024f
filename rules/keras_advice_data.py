"""Datasets of Keras and TensorFlow on a TPU: batches, epochs, files, Python functions."""

import ast

from migrator.rule_api import Construct, Context, Decision, Example, Rule, Safety, advice, argument
from migrator.rule_api.keras import divided, has_strategy, keras_name

REMAINDER = Rule(
    code="KER051",
    name="last-batch",
    summary="a smaller last batch of an epoch needs a program of its own",
    why="""A TPU program has one shape. A smaller last batch is another program, and can't be
divided over several devices. In training, `drop_remainder=True` drops it. In an evaluation, choose
a batch size that divides the data, because dropped examples are not measured.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/tpu",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(64)
            """,
            says={4: "the last batch may be smaller"},
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000)
            data = data.batch(64, drop_remainder=True)
            """,
        ),
    ),
)
HOST = Rule(
    code="KER052",
    name="host-function",
    summary="Python functions in a dataset, and batches of different lengths",
    why="""`py_function` and `numpy_function` run on the host, one call at a time, in the process
that created them. A dataset on a remote TPU can't call them, and a model on a TPU never can.
`padded_batch` makes batches of different lengths, and each length is compiled: pad to one length,
or to a few (`bucket_by_sequence_length`).""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/data_performance",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = data.map(lambda x: tf.py_function(read, [x], tf.float32))
            """,
            says={4: "runs on the host"},
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            data = data.map(lambda x: tf.io.decode_png(tf.io.read_file(x)), tf.data.AUTOTUNE)
            """,
        ),
    ),
)
FILES = Rule(
    code="KER055",
    name="data-files",
    summary="files of a dataset that the TPU's machine has to reach",
    why="""A local TPU reads a dataset's files on this machine. A remote one (`TPU_NAME`) reads them
on its own machine, so they have to be in Cloud Storage (`gs://…`).""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/tpu",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.TFRecordDataset("/data/train.tfrecord").map(parsed)
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.TFRecordDataset("gs://bucket/train.tfrecord").map(parsed)
            """,
        ),
    ),
)
EPOCH = Rule(
    code="KER056",
    name="steps-per-epoch",
    summary="steps_per_epoch with a dataset that is not repeated",
    why="""With `steps_per_epoch`, every epoch should have the same number of steps. But a dataset
that is not repeated ends with its last batch, and training ends, too. `.repeat()` before
`.batch(…)` fills every batch and drops no example.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    references=("https://keras.io/api/models/model_training_apis/#fit-method",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True)
            model.fit(data, epochs=5, steps_per_epoch=60)
            """,
            says={5: "the dataset is not repeated"},
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
            data = data.batch(64, drop_remainder=True)
            model.fit(data, epochs=5, steps_per_epoch=60)
            """,
        ),
    ),
)
BATCH = Rule(
    code="KER057",
    name="batch-of-all-cores",
    summary="a batch size that does not divide well over a TPU's cores",
    why="""Each core computes its part of the batch, 8 rows at a time. If 8 cores can't share a
batch equally, some get fewer rows than others, or training ends with an error: use a multiple of
64. The migration doesn't change the size: with larger batches, an epoch has fewer steps and needs
another learning rate.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    references=("https://cloud.google.com/tpu/docs/performance-guide",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(50, drop_remainder=True)
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(128, drop_remainder=True)
            """,
        ),
    ),
)
_SOURCES = ("tensorflow.data.TFRecordDataset", "tensorflow.data.TextLineDataset",
            "tensorflow.data.FixedLengthRecordDataset", "tensorflow.data.Dataset.list_files",
            "tensorflow.data.Dataset.load",
            "tensorflow.data.experimental.make_csv_dataset")  # fmt: skip
_FOLDERS = "_dataset_from_directory"
_SHARED = 64  # what divides a batch well: 8 cores, of 8 rows each


@REMAINDER.on("advice", "batch()", node=ast.Call)
def remainder(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    if argument(node, 1, "drop_remainder") is not None or not _is_data(ctx, node):
        return None
    if ctx.api.strategy is not None and node in _of_loops(ctx):
        return None
    return advice(
        "the last batch may be smaller: it needs a program of its own, and can't be divided "
        "over several devices; in training, drop_remainder=True drops it, and .repeat() before "
        "it, with steps_per_epoch, fills it"
    )


def _of_loops(ctx: Context) -> list[ast.Call]:
    """The calls that make the batches of rewritten training loops, which drop the remainder."""
    return [call for step in divided(ctx.names) for loop in step.loops for call in loop.batched]


def _is_data(ctx: Context, call: ast.Call) -> bool:
    """Whether a method is called on a TensorFlow dataset."""
    return _methods(ctx, call) is not None


def _methods(ctx: Context, data: ast.expr) -> list[str] | None:
    """The chain of methods that made a TensorFlow dataset; None for anything else."""
    at = data
    found: list[str] = []
    for _ in range(_LONG):
        if (ctx.names.qualified(at) or "").startswith("tensorflow.data."):
            return found
        match at:
            case ast.Attribute(value=inner, attr=name):
                found.append(name)
                at = inner
            case ast.Call(func=inner):
                at = inner
            case ast.Name():
                at = ctx.names.only_value(at)
                if isinstance(at, ast.Name):
                    return None
            case _:
                return None
    return None


_LONG = 60  # links of a chain of methods


@HOST.on("advice", "py_function()", "numpy_function()", node=ast.Call)
def hosted(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    name = ctx.names.qualified(node.func) or ""
    if not name.startswith("tensorflow."):
        return None
    return advice(
        "runs on the host, one call at a time, and only in input pipelines: TensorFlow's "
        "operations run in parallel, and on a TPU"
    )


@HOST.on("advice", "padded_batch()", node=ast.Call)
def padded(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    if argument(node, 1, "padded_shapes") is not None:
        return None
    return advice(
        "batches differ in length, and each length is compiled: use padded_shapes, or "
        "bucket_by_sequence_length with pad_to_bucket_boundary"
    )


@FILES.on(
    "advice", "TFRecordDataset()", "TextLineDataset()", "FixedLengthRecordDataset()",
    "list_files()", "load()", "make_csv_dataset()", f"image{_FOLDERS}()", f"text{_FOLDERS}()",
    f"audio{_FOLDERS}()", node=ast.Call)  # fmt: skip
def files(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    called = node.func
    of_keras = keras_name(ctx.names, called).endswith(_FOLDERS)
    if ctx.api.strategy is None:
        return None
    if not of_keras and ctx.names.qualified(called) not in _SOURCES:
        return None
    path = argument(node, 0, "filenames", "file_pattern", "directory", "path")
    match ctx.names.only_value(path) if path is not None else None:
        case ast.Constant(value=str(text)) if not text.startswith("gs://"):
            return advice(
                "is read by the TPU's machine: a remote TPU (TPU_NAME) can only read Cloud "
                "Storage (gs://…)"
            )
    return None


@EPOCH.on("advice", "fit()", node=ast.Call)
def epoch(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    data = argument(node, 0, "x")
    steps = argument(node, None, "steps_per_epoch")
    if data is None or steps is None or getattr(steps, "value", steps) is None:
        return None
    methods = _methods(ctx, data)
    if methods is None or "repeat" in methods or "from_generator" in methods:
        return None
    return advice(
        "the dataset is not repeated, so training ends with its last batch: .repeat() before "
        ".batch(…) gives every epoch the same number of full batches"
    )


@BATCH.on("advice", "batch()", "fit()", node=ast.Call)
def shared(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    if ctx.api.strategy is None or has_strategy(ctx.names):
        return None
    if found.key == "fit()":
        size = argument(node, None, "batch_size")
    else:
        size = argument(node, 0, "batch_size") if _is_data(ctx, node) else None
    match ctx.names.only_value(size) if size is not None else None:
        case ast.Constant(value=int(rows)) if rows % _SHARED and rows > 1:
            return advice(
                f"{rows} is the size of the whole batch: on 8 cores, each gets {rows / 8:g} rows; "
                f"with a multiple of {_SHARED}, each gets the same number, in groups of 8"
            )
    return None
