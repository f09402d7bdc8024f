"""The codemods. One file per family; every `Rule` at module level is found by itself."""
