"""Rules for programs written for torch_xla, both with torch_xla and with other targets."""
