"""What torch_xla runs with; the pins are an extra of pyproject.toml."""

from migrator.targets.environment import Environment

ENVIRONMENT = Environment(
    package="torch_xla",
    newest_with_tpu=(3, 12),  # of its libtpu
    systems={"linux": ("x86_64", "amd64")},
    driver="torch_xla",  # its extra
    imports=("torch", "torch_xla"),
    # runtime/torch_xla/tpu_runtime/_versions.py says the same
    runs_with={"torch": "==2.9.*", "torch_xla": "==2.9.*"},
)
