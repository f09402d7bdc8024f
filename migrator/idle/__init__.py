"""Idle: a hook whose files have nothing of GPUs gets its answer before the tool is loaded."""
