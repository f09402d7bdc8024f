"""Names of Keras, with or without TensorFlow's prefix, and which of them only TensorFlow has."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.names import Names

# Names that tf.keras of Keras 3 has and keras lacks. None of them computes with TensorFlow, so they
# work on any back end under the old name.
_LEGACY = (
    "preprocessing.image.DirectoryIterator", "preprocessing.image.ImageDataGenerator",
    "preprocessing.image.Iterator", "preprocessing.image.NumpyArrayIterator",
    "preprocessing.image.apply_", "preprocessing.image.random_",
    "preprocessing.sequence.TimeseriesGenerator", "preprocessing.sequence.make_sampling_table",
    "preprocessing.sequence.skipgrams", "preprocessing.text",
    "layers.RandomHeight", "layers.RandomWidth", "layers.ThresholdedReLU",
)  # fmt: skip
# Functions of tf.keras.backend that compute with TensorFlow, or that Keras 3 has removed.
_OF_TENSORFLOW = frozenset({
    "abs", "all", "any", "arange", "argmax", "argmin", "batch_dot", "batch_flatten",
    "batch_get_value", "batch_normalization", "batch_set_value", "bias_add", "binary_crossentropy",
    "binary_focal_crossentropy", "cast", "cast_to_floatx", "categorical_crossentropy",
    "categorical_focal_crossentropy", "clip", "concatenate", "constant", "conv1d", "conv2d",
    "conv2d_transpose", "conv3d", "cos", "count_params", "ctc_batch_cost", "ctc_decode",
    "ctc_label_dense_to_sparse", "cumprod", "cumsum", "depthwise_conv2d", "dot", "dropout",
    "dtype", "elu", "equal", "eval", "exp", "expand_dims", "eye", "flatten", "foldl", "foldr",
    "function", "gather", "get_session", "get_value", "gradients", "greater", "greater_equal",
    "hard_sigmoid", "in_top_k", "in_train_phase", "int_shape", "is_sparse", "l2_normalize",
    "learning_phase", "less", "less_equal", "log", "map_fn", "max", "maximum", "mean", "min",
    "minimum", "moving_average_update", "name_scope", "ndim", "not_equal", "one_hot", "ones",
    "ones_like", "permute_dimensions", "pool2d", "pool3d", "pow", "prod", "random_bernoulli",
    "random_normal", "random_normal_variable", "random_uniform", "random_uniform_variable", "relu",
    "repeat", "repeat_elements", "reshape", "resize_images", "resize_volumes", "reverse", "rnn",
    "round", "separable_conv2d", "set_learning_phase", "set_session", "set_value", "shape",
    "sigmoid", "sign", "sin", "softmax", "softplus", "softsign", "sparse_categorical_crossentropy",
    "spatial_2d_padding", "spatial_3d_padding", "sqrt", "square", "squeeze", "stack", "std",
    "stop_gradient", "sum", "switch", "tanh", "temporal_padding", "tile", "to_dense", "transpose",
    "truncated_normal", "update", "update_add", "update_sub", "var", "variable", "zeros",
    "zeros_like",
})  # fmt: skip
_TF_KERAS = "tensorflow.keras"
# Keras modules that TensorFlow also has under a second name.
_SECOND = ("initializers", "losses", "metrics", "optimizers")
MODULES = {
    _TF_KERAS: "keras",
    **{f"tensorflow.{name}": f"keras.{name}" for name in _SECOND},
}


def in_keras(qualname: str) -> str | None:
    """`keras.layers.Dense` for any spelling of it; None for a name that is not of Keras."""
    for module, name in MODULES.items():
        if f"{qualname}.".startswith(f"{module}."):
            return name + qualname.removeprefix(module)
    return qualname if f"{qualname}.".startswith("keras.") else None


def keras_name(names: Names, node: ast.expr) -> str:
    """The Keras name of an expression, in the form of `in_keras`; "" for anything else."""
    return in_keras(names.qualified(node) or "") or ""


def is_legacy(qualname: str) -> bool:
    """Whether only tf.keras has a name, or its module."""
    name = qualname.removeprefix(f"{_TF_KERAS}.")
    return name.startswith(_LEGACY)


def computing_backend(qualname: str) -> str:
    """The function of keras.backend that TensorFlow computes; "" for any other name."""
    name = in_keras(qualname) or ""
    last = name.removeprefix("keras.backend.")
    return last if last in _OF_TENSORFLOW and last != name else ""
