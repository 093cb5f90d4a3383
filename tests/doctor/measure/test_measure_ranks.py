"""Ranks beside each other: who is late, what makes it late, who waits for a peer."""

from __future__ import annotations

import re
from functools import partial

import pytest
from machine_findings import quantities
from made_sessions import process, read, write_evidence, write_settings
from report_pages import codes

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.stages import named
from headrace.doctor.measure.diagnosis import Diagnosis

STEPS = 20
BACKWARD, ALLREDUCE, OPTIMIZER = 4_000, 1_500, 500


def rank_records(rank, waits, arrival, *, pid, host="host", ahead=0, shape="float32[4]", stamped=True, calls=False):
    """A rank that waits `waits[step]` for data, and in its backward pass until `arrival[step]`, when the last of all
    has its gradients. `calls`: by a collective of its own after the backward pass."""
    first = process(pid, host=host, rank=rank)
    records = [first, ["name", 1, shape], ["name", 2, "all_reduce"], ["loader", 0, 0, {"num_workers": 0}]]
    records.append(["pass", 0, 0, 0, 0, 0, [pid]])
    start = 0
    for step, wait in enumerate(waits):
        ready = start + wait + BACKWARD
        shared = arrival[step] + ALLREDUCE
        end = shared + OPTIMIZER
        at = start + ahead
        backward = ready if calls else shared
        spans = [["b", wait, backward - start - wait], ["o", shared - start, OPTIMIZER]]
        if calls:
            spans.insert(1, ["c", ready - start, shared - ready])
            records.append(["collective", step, ready + ahead, shared - ready, 2])
        records.append(["get", 0, step, at, wait, None, None, None, None, 16, 1])
        records.append(["step", step, at, end + ahead, spans, 0])
        if stamped and step % 5 == 0:
            records.append(["ready", step, ready + ahead])
        start = end
    return records


def together(tmp_path, *waits, **changes) -> Diagnosis:
    """Ranks that wait so long for data in each step; further changes are lists, one a rank."""
    write_settings(tmp_path, warmup=0)
    arrival, now = [], 0
    for step in range(STEPS):
        arrival.append(now + max(of[step] for of in waits) + BACKWARD)
        now = arrival[-1] + ALLREDUCE + OPTIMIZER
    for rank, of in enumerate(waits):
        pid = 100 + rank
        own = {name: values[rank] for name, values in changes.items() if name != "stages"}
        records = rank_records(rank, of, arrival, pid=pid, **own)
        stages = changes.get("stages", [{}] * len(waits))[rank]
        names = [["name", 10 + number, name] for number, name in enumerate(stages)]
        made = [[10 + number, 1, wall, wall] for number, wall in enumerate(stages.values())]
        gets = (get[2:5] for get in records if get[0] == "get")
        batches = [["batch", 0, index, at, at + took, None, None, 1, made] for index, at, took in gets]
        write_evidence(tmp_path, f"rank{rank}", [records[0], *names, *records[1:], *batches])
    return diagnose(read(tmp_path))


def apart(tmp_path, *of_step) -> Diagnosis:
    """Ranks by what each gives for a step's number: its records after those of its loader's one pass."""
    write_settings(tmp_path, warmup=0)
    for rank, records_of in enumerate(of_step):
        pid = 100 + rank
        records = [process(pid, rank=rank), ["loader", 0, 0, {"num_workers": 0}], ["pass", 0, 0, 0, 0, 0, [pid]]]
        records += [record for step in range(STEPS) for record in records_of(step)]
        write_evidence(tmp_path, str(pid), records)
    return diagnose(read(tmp_path))


SLOW = [21_000] * STEPS
QUICK = [1_000] * STEPS
STAGES = [{"decode:a": 500, "read:b": 500}, {"decode:a": 20_500, "read:b": 500}]


