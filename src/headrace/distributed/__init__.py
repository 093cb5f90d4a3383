"""Several ranks of one training run: how they begin, what they share, and how they end together.

    with hr.distributed.start() as ranks:
        ranks.seed(0)
        model = ranks.wrap(Model())

torchrun starts the processes; nothing here does. Without it there is one rank, and the same program runs unchanged.
"""

from headrace.distributed.process_group import start
from headrace.distributed.ranks import Ranks

__all__ = ["Ranks", "start"]
