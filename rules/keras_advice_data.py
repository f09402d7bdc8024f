"""Data sets of Keras and TensorFlow on a TPU: batches, epochs, files, functions of the host."""

import ast

from migrator.analysis.syntax.names import argument
from migrator.construct import Construct
from migrator.frameworks.tensorflow.keras_names import keras_name
from migrator.frameworks.tensorflow.tpu_obstacles import divided, has_strategy
from migrator.rule import Context, Decision, Example, Rule, advice

REMAINDER = Rule(
    code="KER051",
    name="last-batch",
    summary="a last, smaller batch of each epoch is compiled for on its own",
    why="""A TPU runs programs of one shape. The last batch, where it is smaller, is another one,
and cannot be divided over several devices: `drop_remainder=True` leaves it out in training. In an
evaluation, choose a batch size that divides the data, or nothing is measured of what is left out.
""",
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/tpu",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(64)
            """,
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
    summary="Python functions and lengths of their own in a data set's elements",
    why="""`py_function` and `numpy_function` run on the host, one at a time, in the process that
made them: a data set of a TPU on another machine cannot call them, and a model on a TPU never.
`padded_batch` gives each batch a length of its own, for each of which a program is compiled: pad to
one length, or to a few (`bucket_by_sequence_length`).""",
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/data_performance",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = data.map(lambda x: tf.py_function(read, [x], tf.float32))
            """,
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
    summary="files of a data set that the machine of a TPU has to reach",
    why="""A TPU of this machine reads the files of a data set here. One that `TPU_NAME` names is on
another machine, which reads them there: only Cloud Storage (`gs://…`) is on both.""",
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
    summary="steps_per_epoch, of a data set that is not repeated",
    why="""Whoever counts the steps of an epoch wants as many in each. A data set that is not
repeated ends with its last batch, and training with it; a smaller last batch is a step of its own,
or left out. `.repeat()` before `.batch(…)` fills each batch, and leaves no example out.""",
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
    summary="a batch that the cores of a TPU cannot share well",
    why="""The batch is the one of all cores, as before: each computes its part, by 8 rows at a
time. A batch that 8 cores cannot share equally has two sizes, or fails. A multiple of 64 is right
for 8 cores. With a larger batch, an epoch has fewer steps, and the learning rate has to be found
again: so the migration leaves it as it is.""",
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


@REMAINDER.on("advice", "batch()")
def remainder(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    if argument(found.node, 1, "drop_remainder") is not None or not _is_data(ctx, found.node):
        return None
    if ctx.words.strategy is not None and found.node in _of_loops(ctx):
        return None
    return advice(
        "the last batch may be smaller: it is compiled for on its own, and cannot be divided over "
        "several devices; in training, drop_remainder=True leaves it out, and .repeat() before it, "
        "with steps_per_epoch, fills it"
    )


def _of_loops(ctx: Context) -> list[ast.Call]:
    """What makes the batches of training loops, in which nothing smaller is divided."""
    return [call for step in divided(ctx.names) for loop in step.loops for call in loop.batched]


def _is_data(ctx: Context, call: ast.Call) -> bool:
    """Whether a method is called of a data set of TensorFlow's."""
    return _methods(ctx, call) is not None


def _methods(ctx: Context, data: ast.expr) -> list[str] | None:
    """The methods that have made a data set of TensorFlow's; None of anything else."""
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


@HOST.on("advice", "py_function()", "numpy_function()")
def hosted(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    name = ctx.names.qualified(found.node.func) or ""
    if not name.startswith("tensorflow."):
        return None
    return advice(
        "runs on the host, one call at a time, and only where data is prepared: operations of "
        "TensorFlow's run beside each other, and on a TPU"
    )


@HOST.on("advice", "padded_batch()")
def padded(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    if argument(found.node, 1, "padded_shapes") is not None:
        return None
    return advice(
        "each batch has a length of its own, and a program is compiled for each: give "
        "padded_shapes, or bucket_by_sequence_length with pad_to_bucket_boundary"
    )


@FILES.on(
    "advice", "TFRecordDataset()", "TextLineDataset()", "FixedLengthRecordDataset()",
    "list_files()", "load()", "make_csv_dataset()", f"image{_FOLDERS}()", f"text{_FOLDERS}()",
    f"audio{_FOLDERS}()",
)  # fmt: skip
def files(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    called = found.node.func
    of_keras = keras_name(ctx.names, called).endswith(_FOLDERS)
    if ctx.words.strategy is None:
        return None
    if not of_keras and ctx.names.qualified(called) not in _SOURCES:
        return None
    path = argument(found.node, 0, "filenames", "file_pattern", "directory", "path")
    match ctx.names.only_value(path) if path is not None else None:
        case ast.Constant(value=str(text)) if not text.startswith("gs://"):
            return advice(
                "is read by the machine of the TPU: one that TPU_NAME names elsewhere has only "
                "what is in Cloud Storage (gs://…)"
            )
    return None


@EPOCH.on("advice", "fit()")
def epoch(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    data = argument(found.node, 0, "x")
    steps = argument(found.node, None, "steps_per_epoch")
    if data is None or steps is None or getattr(steps, "value", steps) is None:
        return None
    methods = _methods(ctx, data)
    if methods is None or "repeat" in methods or "from_generator" in methods:
        return None
    return advice(
        "the data set is not repeated, and ends with its last batch: .repeat() before .batch(…) "
        "gives each epoch as many whole batches"
    )


@BATCH.on("advice", "batch()", "fit()")
def shared(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    if ctx.words.strategy is None or has_strategy(ctx.names):
        return None
    if found.key == "fit()":
        size = argument(found.node, None, "batch_size")
    else:
        size = argument(found.node, 0, "batch_size") if _is_data(ctx, found.node) else None
    match ctx.names.only_value(size) if size is not None else None:
        case ast.Constant(value=int(rows)) if rows % _SHARED and rows > 1:
            return advice(
                f"the {rows} are those of all cores, as before: on 8 cores, each has {rows / 8:g} "
                f"of them; multiples of {_SHARED} are shared equally, by whole 8 rows"
            )
    return None
