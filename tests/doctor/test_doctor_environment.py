"""What the machine had to do with it: each finding where its cause is, and none where it is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.doctor.analyse.diagnosis import Finding
from headrace.doctor.analyse.environment import findings
from headrace.doctor.analyse.words import number, size
from headrace.doctor.session.model import Loader, Machine, Maker, Outcome, Pass, Process, Session, Steps, Trainer

GB = 10**9
TRAINER = 100
ROWS = 10


@dataclass
class Run:
    """A run on one machine: a trainer, workers, and readings that stay as they are."""

    facts: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, float | None] = field(default_factory=dict)
    workers: int = 2
    worker_facts: dict[str, Any] = field(default_factory=dict)
    worker_figures: dict[str, Any] = field(default_factory=dict)
    trainer_facts: dict[str, Any] = field(default_factory=dict)
    device: str | None = None
    host: str = "here"

    def session(self) -> Session:
        pids = [TRAINER + 1 + worker for worker in range(self.workers)]
        trainer = Trainer(
            TRAINER,
            self.host,
            0,
            steps=Steps(number=[0], start=[0], end=[ROWS], spans=[[]], probe=[None], device=[None], ready=[None]),
            passes=[Pass(0, 0, 0, 1, 0, pids or [TRAINER])],
            loaders=[Loader(0, {"num_workers": self.workers})],
        )
        makers = [Maker(pid, self.host, TRAINER, worker) for worker, pid in enumerate(pids)]
        trainers_facts = {"facts": {"device": self.device, **self.trainer_facts}}
        return Session(
            created="",
            mode="measure",
            headrace="",
            warmup=None,
            steps=1,
            outcome=Outcome([], 0, "finished", ROWS),
            trainers=[trainer],
            makers=makers or [Maker(TRAINER, self.host, TRAINER, None)],
            processes=[
                Process(TRAINER, 1, self.host, "trainer", 0, ROWS, "exit", trainers_facts),
                *(
                    Process(pid, TRAINER, self.host, "worker", 0, ROWS, "exit", {"facts": self.worker_facts})
                    for pid in pids
                ),
            ],
            machines=[self.machine(pids or [TRAINER])],
        )

    def machine(self, makers: list[int]) -> Machine:
        return Machine(
            host=self.host,
            facts=self.facts,
            time=list(range(1, ROWS + 1)),
            columns={name: [value] * ROWS for name, value in self.columns.items()},
            processes={TRAINER: {}}
            | {pid: {"started": 0, "last": 10_000_000, **self.worker_figures} for pid in makers},
        )


def only(run: Run) -> Finding:
    found = findings(run.session())
    assert len(found) == 1, f"expected one finding, got {[finding.code for finding in found]}"
    return found[0]


def codes(run: Run) -> list[str]:
    return [finding.code for finding in findings(run.session())]


def test_nothing_measured_finds_nothing() -> None:
    assert codes(Run()) == []
    assert codes(Run(facts={"gpus": None, "disks": {}, "mounts": []}, columns={"cpu_cores_busy": None})) == []


def test_no_machine_finds_nothing() -> None:
    session = Run().session()
    session.machines = []
    assert findings(session) == []


THREADS = Run(
    facts={"cores": 4},
    workers=2,
    worker_facts={"torch_threads": 1, "opencv_threads": 8, "omp_threads": None},
    worker_figures={"cpu_wait_s": 4.0},
    device="NVIDIA H100",
)


def test_threads_that_share_cores() -> None:
    found = only(THREADS)
    assert found.code == "threads"
    assert found.text == "17 threads want to run on 4 cores."
    assert found.evidence == (
        "2 workers × 8 and 1 training process with 1 by what torch, OpenMP and OpenCV say; "
        "work that was ready to run waited for a core 40 % of the time."
    )
    assert "cv2.setNumThreads(0)" in found.advice
    assert found.weight == pytest.approx(0.4)


def test_a_trainer_without_a_gpu_computes_with_torchs_threads() -> None:
    run = Run(
        facts={"cores": 2},
        workers=0,
        trainer_facts={"torch_threads": 8},
        columns={"pressure_cpu_some_share": 0.5},
    )
    assert only(run).text == "8 threads want to run on 2 cores."
    run.device = "NVIDIA H100"
    assert codes(run) == []


@pytest.mark.parametrize(
    "change",
    [
        {"facts": {"cores": 17}},
        {"facts": {}},
        {"worker_figures": {"cpu_wait_s": 0.5}},
        {"worker_facts": {}},
        {"worker_facts": {"torch_threads": 1, "opencv_threads": 1}},
    ],
)
def test_threads_that_have_cores_or_are_unknown(change: dict[str, Any]) -> None:
    run = Run(**{**vars(THREADS), **change})
    assert "threads" not in codes(run)


def test_threads_whose_waiting_was_not_measured_weigh_nothing() -> None:
    found = only(Run(**{**vars(THREADS), "worker_figures": {}}))
    assert found.weight == 0
    assert found.evidence.endswith("how long they waited for a core was not measured.")


def test_more_workers_than_cores() -> None:
    run = Run(
        facts={"cores": 1.5, "cores_quota": 1.5, "cores_online": 64},
        workers=8,
        worker_figures={"cpu_wait_s": 7.0},
    )
    found = only(run)
    assert (found.code, found.text) == ("workers-cores", "8 workers share 1.5 cores.")
    assert found.evidence.startswith("The process may use a quota of 1.5 of 64 cores; ")
    run.worker_figures = {"cpu_wait_s": 0.2}
    assert codes(run) == [], "expected none where they wait for storage, not for cores"


def test_cores_held_back_by_a_quota() -> None:
    columns = {"cpu_throttled_cores": 0.5, "cpu_throttled_periods_share": 0.4, "cpu_cores_command": 2.0}
    found = only(Run(facts={"cores_quota": 2.0}, columns=columns))
    assert found.code == "cpu-throttled"
    assert found.text == "The control group's CPU quota held the processes back in 40 % of its periods."
    assert found.evidence == "A quota of 2 cores; 0.5 cores' worth of work stood still on average."
    assert found.weight == pytest.approx(0.2)
    assert codes(Run(columns={**columns, "cpu_throttled_periods_share": 0.0})) == []


def test_other_processes_take_cores() -> None:
    columns = {"cpu_cores_busy": 4.0, "cpu_cores_other": 1.0, "cpu_cores_command": 2.9, "pressure_cpu_some_share": 0.4}
    found = only(Run(facts={"cores": 4}, columns=columns))
    assert found.text == "Other processes use 1 of 4 cores."
    assert found.evidence == "100 % of the cores were busy; the command itself had 2.9."
    assert found.weight == pytest.approx(0.1), "expected their part of the waiting"
    assert codes(Run(facts={"cores": 8}, columns=columns)) == [], "expected none while cores are free"


def test_waiting_that_others_cause_is_not_laid_to_threads() -> None:
    columns = {"cpu_cores_busy": 4.0, "cpu_cores_other": 3.0, "cpu_cores_command": 1.0}
    found = findings(Run(**{**vars(THREADS), "columns": columns}).session())
    assert [(finding.code, finding.weight) for finding in found] == [
        ("cpu-others", pytest.approx(0.3)),
        ("threads", pytest.approx(0.1)),
    ]


def test_workers_of_many_threads_are_one_finding() -> None:
    run = Run(**{**vars(THREADS), "facts": {"cores": 1}})
    assert codes(run) == ["threads"]


def test_a_gpu_by_its_mig_instance() -> None:
    run = gpu({})
    run.facts["gpus"] = {"gpu0_mig1": GPU}
    run.columns = {"gpu0_mig1_memory_used_bytes": 1.0 * GB}
    assert only(run).text.startswith("GPU 0 MIG 1 has ")


def test_cores_given_to_other_machines() -> None:
    found = only(Run(facts={"cores": 4}, columns={"cpu_cores_stolen": 0.4}))
    assert (found.code, found.weight) == ("cpu-stolen", pytest.approx(0.1))


def test_an_out_of_memory_kill_comes_first() -> None:
    columns = {"command_pss_bytes": 7.9 * GB, "cpu_cores_stolen": 0.4}
    found = findings(Run(facts={"oom_kills": 1, "memory_limit_bytes": 8 * GB, "cores": 4}, columns=columns).session())
    assert [finding.code for finding in found] == ["oom-kill", "cpu-stolen"]
    assert found[0].text == "The kernel killed 1 process for want of memory during the run."
    assert found[0].evidence == "In a control group of 8.0 GB; the command held 7.9 GB at most, as far as was seen."
    assert codes(Run(facts={"oom_kills": 0})) == []


def test_memory_that_nears_its_limit() -> None:
    run = Run(facts={"memory_limit_bytes": 10 * GB}, columns={"cgroup_memory_used_bytes": 9.5 * GB})
    assert only(run).text == "Memory is nearly used up: 9.5 GB of 10 GB."
    run.columns = {"cgroup_memory_used_bytes": 8.0 * GB}
    assert codes(run) == []


def test_swapping() -> None:
    columns = {"swap_in_bytes_per_s": 5e6, "swap_out_bytes_per_s": None, "pressure_memory_some_share": 0.3}
    found = only(Run(columns={**columns, "swap_used_bytes": 2 * GB, "memory_available_bytes": 0.1 * GB}))
    assert found.text == "The machine swaps 5.0 MB a second."
    assert found.evidence == "2.0 GB of swap in use, 100 MB of memory left at the least."
    assert found.weight == pytest.approx(0.3)


def test_copies_of_what_was_shared_are_named() -> None:
    run = Run(
        facts={"memory_bytes": 16 * GB},
        workers=4,
        worker_figures={"cow_bytes": GB // 2, "shared_bytes_first": 2 * GB},
    )
    found = only(run)
    assert found.code == "copy-on-write"
    assert found.text == "Workers copied 2.0 GB of memory that they shared with their parent."
    assert found.evidence == (
        "4 workers; they shared 8.0 GB when first seen, and can grow by that much, of 16 GB that there is (50 %)."
    )
    run.worker_figures["cow_bytes"] = 1_000_000
    assert codes(run) == []


@pytest.mark.parametrize(("total", "used", "word"), [(64 << 20, 1 << 20, "small"), (8 * GB, 7 * GB, "nearly full")])
def test_little_shared_memory(total: int, used: int, word: str) -> None:
    run = Run(facts={"shm_bytes": total}, columns={"shm_used_bytes": float(used)})
    assert only(run).text.startswith(f"/dev/shm is {word}: ")
    run.workers = 0
    assert codes(run) == [], "expected none without workers, which use it"


def test_reads_that_come_from_disk() -> None:
    run = Run(
        facts={"memory_bytes": 8 * GB},
        columns={"command_read_bytes_per_s": 50e6, "pressure_io_some_share": 0.25},
        worker_figures={"read_call_bytes": 10 * GB, "read_bytes": 9 * GB},
    )
    found = only(run)
    assert found.text == "90 % of what is read comes from disk, not from the page cache."
    assert found.evidence == (
        "18 GB in all, 50 MB a second; something waited for storage 25 % of the time; "
        "that is more than the 8.0 GB of memory, so it cannot all be cached."
    )
    run.facts["memory_bytes"] = 64 * GB
    assert "was not seen" in only(run).evidence
    run.worker_figures["read_bytes"] = GB // 10
    assert codes(run) == []


def test_data_that_comes_over_a_network() -> None:
    mounts = [
        {"path": "/data", "kind": "nfs4", "source": "server:/export", "network": True, "files_seen": 12},
        {"path": "/", "kind": "ext4", "source": "/dev/vda", "network": False, "files_seen": 1},
    ]
    run = Run(facts={"mounts": mounts}, columns={"command_read_call_bytes_per_s": 30e6})
    found = only(run)
    assert found.text == "Data is read over a network: /data (nfs4, from server:/export)."
    assert found.evidence == "30 MB a second in all; the figures of this machine's disks are without it."
    run.columns = {"command_read_call_bytes_per_s": 10.0}
    assert codes(run) == []
    run = Run(facts={"mounts": mounts[1:]}, columns={"command_read_call_bytes_per_s": 30e6})
    assert codes(run) == []


def test_a_disk_that_gives_no_more() -> None:
    disk = {"busy_share": 0.97, "read_bytes_per_s": 120e6, "reads_per_s": 250.0, "read_latency_us": 8000.0}
    columns: dict[str, float | None] = {f"disk_sda_{name}": value for name, value in disk.items()}
    found = only(Run(facts={"disks": {"sda": {}, "sdb": {}}}, columns={**columns, "pressure_io_some_share": 0.5}))
    assert found.text == "Disk sda is busy 97 % of the time."
    assert found.evidence == (
        "120 MB and 250 reads a second, 8 ms each; something waited for storage 50 % of the time."
    )
    assert codes(Run(facts={"disks": {"sda": {}}}, columns={**columns, "pressure_io_some_share": 0.0})) == []


GPU = {
    "memory_bytes": 80 * GB,
    "sm_clock_max_mhz": 2000,
    "power_limit_w": 700.0,
    "pcie_generation": 5,
    "pcie_width": 16,
    "pcie_generation_max": 5,
    "pcie_width_max": 16,
    "pids": [TRAINER],
}


def gpu(columns: dict[str, float | None], **facts: Any) -> Run:
    return Run(facts={"gpus": {"gpu0": {**GPU, **facts}}}, columns={f"gpu0_{name}": v for name, v in columns.items()})


@pytest.mark.parametrize(
    ("run", "code", "text", "evidence"),
    [
        (
            gpu({"slowed_by_heat": 0.5, "sm_clock_mhz": 1000.0}),
            "gpu-heat",
            "GPU 0 was slowed down by heat in 50 % of the readings.",
            "SM clock 1000 MHz on average, 2,000 at most.",
        ),
        (
            gpu({"slowed_by_power": 1.0, "sm_clock_mhz": 1900.0}),
            "gpu-power",
            "GPU 0 was held at its power limit in 100 % of the readings.",
            "SM clock 1900 MHz on average, 2,000 at most; its limit is 700 W.",
        ),
        (
            gpu({"pcie_received_bytes_per_s": 3e9}, pcie_width=4),
            "gpu-pcie",
            "GPU 0 is linked by PCIe 5 ×4 of 5 ×16.",
            "The widest and fastest seen in the run; it received 3.0 GB a second.",
        ),
        (
            gpu({"memory_used_bytes": 20.0 * GB}),
            "gpu-memory-left",
            "GPU 0 has 60 GB of 80 GB of memory left.",
            "All processes together, at the fullest reading; torch's cache counts as used.",
        ),
        (
            gpu({"utilisation_percent": 98.0, "sm_percent": 23.0}),
            "gpu-util",
            "GPU 0 shows 98 % GPU-Util, yet 23 % of its SMs were active.",
            "GPU-Util says that some kernel ran, not that the GPU was busy.",
        ),
    ],
)
def test_gpus(run: Run, code: str, text: str, evidence: str) -> None:
    found = only(run)
    assert (found.code, found.text, found.evidence) == (code, text, evidence)
    assert 0 <= found.weight <= 0.5


def test_a_gpu_at_its_best_finds_nothing() -> None:
    columns: dict[str, float | None] = {
        "slowed_by_heat": 0.0,
        "slowed_by_power": 0.0,
        "sm_clock_mhz": 1980.0,
        "memory_used_bytes": 70.0 * GB,
        "utilisation_percent": 99.0,
        "sm_percent": 90.0,
    }
    assert codes(gpu(columns)) == []


def test_a_gpu_of_another_command_is_left_alone() -> None:
    run = gpu({"memory_used_bytes": 1.0 * GB})
    run.facts["gpus"]["gpu0"]["pids"] = [TRAINER + 1]
    run.facts["gpus"]["gpu1"] = {**GPU, "pids": [9]}
    run.columns["gpu1_memory_used_bytes"] = 1.0 * GB
    assert [finding.text[:5] for finding in findings(run.session())] == ["GPU 0"]


def test_in_a_container_whose_processes_have_other_numbers_the_gpus_in_use_count() -> None:
    run = gpu({"memory_used_bytes": 1.0 * GB}, pids=[987_654])
    assert codes(run) == [], "expected none for a command that does not train on a GPU"
    run.device = "NVIDIA H100"
    assert codes(run) == ["gpu-memory-left"]


def test_only_the_measured_steps_count() -> None:
    run = Run(facts={"cores": 4})
    session = run.session()
    session.machines[0].columns["cpu_cores_stolen"] = [None, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 0.0, 0.0, 0.0]
    session.trainers[0].steps.start = [7]
    assert findings(session) == []


def test_a_machine_is_named_where_there_are_several() -> None:
    session = Run(facts={"cores": 4}, columns={"cpu_cores_stolen": 0.4}).session()
    session.machines.append(Run(facts={"cores": 4}, columns={"cpu_cores_stolen": 0.8}, host="there").machine([]))
    assert [finding.text.split(":")[0] for finding in findings(session)] == ["there", "here"]


def test_each_finding_says_what_to_do() -> None:
    for run in (THREADS, gpu({"memory_used_bytes": 1.0}), Run(facts={"oom_kills": 1})):
        assert all(finding.advice and finding.evidence for finding in findings(run.session()))


def test_words() -> None:
    assert [size(812), size(1_400_000), size(23 * GB), size(5e12)] == ["812 B", "1.4 MB", "23 GB", "5.0 TB"]
    assert [number(3.0), number(1.94), number(1204.4)] == ["3", "1.9", "1,204"]
