"""fit_budget: exactly, on an allocator that refuses; and with torch's own steps under a limit of the system's."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import budget_steps
import pytest
import torch
from budget_steps import SIDE
from hypothesis import given
from hypothesis import strategies as st
from processes import source_paths

import headrace as hr
from headrace.device.memory import CudaMemory, says_out_of_memory
from headrace.device.memory_search import WARM_UPS
from headrace.errors import BudgetError, UsageError

CAPACITY = 10_000_000
SHAPES = [(10, 10), (20, 30)]


class Refusing:
    """Memory of a made-up device: a step asks for it by `take`, and is refused beyond the capacity."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.kept = self.now = self.most = 0

    def take(self, size: int) -> None:
        self.now += size
        if self.now > self.capacity:
            raise MemoryError
        self.most = max(self.most, self.now)

    def keep(self, size: int) -> None:
        """For the steps to come, too, as an optimizer's state."""
        if self.kept == 0:
            self.take(size)
            self.kept = size

    def capacity_bytes(self) -> int:
        return self.capacity

    def begin(self) -> None:
        self.now = self.most = self.kept

    def peak_bytes(self) -> int:
        return self.most

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)


def linear(memory, *, fixed=1_000_000, per_pixel=100):
    def step(samples, height, width):
        memory.keep(fixed)
        memory.take(samples * height * width * per_pixel)

    return step


def fit(step, memory, **options):
    return hr.fit_budget(step, memory=memory, device="cpu", **({"shapes": SHAPES} | options))


def test_the_largest_budget_under_the_margin():
    memory = Refusing()
    budget = fit(linear(memory), memory)
    assert budget.pixels == (9_000_000 - 1_000_000) // (100 * 600) * 600
    assert (budget.unit, budget.rank_multiple) == ("pixels", None)
    assert isinstance(budget, hr.Budget)
    assert budget.fit.line.fixed_bytes == pytest.approx(1_000_000)
    assert budget.fit.line.bytes_per_sample == pytest.approx(60_000)
    assert budget.fit.line.residual_bytes == pytest.approx(0, abs=1)
    assert (budget.fit.capacity_bytes, budget.fit.limit_bytes, budget.fit.margin) == (CAPACITY, 9_000_000, 0.1)
    assert budget.fit.ranks == (budget.pixels,)


