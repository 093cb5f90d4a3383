"""What each next() waited for, and which stages that comes from."""

from __future__ import annotations

import pytest
from machine_findings import quantities
from made_sessions import MadeRun, made_session, process, read, simulate, write_evidence, write_settings
from report_pages import codes

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.waits import HELD_UP

LONG = 10_000


def wait_parts(session) -> dict[str, float]:
    (waits,) = diagnose(session).waits
    return {part.name: part.us for part in waits.parts}


def cause_shares(session) -> dict[str, float]:
    (causes,) = diagnose(session).causes
    return {part.name: part.share for part in causes.parts}


def one_get(tmp_path, get, batch, *, pids=(8,), begun=0, facts=None):
    """A session of one get in one step, and of one worker's batches; get and batches as in the evidence, from the
    index on."""
    write_settings(tmp_path, warmup=0)
    loader = ["loader", 0, 0, {"num_workers": len(pids), "prefetch_factor": 2} | (facts or {})]
    records = [loader, ["pass", 0, 0, 0, 0, 0, list(pids)], ["get", 0, *get], ["step", 0, 900, 2_000, [], 0]]
    write_evidence(tmp_path, "a", [process(7), *records])
    batches = [["batch", 0, *one] for one in batch]
    write_evidence(tmp_path, "b", [process(8), ["worker", begun, {"id": 0, "parent": 7}], *batches])
    return read(tmp_path)


def test_the_way_of_a_batch_is_what_was_waited_for(tmp_path):
    get = [3, 1_000, 150, 1_090, 20, 1_100, 40, 64, None]
    session = one_get(tmp_path, get, [[3, 900, 1_040, 1_060, 15, 1, []]])
    assert wait_parts(session) == {"not ready": 40, "pickle": 20, "unpickle and copy": 30, "pin": 50, "sampler": 10}


def test_a_batch_that_lay_ready_leaves_only_the_drawing_of_indices(tmp_path):
    get = [3, 1_000, 9, 990, 20, None, None, 64, None]
    assert wait_parts(one_get(tmp_path, get, [[3, 800, 900, 950, 15, 1, []]])) == {"sampler": 9}


def test_a_worker_that_had_not_begun_is_start_up(tmp_path):
    get = [1, 1_000, 150, 1_150, 0]
    session = one_get(tmp_path, get, [[1, 1_070, 1_140, 1_145, 5, 1, []]], begun=1_060)
    assert wait_parts(session) == {"start-up": 60, "not ready": 80, "pickle": 5, "unpickle and copy": 5}


def test_what_a_worker_does_before_its_first_batch_belongs_to_its_start(tmp_path):
    """worker_init_fn: its index lay there already."""
    get = [0, 1_000, 150, 1_150, 0]
    session = one_get(tmp_path, get, [[0, 1_130, 1_140, 1_145, 5, 1, []]], begun=1_060)
    assert wait_parts(session) == {"start-up": 130, "not ready": 10, "pickle": 5, "unpickle and copy": 5}


