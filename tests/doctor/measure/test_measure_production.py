"""How batches were made, what is odd about it, and what the probe cost."""

from __future__ import annotations

import pytest
from machine_findings import quantities
from made_sessions import MadeRun, machine, made_session, process, read, simulate, write_evidence, write_settings

from headrace.doctor.causes import cores, diagnose
from headrace.doctor.measure.batches import with_loaders_as_one
from headrace.doctor.measure.diagnosis import Diagnosis, Finding, LoaderProduction
from headrace.doctor.session.trainers import LoaderFacts, Trainer, TrainerPass


def making_of(tmp_path, run=None, **arguments) -> LoaderProduction:
    (making,) = diagnose(made_session(tmp_path, run or MadeRun(), **arguments)).batch_production
    return making


def finding(diagnosis: Diagnosis, code: str) -> Finding | None:
    return next((one for one in diagnosis.findings if one.code == code), None)


def test_stages_are_shares_of_the_time_that_makers_were_busy(tmp_path):
    stages = {"read:a": 1_000, "decode:b": 6_000, "collate:c": 3_000}
    making = making_of(tmp_path, MadeRun(stages=stages, samples=4))
    parts = [(part.category, part.label, part.share) for part in making.stages]
    shares = [("decode", "b", 0.6), ("collate", "c", 0.3), ("read", "a", 0.1)]
    assert parts == [(*names, pytest.approx(share)) for *names, share in shares]
    first = making.stages[0]
    assert (first.wall_us, first.cpu_us, first.calls) == (1_500, 750, 4)  # a sample, a sample, a batch


def test_what_no_stage_covers_is_named_and_the_shares_sum_to_one(tmp_path):
    write_settings(tmp_path, warmup=0)
    for name, records in simulate(MadeRun(stages={"decode:a": 4_000, "getitem:rest": 6_000}, pickle=2_500)).items():
        for batch in (record for record in records if record[0] == "batch"):
            batch[8] = [stage for stage in batch[8] if stage[0] == 10]
        write_evidence(tmp_path, name, records)
    (making,) = diagnose(read(tmp_path)).batch_production
    shares = {f"{part.category}:{part.label}": part.share * 12_500 for part in making.stages}
    assert shares == pytest.approx({"other:rest": 6_000, "decode:a": 4_000, "serialise:to the trainer": 2_500})
    assert sum(part.share for part in making.stages) == pytest.approx(1)
    assert [part.cpu_us for part in making.stages if part.category in ("other", "serialise")] == [None, None]


def test_how_busy_the_workers_are_and_on_how_many_cores(tmp_path):
    """A step takes 3.5 ms and a batch 2 ms of one worker: of two, each is busy 2 ms in 7."""
    making = making_of(tmp_path, MadeRun(stages={"decode:a": 2_000}, workers=2, steps=200))
    assert making.busy == pytest.approx(2 / 7, rel=0.02)
    assert making.cores == pytest.approx(1 / 3.5, rel=0.02)  # half of the time is CPU
    assert (making.workers, making.batch_us) == (2, 2_000)


def test_lines_are_shares_of_busy_time(tmp_path):
    write_settings(tmp_path)
    for name, records in simulate(MadeRun(workers=1, steps=10, stages={"getitem:rest": 1_000})).items():
        worker = [["name", 50, "train.py:3:load"], ["lines", 9, [[50, 6_000]]]] if "101" in name else []
        write_evidence(tmp_path, name, [*records, *worker])
    session = read(tmp_path)
    (making,) = diagnose(session).batch_production
    made = len(session.makers[0].batches.index)
    assert [(line.place, line.share) for line in making.lines] == [("train.py:3:load", pytest.approx(6 / made))]


def epochs(tmp_path, workers_of, *, iter_us=30_000, loaders=()):
    """Passes of 5 steps each, by the pids that served them; each begins with `iter_us` of iter(). `loaders` are the
    facts of those that are made anew, one a pass; else all are of one."""
    write_settings(tmp_path, warmup=0)
    known = loaders or [{"num_workers": 1, "batch_size": 2}]
    records = [process(7), *(["loader", number, 0, facts] for number, facts in enumerate(known))]
    made = {pid: [] for pid in workers_of}
    now, step = 0, 0
    for number, pid in enumerate(workers_of):
        epoch = workers_of[:number].count(pid)
        records.append(["pass", number, number if loaders else 0, now, now + iter_us, epoch, [pid]])
        begin = now
        now += iter_us
        for index in range(5):
            made[pid].append(["batch", epoch, index, now + 1, now + 900, now + 950, 0, 2, []])
            records.append(["get", number, index, now, 1_000, now + 1_000, 0])
            records.append(["step", step, begin, now + 4_000, [["b", now - begin + 2_000, 1_000]], 0])
            step, now = step + 1, now + 4_000
            begin = now
    write_evidence(tmp_path, "trainer", records)
    for pid, batches in made.items():
        write_evidence(tmp_path, str(pid), [process(pid), ["worker", 0, {"id": 0, "parent": 7}], *batches])
    return diagnose(read(tmp_path))


