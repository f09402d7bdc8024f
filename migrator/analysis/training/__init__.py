"""What a program computes: training loops, hot places, checkpoints, models that are divided."""
