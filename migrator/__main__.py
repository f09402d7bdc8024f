"""`python -m migrator` is `tpu-migrate`."""

from migrator.cli import main

main()
