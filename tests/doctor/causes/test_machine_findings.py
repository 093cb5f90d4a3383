"""What the machine had to do with it: each finding where its cause is, and none where it is not."""

from __future__ import annotations

from machine_findings import Run, codes, machine_findings


def test_nothing_measured_finds_nothing() -> None:
    assert codes(Run()) == []
    assert codes(Run(facts={"gpus": None, "disks": {}, "mounts": []}, columns={"cpu_cores_busy": None})) == []


def test_no_machine_finds_nothing() -> None:
    session = Run().session()
    session.machines = []
    assert machine_findings(session) == []


def test_only_the_measured_steps_count() -> None:
    run = Run(facts={"cores": 4})
    session = run.session()
    session.machines[0].columns["cpu_cores_stolen"] = [None, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 0.0, 0.0, 0.0]
    session.trainers[0].steps.start = [7]
    assert machine_findings(session) == []


def test_a_machine_is_named_where_there_are_several() -> None:
    session = Run(facts={"cores": 4}, columns={"cpu_cores_stolen": 0.4}).session()
    session.machines.append(Run(facts={"cores": 4}, columns={"cpu_cores_stolen": 0.8}, host="there").machine([]))
    assert [finding.text.split(":")[0] for finding in machine_findings(session)] == ["there", "here"]
