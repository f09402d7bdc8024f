"""The pipeline: what one file's bytes go through, from reading them to the text that is written."""