def test_what_is_found_has_run_in_every_shape():
    memory = Refusing()
    budget = fit(linear(memory), memory)
    ran = {(step.shape, step.samples) for step in budget.fit.steps if step.peak_bytes is not None}
    assert {(shape, budget.pixels // (shape[0] * shape[1])) for shape in SHAPES} <= ran
    assert (budget.fit.largest.shape, budget.fit.largest.samples) in ran


@given(
    fixed=st.integers(1, 8_000_000), per_pixel=st.integers(1, 100), margin=st.floats(0, 0.5), power=st.floats(1.0, 1.6)
)
def test_no_budget_goes_beyond_the_limit(fixed, per_pixel, margin, power):
    memory = Refusing()

    def takes(samples, height, width):
        return int(samples * (height * width) ** power * per_pixel / 600 ** (power - 1))

    def step(samples, height, width):
        memory.keep(fixed)
        memory.take(takes(samples, height, width))

    limit = int(CAPACITY * (1 - margin))
    if fixed + max(takes(1, *shape) for shape in SHAPES) > limit:
        with pytest.raises(BudgetError):
            fit(step, memory, margin=margin)
        return
    budget = fit(step, memory, margin=margin)
    for height, width in SHAPES:
        assert fixed + takes(budget.pixels // (height * width), height, width) <= limit
    assert fixed + takes(1.05 * budget.pixels / 600 + 1, 20, 30) > limit


def test_a_shape_whose_memory_grows_otherwise_decides():
    """The narrow one takes ten times as much a pixel."""
    memory = Refusing()

    def step(samples, height, width):
        memory.take(samples * height * width * (1000 if width == 10 else 100))

    budget = fit(step, memory)
    assert 0.95 * 9000 <= budget.pixels <= 9000
    assert budget.fit.largest.shape == (10, 10)


def test_tokens():
    memory = Refusing()
    budget = fit(lambda samples, length: memory.take(samples * length * 1000), memory, shapes=None, lengths=[10, 100])
    assert (budget.tokens, budget.unit) == (9000, "tokens")


def test_most_is_not_exceeded():
    memory = Refusing()
    seen = []
    step = linear(memory)
    budget = fit(lambda *size: (seen.append(size), step(*size)), memory, most=6500, rank_multiple=4)
    assert (budget.pixels, budget.rank_multiple) == (6000, 4)
    assert max(samples * height * width for samples, height, width in seen) <= 6500


def test_the_first_steps_do_not_count():
    """They take much more than all others, as cuDNN's search for an algorithm."""
    memory, steps = Refusing(), []

    def step(samples, height, width):
        steps.append(samples)
        memory.take(8_000_000 if len(steps) <= WARM_UPS else samples * height * width)

    budget = fit(step, memory)
    assert all(step.peak_bytes < 8_000_000 for step in budget.fit.steps[:-2])
    assert budget.pixels == 9_000_000 // 600 * 600


def test_one_sample_that_does_not_fit_is_named():
    memory = Refusing()
    text = (
        "expected a step of one sample of 20x30 to fit in 10,000,000 bytes.*it ran out of memory; take smaller shapes"
    )
    with pytest.raises(BudgetError, match=text):
        fit(linear(memory, per_pixel=100_000), memory)
    memory = Refusing()
    with pytest.raises(BudgetError, match=r"fit in 9,000,000 bytes, .*it took 9,400,000 bytes; take smaller shapes"):
        fit(linear(memory, per_pixel=14_000), memory)


def test_an_error_of_the_step_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError):
        fit(lambda *size: 1 // 0, Refusing())


def test_the_tensors_of_a_step_that_ran_out_are_let_go_of():
    class Held:
        alive = 0

        def __init__(self):
            Held.alive += 1
            self.cycle = self

        def __del__(self):
            Held.alive -= 1

    memory, alive = Refusing(), []

    def step(samples, height, width):
        alive.append(Held.alive)
        held = Held()
        memory.take(samples * height * width * (5000 if samples > 5 else 1))
        del held.cycle

    budget = fit(step, memory, shapes=[(20, 100)], margin=0.0)
    assert any(step.peak_bytes is None for step in budget.fit.steps[:-1])
    assert alive == [0] * len(alive)


def test_states_are_put_back_and_the_random_state():
    memory = Refusing()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    weight, random = model.weight.detach().clone(), torch.get_rng_state()

    def step(samples, height, width):
        memory.take(samples * height * width * 1000)
        model(torch.rand(1, 2)).sum().backward()
        optimizer.step()
        schedule.step()

    fit(step, memory, restore=[model, optimizer, schedule])
    assert torch.equal(model.weight, weight)
    assert model.weight.grad is None
    assert optimizer.state_dict()["state"] == {}
    assert (optimizer.param_groups[0]["lr"], schedule.last_epoch) == (0.1, 0)
    assert torch.equal(torch.get_rng_state(), random)


def test_states_are_put_back_after_an_error():
    model = torch.nn.Linear(2, 1)
    weight = model.weight.detach().clone()

    def step(*size):
        torch.nn.init.zeros_(model.weight)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fit(step, Refusing(), restore=[model])
    assert torch.equal(model.weight, weight)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lengths": [1]}, r"expected either shapes=\[\(height, width\), …\] or lengths=\[…\], got both or none"),
        ({"shapes": None}, "got both or none"),
        ({"shapes": []}, r"shapes: expected \(height, width\) pairs of at least 1, got \[\]"),
        ({"shapes": [(0, 3)]}, "shapes: expected"),
        ({"shapes": None, "lengths": [2.5]}, r"lengths: expected ints of at least 1, got \[2.5\]"),
        ({"margin": 1.0}, "margin: expected a share of 0 … 1, got 1.0"),
        ({"most": 0}, "most: expected pixels or tokens of at least 1, got 0"),
        ({"device": "meta", "memory": None}, "device: expected 'cuda' or 'cpu', got 'meta'"),
    ],
    ids=["both", "none", "empty", "zero", "float", "margin", "most", "device"],
)
def test_arguments_that_are_wrong(options, text):
    with pytest.raises(UsageError, match=text):
        hr.fit_budget(lambda *size: None, **({"shapes": SHAPES, "memory": Refusing(), "device": "cpu"} | options))


def test_most_below_one_sample():
    with pytest.raises(BudgetError, match="most: expected room for one sample of 20x30, 600, got 599"):
        fit(lambda *size: None, Refusing(), most=599)


def test_the_report_can_be_read():
    memory = Refusing()
    text = str(fit(linear(memory), memory).fit)
    assert text.startswith("limit 8.6 of 9.5 MiB (margin 10%)\n1 x 20x30: 1.0 MiB\n2 x 20x30: 1.1 MiB\n")
    assert text.endswith("line 1.0 MiB + 0.057 MiB a sample, off by at most 0.000 MiB")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
    ids=["cuda", "python", "cpu", "cublas", "other", "other-kind"],
)
def test_which_errors_say_that_memory_ran_out(error, said):
    assert says_out_of_memory(error) is said
    outer = ValueError("in my step")
    outer.__cause__ = error
    assert says_out_of_memory(outer) is said


