"""`python -m migrator` is `tpu-migrate`."""

from migrator.start import main

main()
