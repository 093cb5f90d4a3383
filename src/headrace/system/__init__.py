"""Resources of this process: cores, memory, control groups, threads, forks, channels and its rank.

Used by all packages above it. Read `threads.py` and `channel.py` first.
"""

from __future__ import annotations

from headrace.system.channel import Channel, ChannelStatistics, Closed
from headrace.system.control_groups import (
    ControlGroups,
    Mount,
    is_whole,
    mounts,
    pairs,
    read_text,
    rows,
    whole,
)
from headrace.system.forks import close_in_forks, forget_ended_forks, keep_for_forks, kept_by_fork
from headrace.system.rank import Launcher, ProcessRank, launcher_of, rank_of_process, ranks_of_node
from headrace.system.ray_cluster import connect_to_ray, load_ray
from headrace.system.resources import (
    available_bytes,
    available_cores,
    available_to_rank,
    core_wait_s,
    default_threads,
    local_ranks,
    memory,
    share_cores,
)
from headrace.system.threads import (
    THREAD_PREFIX,
    ProcessOrigin,
    Stop,
    close_at_exit,
    in_own_thread,
    work_through,
)
