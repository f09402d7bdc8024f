"""What TensorFlow programs run with where no TPU is; the pins are an extra of pyproject.toml.

On a TPU they need tensorflow-tpu in the place of tensorflow-cpu. Without one its import waits for
what a TPU's machine would say, and its libtpu does not start. Its release 2.20 aborts at import,
with the libtpu that it brings.
"""

from migrator.targets.environment import Environment

ENVIRONMENT = Environment(
    package="tensorflow-cpu",
    systems={"linux": ("x86_64", "amd64")},
    on_tpu=("tensorflow-tpu==2.19.1", "libtpu==0.0.10"),
    imports=("tensorflow", "keras"),
    runs_with={"tensorflow-cpu": ">=2.16"},
)
