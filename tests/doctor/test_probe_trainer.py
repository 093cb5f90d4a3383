"""What the probe writes of training loops as people write them, in this very process and without a device."""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import kinds, notes, probed, records
from torch.utils.data import DataLoader
from training_loops import Loop, Stream, loader, pairs

from headrace.doctor.probe.blocks import BLOCK
from headrace.doctor.probe.ending import Finished

HERE = __file__
second_is_here = torch.multiprocessing.get_context("fork").Event()


class Arrival:
    """Tells when it has come out of a queue."""

    def __reduce__(self) -> Any:
        return _arrived, ()


def _arrived() -> None:
    second_is_here.set()


def _line() -> int:
    """Of the caller."""
    return sys._getframe(1).f_lineno


def test_each_step_has_its_batches_its_backward_pass_and_its_optimizer(tmp_path: Path) -> None:
    with probed(tmp_path):
        Loop().train(loader(24))
    steps, gets = records(tmp_path, "step"), records(tmp_path, "get")
    assert [step[1] for step in steps] == list(range(6))
    assert {kinds(step) for step in steps} == {"bo"}
    assert [get[1:3] for get in gets] == [[0, index] for index in range(6)]
    assert all(before[3] == after[2] for before, after in itertools.pairwise(steps))
    for step, get in zip(steps, gets, strict=True):
        backward, optimizer = step[4]
        assert step[2] <= get[3] <= get[3] + get[4] <= step[2] + backward[1]
        assert backward[1] + backward[2] <= optimizer[1] + 1
        assert abs(step[2] + optimizer[1] + optimizer[2] - step[3]) <= 2
        assert step[5] > 0


def test_a_loader_is_described_where_the_user_iterates_it(tmp_path: Path) -> None:
    batches = loader(22, shuffle=False)
    with probed(tmp_path):
        for _ in range(2):
            line = _line() + 1
            for _ in batches:
                pass
    (described,) = records(tmp_path, "loader")
    assert described[1] == 0
    facts = described[3]
    assert (facts.pop("file"), facts.pop("line")) == (HERE, line)
    assert facts == {
        "num_workers": 0,
        "batch_size": 4,
        "prefetch_factor": None,
        "persistent_workers": False,
        "pin_memory": False,
        "in_order": True,
        "timeout": 0,
        "iterable": False,
        "start_method": None,
        "dataset": "torch.utils.data.dataset.TensorDataset",
        "length": 6,
    }
    passes = records(tmp_path, "pass")
    assert [(one[1], one[2], one[5], one[6]) for one in passes] == [(0, 0, 0, [os.getpid()]), (1, 0, 1, [os.getpid()])]
    assert [last[1] for last in records(tmp_path, "last")] == [0, 1]


def test_bytes_and_shapes_of_batches(tmp_path: Path) -> None:
    with probed(tmp_path):
        Loop().train(loader(22))
    names = {number: text for _, number, text in records(tmp_path, "name")}
    seen = [(get[9], names[get[10]]) for get in records(tmp_path, "get")]
    assert seen[0] == (4 * 9 * 4, "float32[4,8] float32[4,1]")
    assert seen[-1] == (2 * 9 * 4, "float32[2,8] float32[2,1]")
    assert len(set(seen)) == 2


@pytest.mark.parametrize("persistent", [False, True])
def test_batches_of_workers_tell_when_they_arrived(tmp_path: Path, persistent: bool) -> None:
    batches = loader(24, num_workers=2, persistent_workers=persistent)
    with probed(tmp_path):
        for _ in range(2):
            Loop().train(batches)
    del batches
    passes, gets = records(tmp_path, "pass"), records(tmp_path, "get")
    assert [one[5] for one in passes] == ([0, 1] if persistent else [0, 0])
    assert len({tuple(one[6]) for one in passes}) == (1 if persistent else 2)
    assert os.getpid() not in passes[0][6]
    assert len(passes[0][6]) == 2
    assert [get[1:3] for get in gets] == [[pass_, index] for pass_ in (0, 1) for index in range(6)]
    for _, _, _, start, duration, arrived, unpickle, pin_start, pin, _, _ in gets:
        assert arrived <= start + duration + 1
        assert unpickle >= 0
        assert (pin_start, pin) == (None, None)
    (described,) = records(tmp_path, "loader")
    assert (described[3]["num_workers"], described[3]["start_method"]) == (2, "fork")


