"""What Keras on JAX runs with; the pins are an extra of pyproject.toml."""

from migrator.targets.environment import Environment

ENVIRONMENT = Environment(
    package="keras",
    gigabytes=2.5,
    systems={"linux": ("x86_64", "amd64")},  # of tensorflow-cpu
    driver="libtpu",
    imports=("jax", "tensorflow", "keras"),
    runs_with={"keras": ">=3.5"},
    names=("keras-3.15.1", "numpy-2.4.6", "scipy-1.17.1", "PIL-13.0.0", "pandas-3.1.1"),
)