def test_the_late_rank_is_named_with_its_stage(tmp_path):
    early, late = together(tmp_path, QUICK, SLOW, stages=STAGES).ranks
    assert (early.late, late.late) == (0, 1)
    assert (early.lateness_us, late.lateness_us) == (0, 20_000)
    assert (early.cause, late.cause) == (None, "decode:a")
    assert late.data_wait_us - early.data_wait_us == 20_000


def test_waiting_for_a_peer_is_apart_from_the_collectives_own_time(tmp_path):
    early, late = together(tmp_path, QUICK, SLOW, stages=STAGES).ranks
    assert (early.peer_wait_us, late.peer_wait_us) == (20_000, 0)
    assert (early.collective_us, late.collective_us) == (ALLREDUCE, ALLREDUCE)


def test_collective_calls_tell_it_without_stamps(tmp_path):
    early, late = together(tmp_path, QUICK, SLOW, stages=STAGES, stamped=[False] * 2, calls=[True] * 2).ranks
    assert (early.peer_wait_us, late.peer_wait_us) == (20_000, 0)
    assert (early.collective_us, late.collective_us) == (ALLREDUCE, ALLREDUCE)


def test_clocks_of_two_hosts_are_aligned_by_the_ends_of_steps(tmp_path):
    early, late = together(tmp_path, QUICK, SLOW, stages=STAGES, host=["a", "b"], ahead=[0, -3_000_000]).ranks
    assert (late.late, late.lateness_us) == (1, 20_000)
    assert (early.peer_wait_us, late.peer_wait_us) == (20_000, 0)


def test_equal_ranks_are_not_late(tmp_path):
    """They take turns, and there is nothing to find."""
    odd = [1_000 + 400 * (step % 2) for step in range(STEPS)]
    even = [1_400 - 400 * (step % 2) for step in range(STEPS)]
    diagnosis = together(tmp_path, odd, even, stages=STAGES)
    assert [rank.late for rank in diagnosis.ranks] == [0.5, 0.5]
    assert [rank.cause for rank in diagnosis.ranks] == [None, None]
    assert "late-rank" not in {one.code for one in diagnosis.findings}


def test_the_finding_says_who_waits_for_whom(tmp_path):
    diagnosis = together(tmp_path, QUICK, SLOW, stages=STAGES)
    (found,) = [one for one in diagnosis.findings if one.code == "late-rank"]
    assert quantities(found.text) == ["1", "100 %", "20.0 ms", "20.0 ms"]
    assert named("decode:a") in found.text
    assert quantities(found.evidence) == ["21.0 ms", "1.0 ms"]
    assert found.weight == pytest.approx(20 / 27)
    assert codes(diagnosis)[:3] == ["input-bound", "causes", "late-rank"]
    assert quantities(diagnosis.verdict.text) == ["27.0 ms", "1", "78 %"]
    assert diagnosis.statements[1].text == found.text


def test_a_rank_that_is_late_for_its_computation_has_no_stage_to_blame(tmp_path):
    """Both wait equally for data; the second one's forward takes 20 ms more, here before its backward begins."""

    def of_step(forward, step):
        start = step * 30_000
        yield ["get", 0, step, start, 1_000]
        yield ["step", step, start, start + 30_000, [["b", 1_000 + forward, 5_000]], 0]

    diagnosis = apart(tmp_path, *(partial(of_step, forward) for forward in (1_000, 21_000)))
    assert [rank.cause for rank in diagnosis.ranks] == [None, None]
    (found,) = [one for one in diagnosis.findings if one.code == "late-rank"]
    assert quantities(found.text) == ["1", "100 %", "20.0 ms"]


def test_ranks_that_end_their_steps_without_each_other_train_apart(tmp_path):
    """The second one's steps lag ever more: nobody waits for it, so it is not late."""

    def of_step(length, step):
        start = step * length
        yield ["get", 0, step, start, 1_000]
        yield ["step", step, start, start + length, [["b", 2_000, length - 3_000]], 0]
        yield ["ready", step, start + length - 1_000]

    diagnosis = apart(tmp_path, *(partial(of_step, length) for length in (10_000, 15_000)))
    assert [(rank.late, rank.peer_wait_us) for rank in diagnosis.ranks] == [(0, 0), (0, 0)]
    assert "late-rank" not in {one.code for one in diagnosis.findings}
    (found,) = [one for one in diagnosis.findings if one.code == "ranks-apart"]
    assert quantities(found.text) == ["100 %"]
    assert codes(diagnosis)[-1] == "ranks-apart"


