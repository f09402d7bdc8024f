"""Assess: how far each target gets with each program, and which one to take."""
