"""Made-up text whose words depend on those before: quick to learn from, for tests."""

from __future__ import annotations

import numpy as np

from .text import Document

_TOPIC_COUNT = 6
_WORDS_PER_STATE = 40


def documents(count: int = 60, *, length: int = 400, seed: int = 5) -> tuple[Document, ...]:
    """Documents of ``length`` words each.

    A document has a topic. Its words alternate between the topic's own and those that all topics
    share, each drawn by Zipf's law, so that the previous word tells a lot about the next one and
    an early word about all later ones.
    """
    random = np.random.default_rng(seed)
    odds = 1 / np.arange(1, _WORDS_PER_STATE + 1)
    odds /= odds.sum()
    made = []
    for number in range(count):
        topic = int(random.integers(_TOPIC_COUNT))
        ranks = random.choice(_WORDS_PER_STATE, length, p=odds)
        tokens = tuple(
            f"topic{topic}-{rank}" if place % 2 else f"common-{rank}"
            for place, rank in enumerate(ranks)
        )
        made.append(Document(f"made-{number}", tokens))
    return tuple(made)
