"""What is left to change by hand: each reported construct, why it is, and how to go on."""
