"""Ranks: what a program that starts a process for each device does with them."""
