"""Draw the texts of data/texts.txt: sentences of words from a small vocabulary, always the same.

python make_data.py
"""

import random
from pathlib import Path

SUBJECTS = "the robot|a careful nurse|my neighbour|the old clock|an engineer|the river|our teacher"
VERBS = "repairs|describes|remembers|crosses|measures|follows|forgets"
OBJECTS = (
    "the bridge|a quiet street|every lamp|the first lesson|a blue map|the long winter|a melody"
)
ENDINGS = "|in the morning|without a word|because it has to|when nobody is looking|twice"


def main() -> None:
    """Write 100 texts, some of them of two sentences."""
    draw = random.Random(0)
    texts = []
    for _ in range(100):
        sentences = [
            " ".join(
                filter(
                    None, (draw.choice(p.split("|")) for p in (SUBJECTS, VERBS, OBJECTS, ENDINGS))
                )
            )
            for _ in range(draw.choice([1, 1, 2]))
        ]
        texts.append(". ".join(sentences) + ".")
    path = Path(__file__).parent / "data" / "texts.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
