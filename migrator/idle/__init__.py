"""Idle: a hook whose files have no GPU code gets its answer before the tool is loaded."""
