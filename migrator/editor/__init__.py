"""The language server, `tpu-migrate lsp`: what editors show of a migration, and offer to do."""