# ---- torch on the CPU, under RLIMIT_AS -------------------------------------------------------------------------

HEAP = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
"""Each tensor is mapped by itself: what glibc's heap leaves in pieces would take of the limit for good."""


def environment():
    return os.environ | HEAP | {"PYTHONPATH": os.pathsep.join(source_paths()), "CUDA_VISIBLE_DEVICES": ""}


def run(check):
    command = [sys.executable, budget_steps.__file__, check]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=110)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.long
def test_the_budget_found_runs_and_one_1_3_times_as_large_does_not():
    found = run("fitted")
    assert found["fits"] is True, found["report"]
    assert "can't allocate memory" in str(found["fits_1.3"]), found["report"]
    assert found["within"]
    assert found["same"]
    assert all(found["gradients"])


@pytest.mark.long
def test_attention_ends_with_a_budget_of_its_longest():
    found = run("attention")
    assert found["shape"] == [1024]
    assert found["samples"] >= 4, found["report"]


@pytest.mark.long
def test_a_real_step_that_is_out_of_memory_at_one_sample():
    assert run("too_small").startswith("expected a step of one sample of 4096x4096 to fit in ")


@pytest.mark.long
def test_ranks_take_the_smaller_of_what_they_find_and_hear_of_one_that_fails(tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, budget_steps.__file__, "of_two_ranks", str(tmp_path)]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=110)
    assert ran.returncode == 0, ran.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first["pixels"] == second["pixels"] == min(first["ranks"])
    assert first["ranks"] == second["ranks"]
    assert first["ranks"][1] < 0.8 * first["ranks"][0]
    assert second["failed"] == "ValueError: expected 3 channels"
    text = "BudgetError: expected a budget of every rank, got none of rank 1: ValueError: expected 3 channels"
    assert first["failed"] == text


# ---- CUDA ------------------------------------------------------------------------------------------------------


@pytest.fixture
def a_gibibyte():
    """The allocator of torch refuses beyond it."""
    device = torch.device("cuda", torch.cuda.current_device())
    torch.cuda.set_per_process_memory_fraction(2**30 / torch.cuda.mem_get_info(device)[1], device)
    yield device
    torch.cuda.set_per_process_memory_fraction(1.0, device)
    torch.cuda.empty_cache()


@pytest.mark.cuda
def test_the_budget_found_on_a_gpu_runs_and_one_1_3_times_as_large_does_not(a_gibibyte):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.Sigmoid(), torch.nn.Conv2d(8, 1, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def step(samples, height, width):
        optimizer.zero_grad()
        model(torch.rand(samples, 3, height, width, device="cuda")).mean().backward()
        optimizer.step()

    shapes = [(SIDE, SIDE), (4 * SIDE, 8 * SIDE)]
    budget = hr.fit_budget(step, shapes=shapes, restore=[model, optimizer])
    for height, width in shapes:
        step(budget.pixels // (height * width), height, width)
    with pytest.raises(torch.OutOfMemoryError):
        step(int(1.3 * budget.pixels / SIDE**2), SIDE, SIDE)
    assert budget.fit.capacity_bytes <= 2**30


@pytest.mark.cuda
def test_a_gpus_capacity_is_what_others_leave_and_its_peak_what_a_step_took():
    device = torch.device("cuda", torch.cuda.current_device())
    memory = CudaMemory(device)
    memory.begin()
    before, held = memory.peak_bytes(), memory.capacity_bytes()
    tensor = torch.empty(256 << 20, dtype=torch.uint8, device=device)
    del tensor
    assert memory.peak_bytes() - before >= 256 << 20
    memory.begin()
    assert memory.peak_bytes() == before
    assert held <= torch.cuda.mem_get_info(device)[1]
