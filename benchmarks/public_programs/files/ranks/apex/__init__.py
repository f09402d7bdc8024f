"""A stand-in for apex: SwAV imports it, and calls its LARC alone (`--use_fp16 false`)."""

amp = None
