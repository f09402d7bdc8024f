"""The environment of TensorFlow programs without a TPU; the pins are an extra of pyproject.toml.

On a TPU they need tensorflow-tpu instead of tensorflow-cpu. Without a TPU its import waits for
a TPU machine's metadata, and its libtpu doesn't start. Its release 2.20 aborts at import,
with the libtpu that it installs.
"""

from migrator.targets.environment import Environment

ENVIRONMENT = Environment(
    package="tensorflow-cpu",
    gigabytes=1.5,
    systems={"linux": ("x86_64", "amd64")},
    on_tpu=("tensorflow-tpu==2.19.1", "libtpu==0.0.10"),
    imports=("tensorflow", "keras"),
    runs_with={"tensorflow-cpu": ">=2.16"},
    names=("keras-3.15.1", "numpy-2.4.6", "scipy-1.17.1", "PIL-13.0.0", "pandas-3.1.1"),
)
