SentencePieceProcessor = None
