"""What is distributed: the version of the tool, and the package that migrated code imports."""

__version__ = "0.1.0"
RUNTIME = "tpu_runtime"
