"""The language server, `tpu-migrate lsp`: findings and actions shown in editors."""