def test_shapes_that_differ_are_told_with_the_first_step(tmp_path):
    diagnosis = together(tmp_path, QUICK, QUICK, shape=["float32[4,16,16]", "float32[4,24,24]"])
    (found,) = [one for one in diagnosis.findings if one.code == "shapes-differ"]
    assert quantities(found.text) == ["100 %", "1.38 ×"]
    assert re.findall(r"\d float32\S+\]", found.evidence) == ["0 float32[4,16,16]", "1 float32[4,24,24]"]
    assert found.evidence.startswith("step 0:")


def test_shapes_that_differ_weigh_what_the_ranks_wait_for_the_longest(tmp_path):
    """In every other step rank 1's batch is larger and its forward 8 ms longer; both wait equally for data."""
    write_settings(tmp_path, warmup=0)
    for rank in (0, 1):
        pid, shapes = 100 + rank, ["float32[4,8,8]", "float32[4,16,16]"]
        records = [process(pid, rank=rank), *(["name", number, shape] for number, shape in enumerate(shapes))]
        records += [["loader", 0, 0, {"num_workers": 0}], ["pass", 0, 0, 0, 0, 0, [pid]]]
        for step in range(STEPS):
            start, larger = step * 20_000, step % 2 * rank
            ready = start + 1_000 + 2_000 + 8_000 * larger
            records.append(["get", 0, step, start, 1_000, None, None, None, None, 16, larger])
            records.append(["step", step, start, start + 20_000, [["b", ready - start - 1_000, 9_000]], 0])
            records += [["ready", step, ready]] if step % 5 == 0 else []
        write_evidence(tmp_path, str(pid), records)
    (found,) = [one for one in diagnose(read(tmp_path)).findings if one.code == "shapes-differ"]
    assert quantities(found.text) == ["50 %", "1.60 ×", "4.0 ms"]
    assert found.weight == pytest.approx(0.5 * 4 / 20)


def test_a_rank_that_waits_for_its_data_is_not_late_for_its_shapes(tmp_path):
    diagnosis = together(tmp_path, QUICK, SLOW, shape=["float32[4,16,16]", "float32[4,24,24]"])
    (found,) = [one for one in diagnosis.findings if one.code == "shapes-differ"]
    assert found.weight == 0


def test_ranks_join_by_the_steps_that_all_of_them_have(tmp_path):
    together(tmp_path, QUICK, SLOW, stages=STAGES)
    path = tmp_path / "evidence" / "rank1.jsonl"
    kept = [line for line in path.read_text().splitlines() if not line.startswith(('["step", 3,', '["step", 7,'))]
    path.write_text("\n".join(kept) + "\n")
    early, late = diagnose(read(tmp_path)).ranks
    assert (late.late, late.lateness_us, early.peer_wait_us) == (1, 20_000, 20_000)


def test_an_accumulation_is_joined_at_its_last_backward(tmp_path):
    """Gradients are shared once a step, in the last of two backward passes."""

    def of_step(wait, step):
        start, second = step * 30_000, 3_000 + 2_000
        yield ["get", 0, 2 * step, start, 1_000]
        yield ["get", 0, 2 * step + 1, start + second, wait]
        spans = [["b", 1_000, 2_000], ["b", second + wait, 30_000 - second - wait]]
        yield ["step", step, start, start + 30_000, spans, 0]

    late = apart(tmp_path, *(partial(of_step, wait) for wait in (1_000, 9_000))).ranks[1]
    assert (late.late, late.lateness_us) == (1, 8_000)
