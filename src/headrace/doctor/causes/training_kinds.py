"""Table of findings on a training run's lost time, other than the stages and parts of its wait."""

from __future__ import annotations

from headrace.doctor.causes.finding_kinds import FindingKind, chapter

TRAINING = chapter(
    FindingKind(
        "cores",
        "{demand}: more workers {helps}.",
        "{workers:count worker} used {used:.1f} cores, each busy {busy:percent} of the time",
        "Look at the stages that use most CPU: only less work a sample, or more cores, makes it faster.",
        when="Making batches as fast as the trainer takes them needs more cores than there are.",
    ),
    FindingKind(
        "few-workers",
        "The loader's {workers:count worker} {rest} {used:.1f} of {cores:g} cores.",
        "busy {busy:percent} of the time, {batch:duration} a batch",
        "Look at num_workers: there are cores left for more.",
        when="Workers never rest, and 30 % of the cores or more are free.",
    ),
    FindingKind(
        "respawn",
        "Each of {passes:count pass} started {workers:count worker} anew.",
        "iter() took {start:duration}, its first batch {first:duration}",
        "Look at persistent_workers=True, on a DataLoader that is made once: workers, and what they have opened, "
        "persist between epochs.",
        when="Each pass over the data started its workers anew.",
    ),
    FindingKind(
        "loader-keeps-up",
        "{name} keeps up: its {work}.",
        "{took}",
        "Leave it as it is.",
        when="A loader of Headrace's own keeps up.",
    ),
    FindingKind(
        "loader-limit",
        "{said}. {change}",
        "{took}",
        "{change}",
        when="A loader of Headrace's own does not keep up; what limits it is named.",
    ),
    FindingKind(
        "pin-memory",
        "Batches are copied to the GPU from memory that is not pinned, which takes {copy:percent} of each step.",
        "pin_memory=False in the loader of {place}",
        "Look at pin_memory=True with .to(device, non_blocking=True): the copy runs alongside the computation.",
        when="Copies to the GPU from memory that is not pinned take 2 % of a step or more.",
    ),
    FindingKind(
        "out-of-order",
        "{share:percent} of the wait passes while a later batch is ready and the next in order is not.",
        "{us:duration} {each}",
        "Look at the slow samples: one slow batch holds up those made after it. Where order does not matter, "
        "in_order=False (torch 2.6 on) hands out what is ready; a longer prefetch queue evens out rare slow batches.",
        when="A later batch is ready while the next in order is not.",
    ),
    FindingKind(
        "no-workers",
        "Batches are made in the training thread (num_workers=0), so nothing is trained meanwhile.",
        "{us:duration} {each}",
        "Look at num_workers: with workers, batches are made while the device computes.",
        when="Batches are made in the training thread (num_workers=0).",
    ),
    FindingKind(
        "remote-latency",
        "{limit} remote reads: {latency:percent} of the {us:duration} that a sample waits for them passes before an "
        "answer begins.",
        "{words}",
        "{ahead}. More workers have more requests under way, and each needs no core. {cached}.",
        when="Half or more of a remote read passes before the answer begins, or answers are so small (14.6 kB, RFC "
        "6928) that they come with their beginning: then the rest is the client's own work.",
    ),
    FindingKind(
        "remote-bandwidth",
        "Bandwidth limits remote reads: {rate:size} a second{bound}.",
        "{words}; {reading:percent} of the time something is read, and {moved:percent} of a read passes after its "
        "answer began",
        "Look at what the link and the store give more connections at once, and at fewer bytes: smaller or better "
        "compressed images, no column that is not used. {cached}.",
        when="Less than half of it does, and answers are larger.",
    ),
    FindingKind(
        "padding",
        "{text}",
        "{evidence}",
        "{advice}",
        when="Padding to the longest of a batch would leave out 10 % of the tokens, or 30 % are padding all the same.",
    ),
    FindingKind(
        "data-work",
        "{share:percent} of each {unit} is data work in the training loop itself, before the model is called{line}.",
        "{evidence}",
        "Do it in the dataset, in collate_fn or in the loader: workers then do it while the model trains. What a GPU "
        "does faster, such as a cast or a normalisation, belongs after the copy to it.",
        when="The training loop itself works on batches for 2 % of a step or more.",
    ),
    FindingKind(
        "before-model",
        "{share:percent} of each {unit} passes before the model is called{line}.",
        "{evidence}",
        "If that line makes batches: a DataLoader with workers makes them while the model trains.",
        when="2 % of a step or more passes before the model is called, where no source of batches was seen.",
    ),
    FindingKind(
        "loop-reads",
        "Reading tensors in the training loop{bound}, {most}.",
        "{evidence}",
        "Look at how often it reads: {hint}.",
        when="The training loop reads tensors, and so waits for the device, for 2 % of a step or more.",
    ),
    FindingKind(
        "loop-prints",
        "Printing{bound}, {most}.",
        "{evidence}",
        "Look at how often it writes: {hint}.",
        when="The training loop prints for 2 % of a step or more.",
    ),
    FindingKind(
        "full-gc",
        "Full garbage collections take {where}: Python goes through all its objects each time.",
        "{many:count collection}, {each:duration} each, the longest {longest:duration}",
        "Keep what describes the samples in numpy or Arrow arrays in place of Python objects.",
        when="Full garbage collections take 2 % of batch production or of the steps.",
    ),
    FindingKind(
        "first-steps",
        "The first {first} take {times:times} as long as the rest: in the steady state a {unit} takes "
        "{steady:duration}, and waits {waits:percent} of it for data.",
        "{before:duration} a {unit} at first, {waited:percent} of it data wait; {steady:duration} after that, "
        "{waits:percent}",
        "A long run is faster than its first steps: measure more of it with --steps. At first the page cache is "
        "cold, caches fill, and torch.compile and cuDNN choose their kernels.",
        when="The first steps take 1.3 times as long as the steady state, or longer.",
    ),
    FindingKind(
        "slower-loader",
        "Of {loaders:number} loaders that steps take batches of, {slowest} is waited for: {share:percent} of the wait "
        "for data.",
        "{us:duration} of each {unit}; {rest}",
        "Remedies below are for this loader. Divide the workers among the loaders by the cost of their batches; one "
        "slow loader holds up the others' batches, however many are ready.",
        when="Steps take batches of several loaders, and wait mostly for one.",
    ),
    FindingKind(
        "evaluation",
        "Evaluation takes {share:percent} of the time, {waits:percent} of which it waits for data.",
        "{spans:count evaluation}, {each:duration} each, no part of a {unit}; batches{its}",
        "Look at the loader that evaluates: its workers, and whether they persist between evaluations.",
        when="Evaluations take 1 % of the time or more.",
    ),
    FindingKind(
        "ranks-apart",
        "Ranks share no gradients in {apart:percent} of the steps: each trains a model of its own.",
        "a rank ends its step before another has its gradients",
        "Wrap the model in DistributedDataParallel wherever there is more than one rank, also on the CPU.",
        when="Ranks share no gradients in most of the steps: each trains a model of its own.",
    ),
    FindingKind(
        "late-rank",
        "Rank {rank} is the last in {late:percent} of the steps, {lateness:duration} after the others; {why}.",
        "it waits {own:duration} of each step for data, the others {others:duration}{waiting}",
        "Look at what differs for this rank: its shard, its disk, its cores, what else runs alongside it.",
        when="All other ranks wait for one.",
    ),
    FindingKind(
        "shapes-differ",
        "Shapes of batches differ across ranks in {share:percent} of the steps{waiting}.",
        "step {step}: {shapes}",
        "Draw sizes by step from a seed that all ranks share: all ranks then have the same.",
        when="Batches have other shapes across ranks in 2 % of the steps or more.",
    ),
    FindingKind(
        "device-parts",
        "{said}, and a step waits for the device that has it.",
        "seen in {batches:count batch}, by the elements of their tensors; the most uneven has {shown}",
        "Put samples of about one size into one step, and cut its parts from one bucket of sizes: "
        "headrace.BucketBatchSampler, or hr.Buckets in a Loader.",
        when="A batch is a list of a part for each device, and the largest is 1.05 times the mean or more.",
    ),
    FindingKind(
        "hung",
        "{who} hangs: it has spent far longer on one batch than on any before.",
        "{stack}",
        "Look at its stack: a lock held across a fork, a connection without a timeout, a library's threads after a "
        "fork.",
        weight=1.0,
        when="A process has spent far longer on one batch than on any before.",
    ),
    FindingKind(
        "killed",
        "{who} died: something killed it, or it crashed in native code.",
        "{error}",
        "Look at memory and /dev/shm: the system kills what takes too much.",
        weight=1.0,
        when="Something killed a worker, or it crashed in native code.",
    ),
    FindingKind(
        "unreached",
        "Process {pid} could not be observed: {why}",
        "{command}",
        "Start it in a way that keeps PYTHONPATH and HEADRACE_DOCTOR, without -I and -E.",
        when="A process could not be observed.",
    ),
    FindingKind(
        "cut",
        "The evidence of {cut:count process} is a sample, or ends in the middle.",
        "{pids}",
        "Shares are those of the steps and batches that were written.",
        when="The evidence of a process is a sample, or ends in the middle.",
    ),
)