def handed_over(tmp_path, waits, *, is_busy=True, cpu=1_000):
    """A session of one worker whose batches lie ready when they are asked for, and whose tensors take so long to hand
    over. It makes the next one meanwhile, three quarters of which is collate, or nothing."""
    asked = [1_000 + 50_000 * index for index in range(len(waits))]
    trainer, worker = [["loader", 0, 0, {"num_workers": 1}], ["pass", 0, 0, 0, 0, 0, [8]]], []
    for index, (start, wait) in enumerate(zip(asked, waits, strict=True)):
        taken = wait + cpu
        trainer.append(["get", 0, index, start, taken, start + taken, taken, None, None, 64, None, cpu])
        trainer.append(["step", index, start, start + 50_000, [], 0])
        begun = asked[index - 1] + (-5_000 if is_busy else 42_000) if index else 0
        fetched = asked[index - 1] + 45_000 if index else 800
        making = fetched - begun
        stages = [[1, 1, making * 3 // 4, making], [2, 4, making // 4, making]]
        worker.append(["batch", 0, index, begun, fetched, fetched + 50, 10, 4, stages])
    names = [["name", 1, "collate:own"], ["name", 2, "getitem:x"]]
    write_settings(tmp_path, warmup=0)
    write_evidence(tmp_path, "a", [process(7), *trainer])
    write_evidence(tmp_path, "b", [process(8), ["worker", 0, {"id": 0, "parent": 7}], *names, *worker])
    return read(tmp_path)


def test_tensors_handed_over_late_are_due_to_what_the_worker_does_meanwhile(tmp_path):
    """20 ms more than usual in 14 batches of 20: the worker's Python does not let go of the GIL."""
    shares = cause_shares(handed_over(tmp_path, [1_000] * 5 + [21_000] * 14 + [1_000]))
    whole = 6 * 2_000 + 14 * 22_000
    assert shares["collate:own"] == pytest.approx(14 * 20_000 * 0.75 / whole, rel=0.01)
    assert shares["getitem:x"] == pytest.approx(14 * 20_000 * 0.25 / whole, rel=0.01)
    assert shares["unpickle and copy"] == pytest.approx((whole - 14 * 20_000) / whole, rel=0.01)


def test_many_tensors_take_long_of_themselves(tmp_path):
    """A round trip for each, half of which is the reader's own work."""
    assert cause_shares(handed_over(tmp_path, [18_000] * 20, cpu=20_000)) == {"unpickle and copy": 1}


def test_a_hand_over_that_always_waits_longer_than_it_computes_waits_for_the_worker(tmp_path):
    shares = cause_shares(handed_over(tmp_path, [21_000] * 20, cpu=1_000))
    assert shares["unpickle and copy"] == pytest.approx((20 * 2_000 + 20_000) / (20 * 22_000), rel=0.01)  # not the last


@pytest.mark.parametrize(("in_order", "held"), [(True, 60), (None, 60), (False, 0)])
def test_a_later_batch_that_is_ready_first_is_held_up(tmp_path, in_order, held):
    get = [3, 1_000, 100, 1_100, 0]
    batches = [[3, 900, 1_100, 1_100, 0, 1, []], [4, 900, 1_030, 1_040, 0, 1, []]]
    parts = wait_parts(one_get(tmp_path, get, batches, facts={"in_order": in_order}))
    assert parts.get(HELD_UP, 0) == held
    assert parts["not ready"] == 100 - held


def test_a_batch_of_which_nobody_tells_is_unknown(tmp_path):
    session = one_get(tmp_path, [3, 1_000, 100, 1_080, 5], [])
    assert wait_parts(session) == {"unknown": 80, "sampler": 20}


def test_batches_of_another_epoch_of_the_same_worker_are_not_mistaken(tmp_path):
    write_settings(tmp_path, warmup=0)
    loader = ["loader", 0, 0, {"num_workers": 1, "persistent_workers": True}]
    passes = [["pass", 0, 0, 0, 0, 0, [8]], ["pass", 1, 0, 500, 500, 1, [8]]]
    gets = [["get", 0, 0, 0, 100, 100, 0], ["get", 1, 0, 500, 100, 600, 0]]
    steps = [["step", 0, 0, 200, [], 0], ["step", 1, 200, 700, [], 0]]
    write_evidence(tmp_path, "a", [process(7), loader, *passes, *gets, *steps])
    names = [["name", 1, "decode:a"], ["name", 2, "read:b"]]
    made = [["batch", 0, 0, 0, 90, 90, 0, 1, [[1, 1, 90, 90]]], ["batch", 1, 0, 500, 590, 590, 0, 1, [[2, 1, 90, 9]]]]
    write_evidence(tmp_path, "b", [process(8), *names, ["worker", 0, {"id": 0, "parent": 7}], *made])
    shares = cause_shares(read(tmp_path))
    assert shares["decode:a"] == shares["read:b"] == pytest.approx(0.45)


def test_without_workers_the_batch_is_made_in_next(tmp_path):
    write_settings(tmp_path, warmup=0)
    loader = ["loader", 0, 0, {"num_workers": 0}]
    get = ["get", 0, 0, 1_000, 100, None, None, 1_085, 10]
    batch = ["batch", 0, 0, 1_005, 1_080, None, None, 1, []]
    rest = [loader, ["pass", 0, 0, 0, 0, 0, [7]], get, ["step", 0, 900, 2_000, [], 0], batch]
    write_evidence(tmp_path, "a", [process(7), *rest])
    assert wait_parts(read(tmp_path)) == {"made here": 75, "pin": 15, "sampler": 10}


def test_a_worker_cut_short_leaves_no_unknown(tmp_path):
    run = MadeRun(workers=1, steps=40)
    write_settings(tmp_path)
    for name, records in simulate(run).items():
        kept = [record for record in records if record[0] != "batch" or record[2] < 20]
        write_evidence(tmp_path, name, kept)
    path = tmp_path / "evidence" / "host-101-0.jsonl"
    write_settings(tmp_path, most_bytes=path.stat().st_size)
    split = wait_parts(read(tmp_path))
    assert set(split) == {"not ready"}


def test_the_wait_comes_from_the_stages_of_the_batches_waited_for(tmp_path):
    """Only batches that are slow in their first stage are waited for at all."""
    slow = dict.fromkeys(range(0, 80, 8), LONG)
    stages = {"decode:a": 1_000, "collate:b": 1_000}
    run = MadeRun(steps=60, workers=2, stages=stages, slow_batches=slow, prefetch=1, forward=500, backward=500)
    session = made_session(tmp_path, run)
    shares = cause_shares(session)
    assert shares["decode:a"] > 0.9
    (making,) = diagnose(session).batch_production
    assert making.stages[0].share < 0.75  # though over all batches it is less


def test_what_lies_between_worker_and_loop_is_a_cause_of_its_own(tmp_path):
    shares = cause_shares(made_session(tmp_path, MadeRun(workers=1, stages={"decode:a": 500}, unpickle=4_000)))
    assert shares["unpickle and copy"] > 0.9


def test_several_loaders_do_not_mix(tmp_path):
    write_settings(tmp_path, warmup=0)
    loaders = [["loader", number, 0, {"num_workers": 1}] for number in (0, 1)]
    passes = [["pass", 0, 0, 0, 0, 0, [8]], ["pass", 1, 1, 0, 0, 0, [9]]]
    gets = [["get", 0, 0, 0, 100, 100, 0], ["get", 1, 0, 100, 300, 400, 0]]
    write_evidence(tmp_path, "a", [process(7), *loaders, *passes, *gets, ["step", 0, 0, 500, [], 0]])
    for pid, fetched, stage in ((8, 100, "decode:a"), (9, 400, "read:b")):
        batch = ["batch", 0, 0, 0, fetched, fetched, 0, 1, [[1, 1, fetched, 1]]]
        records = [process(pid), ["name", 1, stage], ["worker", 0, {"id": 0, "parent": 7}], batch]
        write_evidence(tmp_path, str(pid), records)
    diagnosis = diagnose(read(tmp_path))
    assert [(making.loader, making.batches) for making in diagnosis.batch_production] == [(1, 1), (0, 1)]
    (causes,) = diagnosis.causes
    assert [(part.name, part.us) for part in causes.parts] == [("read:b", 300), ("decode:a", 100)]


def test_an_evaluation_is_told_with_its_own_wait(tmp_path):
    write_settings(tmp_path, warmup=0)
    loaders = [["loader", number, 0, {"num_workers": 1}] for number in (0, 1)]
    passes = [["pass", 0, 0, 0, 0, 0, [8]], ["pass", 1, 1, 500, 520, 0, [9]]]
    batches = [["get", 0, 0, 0, 100, 100, 0], ["fetch", 1, 0, 520, 180, 700, 0]]
    steps = [["step", 0, 0, 500, [], 0], ["step", 1, 500, 1_000, [["e", 0, 400], ["b", 450, 50]], 0]]
    write_evidence(tmp_path, "a", [process(7), *loaders, *passes, *batches, *steps])
    for pid, start, fetched in ((8, 10, 100), (9, 520, 700)):
        made = ["batch", 0, 0, start, fetched, fetched, 0, 1, []]
        write_evidence(tmp_path, str(pid), [process(pid), ["worker", 0, {"id": 0, "parent": 7}], made])
    diagnosis = diagnose(read(tmp_path))
    (budget,) = diagnosis.budgets
    parts = {part.name: part.us for part in budget.parts}
    assert parts == {"data wait": 50, "forward": 25, "backward": 25, "other": 200}
    assert [making.loader for making in diagnosis.batch_production] == [0, 1], "the training's first"
    (found,) = [one for one in diagnosis.findings if one.code == "evaluation"]
    assert quantities(found.text) == ["40 %", "50 %"]  # 20 µs start workers
    assert quantities(found.evidence) == ["1", "400 µs", "1", "1"]
    assert found.weight == 0.2


def test_waiting_for_a_batch_whose_making_was_not_seen_is_no_stage(tmp_path):
    write_settings(tmp_path, warmup=0)
    here = [["loader", 0, 0, {"num_workers": 0}], ["pass", 0, 0, 0, 0, 0, [7]]]
    here += [["get", 0, 0, 0, 900], ["step", 0, 0, 1_000, [], 0]]
    write_evidence(tmp_path, "a", [process(7), *here])
    session = read(tmp_path)
    assert wait_parts(session) == {"made here": 900}
    assert cause_shares(session) == {"unknown": 1.0}
    assert codes(diagnose(session)) == ["input-bound", "causes"]


def test_ending_the_workers_of_an_evaluation_is_its_wait(tmp_path):
    write_settings(tmp_path, warmup=0)
    loader, one = ["loader", 0, 0, {"num_workers": 1}], ["pass", 0, 0, 500, 520, 0, [9]]
    steps = [["step", 0, 0, 500, [], 0], ["step", 1, 500, 1_000, [["e", 0, 400]], 0]]
    write_evidence(tmp_path, "a", [process(7), loader, one, ["fetch", 0, 0, 520, 180], ["last", 0, 800, 100], *steps])
    (found,) = [one for one in diagnose(read(tmp_path)).findings if one.code == "evaluation"]
    assert quantities(found.text) == ["40 %", "75 %"]


@pytest.mark.parametrize("gpu", [False, True])
def test_times_of_causes_say_whose_they_are(tmp_path, gpu):
    findings = diagnose(made_session(tmp_path, MadeRun(gpu=gpu))).findings
    (stage,) = [one for one in findings if one.code == "stage-decode"]
    assert quantities(stage.evidence)[0].endswith(" ms")
    assert ("CPU sees" in stage.evidence.partition(",")[0]) == gpu
