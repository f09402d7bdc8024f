"""The pipeline for one file, from its bytes to the text that is written."""
