"""Stand-in for openai: stanford_alpaca's utils.py imports it, its train.py does not use it."""


class openai_object:
    class OpenAIObject:
        pass
