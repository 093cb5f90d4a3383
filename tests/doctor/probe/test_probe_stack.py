"""Looking at a thread's stack while garbage is collected."""

from __future__ import annotations

from processes import run_python

COLLECTING = """
    import gc, sys, threading
    from headrace.doctor.probe.stack_sampler import frame_of

    class Cycle:
        def __init__(self):
            self.itself, self.local = self, threading.local()
            self.local.value = 1

    def deep(frames):
        return look() if frames == 0 else deep(frames - 1)

    def look():
        gc.set_threshold(1, 1, 1)
        try:
            return frame_of(threading.get_ident())
        finally:
            gc.set_threshold(700, 10, 10)

    for _ in range(50):
        gc.disable()
        for _ in range(20):
            Cycle()
        gc.enable()
        assert deep(30) is not None
    print("done", gc.isenabled())
"""
"""Garbage with threading.locals in it, and a collection due at the next allocation."""


def test_a_collection_that_frees_locals_does_not_hang_it() -> None:
    assert run_python(COLLECTING) == (0, "done True\n", "")
