"""Table of all remedies. A new remedy is one row, plus a function if its gain is computed."""

from __future__ import annotations

from headrace.doctor.causes import (
    cores,
    decoding,
    loader,
    loop_work,
    remote_reads,
    storage,
    transfers,
    uneven_ranks,
    workers,
)
from headrace.doctor.causes.case import Case
from headrace.doctor.causes.proposals import (
    ANOTHER_LOADER,
    CACHED_COPY,
    EFFORTS,
    FEW_LINES,
    ONE_LINE,
    SETTING,
    Proposal,
    RemedyKind,
)
from headrace.doctor.causes.remedy import Remedy

REMEDIES: list[RemedyKind] = [
    RemedyKind(
        "loader",
        "Headrace's Loader in place of the DataLoader",
        "Use Headrace's [Loader](../loader.md) in place of the script's Dataset and DataLoader",
        ANOTHER_LOADER,
        loader.loader,
        key="loader",
        value='`{"module": "…", "loaders": [0]}`: the text of the module, and the loaders that it replaces; of degree '
        "`exact` only",
        does_all=True,
    ),
    RemedyKind(
        "workers",
        "another number of workers",
        "Start more worker processes, or fewer",
        SETTING,
        workers.workers,
        key="loaders",
        value='`{"0": {"num_workers": 4}}`, by the loader\'s number in the evidence; other arguments of the same '
        "loader beside it",
        adds_hands=True,
    ),
    RemedyKind(
        "prefetch",
        "a longer queue",
        "Let each worker make more batches ahead",
        SETTING,
        workers.prefetch,
        key="loaders",
        value='`{"0": {"prefetch_factor": 8}}`',
        adds_hands=True,
    ),
    RemedyKind(
        "persistent-workers",
        "workers that persist between epochs",
        "Start workers once, and not in each epoch",
        SETTING,
        workers.persistent_workers,
        hint="DataLoader(…, persistent_workers=True), made once and not in each epoch",
        key="loaders",
        value='`{"0": {"persistent_workers": true}}`',
    ),
    RemedyKind(
        "pin-memory",
        "batches pinned by a thread",
        "Pin batches in a thread of the training process",
        SETTING,
        transfers.pin_memory,
        hint="DataLoader(…, pin_memory=True), and batch.to(device, non_blocking=True)",
        key="loaders",
        value='`{"0": {"pin_memory": true}}`',
    ),
    RemedyKind(
        "threads",
        "one thread in each worker",
        "Limit the threads of libraries in each process",
        SETTING,
        cores.threads,
        hint="in the loader's worker_init_fn: torch.set_num_threads(1), cv2.setNumThreads(0); before the start: "
        "OMP_NUM_THREADS=1",
    ),
    RemedyKind(
        "indexed-tar",
        "an index of the tar in place of tarfile's search",
        "Find members of an archive by an index, in place of `tarfile`'s search",
        ONE_LINE,
        storage.indexed_tar,
        hint="headrace.IndexedTar(path) in place of tarfile.open(path)",
        costs=("an index alongside the archive, made once by one pass over its headers",),
        key="indexed_tar",
        value="`true`",
    ),
    RemedyKind(
        "image-reader",
        "ImageReader in place of decoding and what follows it",
        "Use `ImageReader` or `decode_image` with the script's own view, in place of Pillow's or OpenCV's decoding and "
        "what follows it",
        FEW_LINES,
        decoding.image_reader,
    ),
    RemedyKind(
        "smaller-samples",
        "smaller batches between the processes",
        "Send less between processes: smaller dtypes, no unused keys",
        FEW_LINES,
        transfers.smaller_samples,
        costs=("a cast on the device, or in the training thread",),
    ),
    RemedyKind(
        "batch-tokeniser",
        "texts tokenised by the batch",
        "Tokenise a batch of texts in one call",
        FEW_LINES,
        transfers.batch_tokeniser,
        hint='in collate_fn: tokenizer(texts, padding="longest", truncation=True, return_tensors="pt"), with '
        "TOKENIZERS_PARALLELISM=false in workers",
        costs=("a collate function that takes texts",),
    ),
    RemedyKind(
        "pad-to-batch",
        "sequences padded to the longest of their batch",
        "Pad sequences to the longest of their batch",
        FEW_LINES,
        transfers.pad_to_batch,
        hint='in collate_fn: tokenizer.pad(samples, padding="longest"), transformers.DataCollatorWithPadding or '
        'torch.nn.utils.rnn.pad_sequence, in place of padding="max_length" for each sample',
        costs=("batches of unequal lengths: torch.compile may compile anew for each",),
    ),
    RemedyKind(
        "cache",
        "decoded images cached",
        "Cache decoded images",
        CACHED_COPY,
        decoding.cache,
    ),
    RemedyKind(
        "staging",
        "the files in /dev/shm, or on a local disk",
        "Copy the files into memory, or onto a local disk",
        ONE_LINE,
        storage.staging,
    ),
    RemedyKind(
        "remote-ahead",
        "reads of the store asked for ahead",
        'Request reads of a store ahead: Headrace\'s Loader over `hr.open("s3://…")`, or more workers',
        FEW_LINES,
        remote_reads.remote_ahead,
        hint='headrace.Loader(headrace.open("s3://…"), order="windowed", …), or more workers',
        costs=("memory for the bytes on their way: 1 GB at most",),
    ),
    RemedyKind(
        "remote-cache",
        "the store's samples cached on a local disk",
        "Cache a store's samples on a local disk",
        FEW_LINES,
        remote_reads.remote_cache,
        hint='headrace.Loader(…, cache="disk:/PATH:SIZE"), or a copy of the files on a local disk',
    ),
    RemedyKind(
        "device-prefetch",
        "the next batch copied to the device on a side stream",
        "Copy, cast and normalise the next batch on a side stream",
        ONE_LINE,
        transfers.device_prefetch,
        hint='for batch in headrace.DevicePrefetcher(loader, "cuda"): …; with normalize=headrace.IMAGENET images '
        "travel as bytes and become floats on the device",
        key="device_prefetch",
        value="`true`",
    ),
    RemedyKind(
        "same-shape",
        "one shape on every rank at each step",
        "Use one shape on every rank; parts of one size where a batch is a list of a dict for each device",
        FEW_LINES,
        uneven_ranks.same_shape,
        hint="headrace.BucketBatchSampler, or one random size a step, drawn from the step's number on every rank",
        costs=("samples of a batch are drawn from one bucket of sizes",),
    ),
    RemedyKind(
        "ddp",
        "DistributedDataParallel in place of DataParallel",
        "Use DistributedDataParallel in place of DataParallel",
        FEW_LINES,
        finding="data-parallel",
        why="DataParallel copies the model to each device in every step, and one Python thread a device shares the "
        "GIL: forward is {share} of a step.",
        hint="torchrun --nproc-per-node DEVICES train.py, and DistributedDataParallel(model, device_ids=[local_rank])",
        costs=("a process a device (torchrun), each with workers of its own",),
    ),
    RemedyKind(
        "data-work",
        "Data work of the training loop done by the workers",
        "Let workers do what the training loop itself does with batches, where that takes 2 % of a step",
        FEW_LINES,
        loop_work.data_work,
        hint="do it in __getitem__, in collate_fn, or before the loader in a pipeline",
        costs=("the same work for each worker's batches",),
    ),
    RemedyKind(
        "loop-reads",
        "Tensors read in one step of many, or all at once",
        "Read tensors (`.item()`) in one step of many, where reading takes 2 % of a step",
        FEW_LINES,
        loop_work.fewer,
        hint=loop_work.HINT[loop_work.READS],
        costs=("figures come later",),
    ),
]
"""Rows in the order of docs/doctor/remedies.md, which `scripts/doctor_pages.py` generates from this table."""


def proposals_of(case: Case) -> list[Proposal]:
    """Return the proposals of all kinds of remedy that apply to the case."""
    return [one for kind in REMEDIES if (one := kind.proposal(case)) is not None]


def kind_of(remedy: Remedy) -> RemedyKind:
    """Return the kind of a remedy. For a code from another version of the doctor, assume a few lines of effort."""
    other = RemedyKind(remedy.code, remedy.title, "", FEW_LINES)
    return next((one for one in REMEDIES if one.code == remedy.code), other)


def effort(remedy: Remedy) -> int:
    """Return the remedy's effort as an index into `EFFORTS`."""
    return EFFORTS.index(kind_of(remedy).effort)
