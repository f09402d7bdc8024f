"""Rules for programs that were written for torch_xla: on it, and elsewhere."""
