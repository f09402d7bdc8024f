"""The cell magic `%%tpu_migrate` of Jupyter notebooks."""
