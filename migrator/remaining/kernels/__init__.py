"""Kernels that are left: what they take, where they are called, what they compute, a skeleton."""