def test_a_batch_held_back_for_an_earlier_one_had_arrived_before_it_was_asked_for(tmp_path: Path) -> None:
    class FirstIsLate(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            if index == 0:
                assert second_is_here.wait(30)
            return Arrival() if index else index

    with probed(tmp_path):
        assert len(list(DataLoader(FirstIsLate(), batch_size=None, num_workers=2))) == 2
    first, second = records(tmp_path, "get")
    assert first[2] == 0
    assert second[2] == 1
    assert second[5] <= first[5]
    assert second[5] < second[3]


def test_batches_out_of_order_keep_their_own_index(tmp_path: Path) -> None:
    with probed(tmp_path):
        for _ in DataLoader(range(12), num_workers=2, in_order=False):  # type: ignore[arg-type]
            pass
    gets = records(tmp_path, "get")
    assert sorted(get[2] for get in gets) == list(range(12))
    assert None not in [get[5] for get in gets]


def test_an_iterable_whose_workers_end_at_different_times(tmp_path: Path) -> None:
    with probed(tmp_path):
        received = sum(len(batch) for batch in DataLoader(Stream(5), batch_size=2, num_workers=2))
    gets = records(tmp_path, "get")
    assert received == 10
    assert len(gets) == 6
    assert len({get[2] for get in gets}) == 6
    assert records(tmp_path, "loader")[0][3]["iterable"] is True
    assert "no-optimizer" in notes(tmp_path)


def test_accumulated_batches_belong_to_one_step(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.loss(batch).backward()
            if number % 3 == 2:
                loop.optimizer.step()
    steps = records(tmp_path, "step")
    assert [kinds(step) for step in steps] == ["bbbo", "bbbo"]
    assert [sum(step[2] <= get[3] < step[3] for get in records(tmp_path, "get")) for step in steps] == [3, 3]


def test_two_optimizers_take_one_step(tmp_path: Path) -> None:
    one, two = Loop(), Loop()
    with probed(tmp_path):
        for batch in loader(24):
            one.step(batch)
            two.step(batch)
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bobo"] * 6
    assert "2 optimizers" in notes(tmp_path)["optimizers"]


def test_a_step_that_the_scaler_skips_counts(tmp_path: Path) -> None:
    loop = Loop()
    scaler = torch.amp.GradScaler("cpu")
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.optimizer.zero_grad()
            loss = loop.loss(batch)
            scaler.scale(loss * (float("inf") if number == 2 else 1.0)).backward()
            scaler.step(loop.optimizer)
            scaler.update()
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bo", "bo", "bs", "bo", "bo", "bo"]
    assert "scaler" in notes(tmp_path)


def test_an_optimizer_that_raises_ends_no_step_and_stops_none_after_it(tmp_path: Path) -> None:
    loop = Loop()

    def out_of_memory() -> float:
        raise MemoryError

    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.loss(batch).backward()
            if number == 2:
                with pytest.raises(MemoryError):
                    loop.optimizer.step(out_of_memory)
            else:
                loop.optimizer.step()
    assert len(records(tmp_path, "step")) == 5
    assert len(records(tmp_path, "get")) == 6
    assert "hook-off" not in notes(tmp_path)


def test_a_closure_runs_within_the_optimizer_and_is_not_its_time(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    with probed(tmp_path):
        for inputs, targets in loader(8):

            def closure(inputs: Any = inputs, targets: Any = targets) -> Any:
                optimizer.zero_grad()
                loss = (model(inputs) - targets).square().mean()
                loss.backward()
                return loss

            optimizer.step(closure)
    steps = records(tmp_path, "step")
    assert len(steps) == 2
    assert kinds(steps[0]).startswith("obo")
    assert len(records(tmp_path, "get")) == 2


def test_an_evaluation_between_steps_is_no_wait_for_data(tmp_path: Path) -> None:
    loop = Loop()
    held_out = loader(20)
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.step(batch)
            if number == 2:
                with torch.no_grad():
                    for other in held_out:
                        loop.loss(other)
    steps = records(tmp_path, "step")
    assert [kinds(step) for step in steps] == ["bo", "bo", "bo", "ebo", "bo", "bo"]
    assert len(records(tmp_path, "get")) == 6
    evaluated = records(tmp_path, "fetch")
    assert len(evaluated) == 5
    start = steps[3][2] + steps[3][4][0][1]
    assert all(start <= fetch[3] <= start + steps[3][4][0][2] for fetch in evaluated)


def test_batches_without_any_optimizer_are_written_as_they_come(tmp_path: Path) -> None:
    with probed(tmp_path):
        for number, _ in enumerate(loader(280, batch_size=2)):
            if number == 130:
                assert len(records(tmp_path, "get")) == 128
    assert len(records(tmp_path, "get")) == 140
    assert records(tmp_path, "step") == []


def test_backward_passes_without_a_step_that_is_seen_are_another_engines(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path):
        for batch in loader(8):
            loop.loss(batch).backward()
    assert set(notes(tmp_path)) == {"engine"}


def test_batches_that_a_thread_fetches_are_waited_for_only_where_it_hands_them_over(tmp_path: Path) -> None:
    loop = Loop()
    handed: queue.Queue[Any] = queue.Queue(2)

    def fetch() -> None:
        for batch in loader(24):
            handed.put(batch)
        handed.put(None)

    with probed(tmp_path):
        thread = threading.Thread(target=fetch, name="ahead")
        thread.start()
        while (batch := handed.get()) is not None:
            loop.step(batch)
        thread.join()
    gets = [get[2] for get in records(tmp_path, "get")]
    others = [fetch[2] for fetch in records(tmp_path, "fetch")]
    assert sorted(gets + others) == list(range(6))
    assert len(gets) >= 5  # the first batch may be there before the queue is known to carry any
    assert len(records(tmp_path, "step")) == 6
    assert "ahead" in notes(tmp_path)["thread"]


def test_a_device_prefetcher_hands_over_what_its_thread_fetched(tmp_path: Path) -> None:
    from headrace import DevicePrefetcher

    with probed(tmp_path):
        Loop().train(DevicePrefetcher(loader(24), "cpu"))
    assert [get[1:3] for get in records(tmp_path, "get")] == [[0, index] for index in range(6)]
    assert records(tmp_path, "fetch") == []
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bo"] * 6


def test_batches_that_a_thread_fetches_in_a_way_unknown_are_nobodys_wait(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path):
        batches: list[Any] = []
        thread = threading.Thread(target=lambda: batches.extend(loader(12)))
        thread.start()
        thread.join()
        loop.train(batches)
    assert records(tmp_path, "get") == []
    assert len(records(tmp_path, "fetch")) == 3
    assert len(records(tmp_path, "step")) == 3


def test_training_in_a_thread_is_followed_there(tmp_path: Path) -> None:
    with probed(tmp_path):
        thread = threading.Thread(target=lambda: Loop().train(loader(24)))
        thread.start()
        thread.join()
    steps = records(tmp_path, "step")
    assert len(steps) >= 5
    assert len(records(tmp_path, "get")) >= 5
    assert [kinds(step) for step in steps[1:]] == ["bo"] * (len(steps) - 1)


def test_a_loader_that_a_dataset_reads_is_the_datasets_own(tmp_path: Path) -> None:
    class Outer(torch.utils.data.Dataset[float]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> float:
            return float(sum(len(inputs) for inputs, _ in loader(8)))

    with probed(tmp_path):
        for _ in DataLoader(Outer()):
            pass
    assert len(records(tmp_path, "get")) == 3
    assert len(records(tmp_path, "pass")) == 1


def test_a_measured_run_ends_after_warm_up_and_steps(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path, observe=False, steps=4) as probe:
        with pytest.raises(Finished) as ended:
            loop.train(loader(400))
        assert probe.ending == "steps"
        with pytest.raises(Finished):  # whoever catches it meets it again
            loop.train(loader(8))
    assert ended.value.code == 0
    assert len(records(tmp_path, "step")) == 3 + 4
    assert len(records(tmp_path, "get")) == 3 + 4  # it ends within the optimizer of the last
    assert [facts[2]["warmup_steps"] for facts in records(tmp_path, "facts") if "warmup_steps" in facts[2]] == [3]


def test_a_measured_run_with_two_optimizers_ends_after_both(tmp_path: Path) -> None:
    one, two = Loop(), Loop()

    def train() -> None:
        for batch in loader(400):
            one.step(batch)
            two.step(batch)

    with probed(tmp_path, observe=False, steps=2, warmup=1), pytest.raises(Finished):
        train()
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bobo"] * 3


def test_a_full_file_thins_steps_with_their_batches(tmp_path: Path) -> None:
    with probed(tmp_path, most_bytes=64_000) as probe:
        probe.training.may_rest = False
        Loop().train(loader(4 * 1000))
    numbers = [step[1] for step in records(tmp_path, "step")]
    assert 160 < len(numbers) < 500
    assert numbers[:20] == list(range(20))
    assert [get[2] for get in records(tmp_path, "get")] == numbers
    blocks = sorted({number // BLOCK for number in numbers})
    distances = [after - before for before, after in itertools.pairwise(blocks)]
    assert distances[0] == 1
    assert max(distances) > 1


@pytest.mark.parametrize("broken", ["enter", "ask", "got", "optimizer_ends", "_close", "begin_pass"])
def test_a_hook_that_fails_switches_itself_off_and_says_so(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()

    def fail(*_: Any) -> None:
        raise LookupError("broken")

    with probed(tmp_path) as probe:
        loop.train(loader(8))
        owner = probe.training.steps if broken in ("enter", "got", "optimizer_ends") else probe.training
        monkeypatch.setattr(owner, broken, fail)
        loop.train(loader(24))
    assert "LookupError: broken" in notes(tmp_path)["hook-off"]
    assert len(records(tmp_path, "note")) == 1


def test_detaching_puts_everything_back(tmp_path: Path) -> None:
    owners = [
        torch.utils.data.DataLoader,
        torch.utils.data.dataloader._BaseDataLoaderIter,
        torch.utils.data.dataloader._MultiProcessingDataLoaderIter,
        torch.utils.data._utils.pin_memory,
        torch.autograd,
        torch.distributed,
        torch.distributed.distributed_c10d,
        torch.amp.GradScaler,
        torch.cuda,
        torch.cuda.CUDAGraph,
        torch.nn.DataParallel,
        torch.Tensor,
        queue.Queue,
    ]
    optimizers = sys.modules["torch.optim.optimizer"]
    before = [dict(vars(owner)) for owner in owners]
    hooks = Counter(optimizers._global_optimizer_pre_hooks), Counter(optimizers._global_optimizer_post_hooks)
    with probed(tmp_path):
        assert vars(torch.utils.data.DataLoader)["__iter__"] is not before[0]["__iter__"]
    assert [dict(vars(owner)) for owner in owners] == before
    after = Counter(optimizers._global_optimizer_pre_hooks), Counter(optimizers._global_optimizer_post_hooks)
    assert after == hooks


def test_what_others_took_of_ours_is_inert_afterwards(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path):
        batches = iter(loader(8))
        backward = torch.autograd.backward
        next(batches)
    written = sorted((tmp_path / "evidence").iterdir())[0].read_bytes()
    backward(loop.loss(next(batches)))
    assert sorted((tmp_path / "evidence").iterdir())[0].read_bytes() == written


def test_a_pass_begun_before_the_probe_is_left_alone(tmp_path: Path) -> None:
    batches = iter(loader(12))
    with probed(tmp_path / "one"):
        Loop().step(next(batches))
        other = iter(loader(12))
        next(other)
    with probed(tmp_path / "two"):
        Loop().step(next(other))
    assert len(records(tmp_path / "one", "get")) == 1
    assert records(tmp_path / "two", "get") == []
    assert len(records(tmp_path / "two", "step")) == 1


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own, with this torch
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_torchdata_are_seen_like_torchs_own(tmp_path: Path, workers: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    with probed(tmp_path):
        Loop().train(loader(8))
        Loop().train(StatefulDataLoader(pairs(24), batch_size=4, num_workers=workers))
    assert [described[1] for described in records(tmp_path, "loader")] == [0, 1]
    gets = [get for get in records(tmp_path, "get") if get[1] == 1]
    assert [get[2] for get in gets] == list(range(6))
    assert all((get[5] is None) == (workers == 0) for get in gets)
    assert len(records(tmp_path, "step")) == 8


class Odd:
    """A batch that will not be looked into."""

    @property
    def nbytes(self) -> int:
        raise LookupError("none of your business")


class OddLoader(DataLoader[Any]):
    """Its iterator is none of torch's."""

    def _get_iterator(self) -> Any:
        return iter([Odd(), Odd()])


def _oddly_collated(_: Any) -> Odd:
    return Odd()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_odd_batches_and_loaders_break_nothing(tmp_path: Path) -> None:
    with probed(tmp_path):
        for _ in OddLoader(pairs(8)):
            pass
        for _ in DataLoader(pairs(8), batch_size=4, collate_fn=_oddly_collated):
            pass
        for _ in DataLoader([torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])], batch_size=None):  # type: ignore[arg-type]
            pass
        Loop().train(loader(8))
    assert "hook-off" not in notes(tmp_path)
    assert [get[9] for get in records(tmp_path, "fetch", "get")] == [None, None, None, 144, 144]


def test_asking_for_a_loaders_length_is_left_to_the_user(tmp_path: Path) -> None:
    class Short(Stream):
        def __len__(self) -> int:
            return 2

    with probed(tmp_path):
        assert len(list(DataLoader(Short(6)))) == 6  # torch would warn, had the length been asked for
