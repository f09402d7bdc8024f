load_tiktoken_bpe = None
