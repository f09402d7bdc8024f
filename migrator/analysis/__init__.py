"""What the source means: names, values, devices, ranks, training. Nothing is changed here."""