def test_workers_that_start_anew_for_each_pass_are_told(tmp_path):
    diagnosis = epochs(tmp_path, [8, 9, 10])
    (making,) = diagnosis.batch_production
    assert (making.respawned, making.passes, making.start_up_us, making.first_batch_us) == (True, 3, 30_000, 1_000)
    found = finding(diagnosis, "respawn")
    assert found is not None
    assert quantities(found.text) == ["3", "1"]
    assert quantities(found.evidence) == ["30.0 ms", "1.0 ms"]
    assert found.weight == pytest.approx(90 / 150, rel=1e-3)


@pytest.mark.parametrize(
    ("workers", "cores", "figures"), [(4, 2, ["5.7", "2"]), (2, 4, ["5.7", "4"])], ids=["cores are short", "both are"]
)
def test_more_work_than_cores_is_told_with_both_figures(tmp_path, workers, cores, figures):
    """A batch costs 20 ms of CPU and is trained on in 3.5 ms: 5.7 cores of work. More workers help up to the cores."""
    run = MadeRun(stages={"decode:a": 40_000}, workers=workers)
    diagnosis = diagnose(made_session(tmp_path, run, machines=[machine(cores=cores)]))
    found = finding(diagnosis, "cores")
    assert found is not None
    assert quantities(found.text) == figures
    assert (finding(diagnosis, "few-workers") is not None) == (workers < cores)


@pytest.mark.parametrize(
    ("unpickle", "pin", "cores"),
    [
        pytest.param(1_500, None, "4.0", id="between the steps: 3.5 + 1.5 ms"),
        pytest.param(1_500, 500, "5.7", id="in a thread that pins, hidden: 3.5 ms"),
        pytest.param(4_500, 500, "4.0", id="in a thread that pins, longer: 4.5 + 0.5 ms"),
        pytest.param(8_000, None, None, id="so long that the cores suffice: 3.5 + 8 ms"),
    ],
)
def test_a_trainer_takes_no_batch_before_it_has_unpickled_it(tmp_path, unpickle, pin, cores):
    """A batch costs 20 ms of CPU, and there are 2 cores."""
    run = MadeRun(stages={"decode:a": 40_000}, workers=4, unpickle=unpickle)
    session = made_session(tmp_path, run, machines=[machine(cores=2)])
    gets = session.trainers[0].gets
    gets.pin = [pin for _ in gets.pin]
    found = finding(diagnose(session), "cores")
    assert (None if found is None else quantities(found.text)[0]) == cores


def test_few_workers_beside_idle_cores_are_told(tmp_path):
    session = made_session(tmp_path, machines=[machine(cores=16)])
    found = finding(diagnose(session), "few-workers")
    assert found is not None
    assert quantities(found.text) == ["2", "1.0", "16"]
    assert finding(diagnose(session), "cores") is None


def test_cores_that_other_programs_use_are_not_left_for_workers(tmp_path):
    crowded = machine(cores=16)
    crowded.time, crowded.columns = [1, 2, 3], {"cpu_cores_other": [12.0, 14.0, 13.0]}
    assert finding(diagnose(made_session(tmp_path, machines=[crowded])), "few-workers") is None


@pytest.mark.parametrize("code", ["threads", "workers-cores", "cpu-throttled"])
def test_workers_that_have_too_few_cores_are_not_called_too_few(tmp_path, monkeypatch, code):
    """Threads of libraries are not in their CPU time, so that cores seem free."""
    crowded = Finding(code, 0.3, "They share 16 cores.", "", "")
    session = made_session(tmp_path, machines=[machine(cores=16)])
    assert finding(diagnose(session), "few-workers") is not None
    monkeypatch.setattr(cores, "core_findings", lambda run: [crowded])
    assert finding(diagnose(session), "few-workers") is None


def test_making_in_the_training_thread_is_told(tmp_path):
    found = finding(diagnose(made_session(tmp_path, MadeRun(workers=0))), "no-workers")
    assert found is not None
    assert found.weight == pytest.approx(10 / 13.5)


def test_the_probes_cost_is_what_it_measured(tmp_path):
    write_settings(tmp_path)
    for name, records in simulate(MadeRun(probe=35.0, steps=40)).items():
        write_evidence(tmp_path, name, records)
    session = read(tmp_path)
    session.warmup = 4
    cost = diagnose(session).cost
    assert cost.step_us == 35.0
    assert cost.step_share == pytest.approx(35 / 5_000)
    assert cost.evidence_bytes == sum(path.stat().st_size for path in (tmp_path / "evidence").iterdir())


def test_loaders_made_anew_for_each_pass_are_one(tmp_path):
    made = {"num_workers": 1, "dataset": "train.Images", "length": 5, "file": "train.py", "line": 9}
    diagnosis = epochs(tmp_path, [8, 9, 10], loaders=[made, made, made])
    (making,) = diagnosis.batch_production
    assert (making.loader, making.passes, making.batches, making.respawned) == (0, 3, 15, True)
    found = finding(diagnosis, "respawn")
    assert found is not None
    assert quantities(found.text) == ["3", "1"]
    assert "persistent_workers=True" in found.advice


def test_equal_loaders_that_take_turns_are_several():
    facts = {"dataset": "train.Images"}
    loaders = [LoaderFacts(0, facts), LoaderFacts(1, facts)]
    passes = [TrainerPass(number, number % 2, number * 100, number * 100 + 1, 0, [9]) for number in range(4)]
    trainer = Trainer(7, "host", 0, loaders=loaders, passes=passes)
    assert with_loaders_as_one(trainer) == trainer
