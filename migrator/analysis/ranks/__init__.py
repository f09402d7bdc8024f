"""Ranks: how a program that starts one process per device uses them."""
