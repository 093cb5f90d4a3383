"""The double finds what it is there for: each line that orders work is taken out in turn, and reported by its code."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import stream_scenarios as scenarios
import torch
from loader_data import write_folder
from stream_double import (
    HOST_READ_UNSYNCHRONISED,
    MISSING_WAIT,
    NEEDLESS_SYNC,
    READ_BEFORE_COPY,
    REFILL_UNDER_COPY,
    REUSE_ACROSS_STREAMS,
    WRITE_UNDER_USE,
    simulated_device,
)

import headrace as hr
from headrace.device import batch_stages, colour_operations, h2d_copy, image_conversion
from headrace.device.feed import DeviceFeed
from headrace.device.h2d_copy import AcceleratorLane as Lane
from headrace.device.memory import CudaMemory
from headrace.loader.batch_memory import PinnedMemory

SEEDS = (0, 1)
CUDA = torch.device("cuda", 0)


@dataclass(frozen=True)
class Mutation:
    """Change to a function, and the code under which it has to be reported in a scenario."""

    function: Callable[..., Any]
    old: str
    new: str
    code: str
    scenario: Callable[..., None] | str


RECEIVE, SEND, STAGE, MOVE = (
    Lane.receive,
    Lane.send,
    Lane._stage,
    Lane._move,
)
RESOLVE, EVENT, COMPLETE = Lane._resolve, Lane._event, h2d_copy._Ticket.complete
ACQUIRE, TAKE, FEED = PinnedMemory.acquire, DeviceFeed.take, DeviceFeed._feed

MUTATIONS = {
    # --- the consumer's side ---
    "no wait for a batch": Mutation(
        RECEIVE, "stream.wait_event(sent.ticket.ready)", "pass", MISSING_WAIT, scenarios.plain
    ),
    "wait for the copy, not the conversion": Mutation(
        RECEIVE, "sent.ticket.ready", "sent.ticket.copied", MISSING_WAIT, scenarios.converted
    ),
    "the default stream waits, whichever is current": Mutation(
        RECEIVE, "self._torch.current_stream", "torch.cuda.default_stream", MISSING_WAIT, scenarios.on_own_stream
    ),
    "no record_stream for the consumer": Mutation(
        RECEIVE, "record_stream(tensor, stream)", "pass", REUSE_ACROSS_STREAMS, scenarios.plain
    ),
    "record_stream of the outer tensors alone": Mutation(
        RECEIVE, "if tensor.device", "if len(path) < 2 and tensor.device", REUSE_ACROSS_STREAMS, scenarios.nested
    ),
    "record_stream of all parts but the first": Mutation(
        h2d_copy.record_stream, "dense_parts(tensor)", "dense_parts(tensor)[1:]", REUSE_ACROSS_STREAMS, scenarios.plain
    ),
    "no time of the wait": Mutation(
        RECEIVE, "reached.record(stream)", "pass", HOST_READ_UNSYNCHRONISED, scenarios.with_statistics
    ),
    "no hand-over": Mutation(
        TAKE, "self._lane.receive(sent)", "sent.batch", MISSING_WAIT, scenarios.plain
    ),
    # --- the feeding thread's side ---
    "copies on the default stream": Mutation(
        SEND, "self._torch.stream(self._stream)", "self._torch.stream(None)", MISSING_WAIT, scenarios.on_own_stream
    ),
    "conversion on the default stream": Mutation(
        SEND, "converted = finish_batch(moved, self._images)",
        "with torch.cuda.stream(torch.cuda.default_stream()): converted = finish_batch(moved, self._images)",
        READ_BEFORE_COPY, scenarios.converted,
    ),
    "kernel on the default stream": Mutation(
        image_conversion.launch_kernel, "torch.cuda.device_of(image)",
        "torch.cuda.stream(torch.cuda.default_stream())", READ_BEFORE_COPY, scenarios.converted_by_a_kernel,
    ),
    "ready before the conversion": Mutation(
        SEND, "_Ticket(started, copied, self._event())", "_Ticket(started, copied, copied)", MISSING_WAIT,
        scenarios.converted,
    ),
    "events that are not recorded": Mutation(
        EVENT, "event.record(self._stream)", "pass", MISSING_WAIT, scenarios.plain
    ),
    "no wait for the source's stream": Mutation(
        MOVE, "self._stream.wait_stream(made_on)", "pass", READ_BEFORE_COPY,
        scenarios.on_the_device_already,
    ),
    "wait for the default stream, whichever is the source's": Mutation(
        SEND, "made_on = self._torch.current_stream(", "made_on = torch.cuda.default_stream(", READ_BEFORE_COPY,
        scenarios.made_on_a_stream_of_the_source,
    ),
    "no record_stream of the source's tensors": Mutation(
        MOVE, "record_stream(tensor, self._stream)", "pass", REUSE_ACROSS_STREAMS, scenarios.on_the_device_already
    ),
    # --- pinned memory ---
    "no staging": Mutation(
        SEND, "map_tensors(batch, self._stage)", "batch", NEEDLESS_SYNC, scenarios.plain
    ),
    "staging in ordinary memory": Mutation(
        STAGE, "pin_memory=True", "pin_memory=False", NEEDLESS_SYNC, scenarios.plain
    ),
    "one staging buffer for all batches": Mutation(
        STAGE, "torch.empty_like(tensor, pin_memory=True)",
        "self.__dict__.setdefault(tensor.ndim, torch.empty_like(tensor, pin_memory=True))", REFILL_UNDER_COPY,
        scenarios.plain,
    ),
    "copies that block": Mutation(
        MOVE, "non_blocking=True", "non_blocking=False", NEEDLESS_SYNC, scenarios.pinned_by_the_source
    ),
    "one block for all batches of a Loader": Mutation(
        ACQUIRE, "torch.empty(bytes, dtype=torch.uint8, pin_memory=True)",
        "self.__dict__.setdefault('block', torch.empty(bytes, dtype=torch.uint8, pin_memory=True))",
        REFILL_UNDER_COPY, "broken off",
    ),
    "a Loader's memory that torch's allocator does not find": Mutation(
        ACQUIRE, "torch.empty(bytes, dtype=torch.uint8, pin_memory=True).numpy()",
        "torch.empty(bytes + 64, dtype=torch.uint8, pin_memory=True).numpy()[64:]", REFILL_UNDER_COPY, "uint8",
    ),
    # --- clocks, and waits of the host ---
    "clocks of any batch": Mutation(
        RESOLVE, "and self._unresolved[0].complete()", "and self._unresolved[0].reached", HOST_READ_UNSYNCHRONISED,
        scenarios.with_statistics,
    ),
    "clocks of batches that are not ready": Mutation(
        COMPLETE, "self.ready.query() and ", "", HOST_READ_UNSYNCHRONISED, scenarios.with_statistics
    ),
    "no time of the copy's start": Mutation(
        SEND, "started = self._event()", "started = torch.cuda.Event(enable_timing=True)", HOST_READ_UNSYNCHRONISED,
        scenarios.with_statistics,
    ),
    "events without clocks": Mutation(
        EVENT, "enable_timing=True", "enable_timing=False", HOST_READ_UNSYNCHRONISED, scenarios.with_statistics
    ),
    "a step's memory before the step": Mutation(
        CudaMemory.peak_bytes, "torch.cuda.synchronize(self._device)", "pass", HOST_READ_UNSYNCHRONISED,
        scenarios.measured_step,
    ),
    "the consumer waits for its batch": Mutation(
        RECEIVE, "stream.wait_event(sent.ticket.ready)", "sent.ticket.ready.synchronize()", NEEDLESS_SYNC,
        scenarios.plain,
    ),
    "the feeding thread waits for its copy": Mutation(
        SEND, "with self._lock:", "self._stream.synchronize()\n    with self._lock:", NEEDLESS_SYNC, scenarios.plain
    ),
    "statistics wait": Mutation(
        RESOLVE, "ticket = self._unresolved.popleft()",
        "ticket = self._unresolved.popleft(); torch.cuda.synchronize()", NEEDLESS_SYNC, scenarios.with_statistics,
    ),
    "numbers of channels are copied": Mutation(
        image_conversion._convert_with_torch, "_filled(subtract, image.device)",
        "torch.tensor(subtract, device=image.device).view(1, -1, 1, 1)", NEEDLESS_SYNC, scenarios.converted,
    ),
    "boxes are read": Mutation(
        batch_stages.mix_pairs, "for k in range(5))", "for k in range(5)); weight.tolist()", NEEDLESS_SYNC, "mixup"
    ),
    "rows of an erasure are read": Mutation(
        colour_operations._with_boxes, "erasures[:, 0].long()", "erasures[:, 0].long().cpu()", NEEDLESS_SYNC, "colours"
    ),
    "a mask of images": Mutation(
        colour_operations.run_chains, "done[rows] = operation(done[rows], numbers, taps)",
        "mask = torch.zeros(len(done), device=done.device).bool(); mask[rows] = True; "
        "done[rows] = operation(done[rows], numbers, taps); done[mask]",
        NEEDLESS_SYNC, "colours",
    ),
}  # fmt: skip


def mutate(patch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    """Change a text that the function has once, for all who call the function."""
    function = mutation.function
    lines, first = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    assert source.count(mutation.old) == 1, f"{function.__qualname__}: {mutation.old!r}"
    text = "\n" * (first - 1) + source.replace(mutation.old, mutation.new)
    flags = __future__.annotations.compiler_flag
    made: dict[str, Any] = {}
    exec(compile(text, inspect.getfile(function), "exec", flags, dont_inherit=True), function.__globals__, made)
    patch.setattr(function, "__code__", made[function.__name__].__code__)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("streams") / "photos", 20))


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.one_in(24)
def test_a_mutation_is_reported(name, folder, monkeypatch):
    mutation = MUTATIONS[name]
    mutate(monkeypatch, mutation)
    for seed in SEEDS:
        with simulated_device(seed) as device, suppress(AssertionError):  # of wrong values
            if isinstance(mutation.scenario, str):
                scenarios.WITH_IMAGES[mutation.scenario](device, folder)
            else:
                mutation.scenario(device)
        assert mutation.code in device.checker.codes, [str(finding) for finding in device.checker.findings]


# --- faults of a consumer, and what is none ---


def overwrite_across_streams() -> None:
    data = torch.zeros(8, device=CUDA)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        data.sum()
        data.record_stream(torch.cuda.current_stream())
    data.add_(1)


def read_before_arrival() -> None:
    torch.ones(8, device=CUDA).to("cpu", non_blocking=True).tolist()


def refill_in_flight() -> None:
    buffer = torch.zeros(8).pin_memory()
    kept = buffer.to(CUDA, non_blocking=True)
    buffer.fill_(1)
    kept.sum()


def drop_in_use() -> None:
    data = torch.zeros(8, device=CUDA)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        data.sum()
    del data


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (overwrite_across_streams, WRITE_UNDER_USE),
        (read_before_arrival, HOST_READ_UNSYNCHRONISED),
        (refill_in_flight, REFILL_UNDER_COPY),
        (drop_in_use, REUSE_ACROSS_STREAMS),
    ],
)
def test_a_faulty_program_is_reported(program, code):
    with simulated_device() as device:
        program()
    assert device.checker.codes == {code}


def test_a_program_that_waits_is_in_order():
    """By an event of the host, by one of a stream, by a stream, and by a read that blocks."""
    with simulated_device() as device:
        side, buffer = torch.cuda.Stream(), torch.zeros(8).pin_memory()
        with torch.cuda.stream(side):
            sent = buffer.to(CUDA, non_blocking=True)
            copied, done = side.record_event(), torch.cuda.Event()
        copied.synchronize()
        buffer.fill_(1)
        copied.wait()
        sent.add_(2)
        done.record()
        side.wait_event(done)
        with torch.cuda.stream(side):
            back = sent.to("cpu", non_blocking=True)
        side.synchronize()
        assert back.tolist() == [2] * 8
        assert sent.cpu().sum() == 16
        del sent
    assert not device.checker.findings
