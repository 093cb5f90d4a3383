"""Table of the faults of data that the doctor knows: code, text, remedy, and the proof for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.doctor.explain.look import LeafPath, path_text
from headrace.doctor.session.after_run import DataFault

INTENDED = "unless intended"
"""Certainty of a fault that values prove, and that some scripts plant on purpose."""


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault. `evidence` is a template for `str.format`; `proof` is for the documentation."""

    code: str
    evidence: str
    mend: str
    proof: str

    def found(
        self,
        *leaves: LeafPath,
        certainty: str = "certain",
        files: Sequence[str] = (),
        place: str = "",
        **figures: Any,
    ) -> DataFault:
        """Return the fault with its figures. Leaves are named `{0}`, `{1}` in the template."""
        names = [path_text(path) for path in leaves]
        evidence = self.evidence.format(*names, place=place, **figures)
        return DataFault(self.code, certainty, evidence, names, [*files], place, self.mend)


KINDS = {
    kind.code: kind
    for kind in (
        FaultKind(
            "misaligned",
            "{0} and {1} of one sample differ in {how}, in {count} of {looked} samples that were compared with their "
            "files.",
            "Draw the window and the flip once per sample, and apply them to both.",
            "the windows and flips that explain an image and a mask, depth map or grey file of the same samples "
            "differ; if the image's colours are drawn, its brightness shows them",
        ),
        FaultKind(
            "invented-labels",
            "{0} holds {what}: labels were resized with a {how}.",
            "Resize labels with the nearest filter: InterpolationMode.NEAREST, cv2.INTER_NEAREST, Image.NEAREST.",
            "a smooth filter explains an integer leaf, which holds values that its label images do not, or not around "
            "the pixel. A leaf of bytes counts next to an image of its size, if its files hold regions of several "
            "classes; `unless intended` if these are not numbered 0, 1, 2, …",
        ),
        FaultKind(
            "channel-order",
            "{0} has its channels {order}, and is normalised by {name} means in the other order.",
            "Convert with cv2.cvtColor(image, cv2.COLOR_BGR2RGB) before the normalisation, or reverse the means.",
            "the channels of the file and the fitted means are in opposite orders",
        ),
        FaultKind(
            "normalized-twice",
            "{0} is {what}.",
            "Scale to fractions once, and normalise once; look for a second Normalize or ToTensor, also in collate_fn.",
            "the fitted scale and shift are those of two normalisations, of two divisions by 255, before or after a "
            "normalisation, or of one normalisation without the division",
        ),
        FaultKind(
            "clipped",
            "{0} {what}.",
            "Read the file's own type (cv2.IMREAD_UNCHANGED, numpy.asarray of Pillow's image), convert to float before "
            "any arithmetic, and divide all samples by the same number.",
            "the leaf is explained by the files' high bytes, by their values modulo 256 or up to 255, or by two scales "
            "255 times apart. `unless intended` if 16 bits are full, and at any other bound that no mask of valid "
            "pixels shares",
        ),
        FaultKind(
            "non-finite",
            "{0} holds NaN or infinite values in {count} of {looked} samples that were looked at: {some}.",
            "Leave such samples out, or mask the values before the loss.",
            "values that are not finite, unless a leaf of zeros and ones marks them as invalid",
        ),
        FaultKind(
            "ignored-orientation",
            "{0} ignores the EXIF orientation of {count} of {looked} files that were looked at: {some}.",
            "Open pictures with PIL.ImageOps.exif_transpose, or turn the files once.",
            "the stored pixels explain an image whose file has an EXIF orientation",
        ),
        FaultKind(
            "attended-padding",
            "{1} is one for all {length} tokens, although {0} {how} with padding ({pad_id}) in {count} of {looked} "
            "samples.",
            "Use the tokenizer's own attention mask, or ids != pad_id.",
            "a leaf next to padded token ids is one everywhere. Padding is what the tokenizer adds, or a number that "
            "only fills up shorter rows",
        ),
        FaultKind(
            "duplicate-files",
            "{count} samples of {looked} {what}: {some}.",
            "Remove the repeated rows or files, or use a sampler with weights if they should count more.",
            "rows of the dataset's columns are equal in all columns, the path among them; `unless intended`, as to "
            "show a class more often",
        ),
        FaultKind(
            "substituted-sample",
            "{count} samples of {looked} that were looked at are made from the file of another sample, since their own "
            "cannot be decoded or is missing: {some}.",
            "Remove such files from the list; let __getitem__ raise, or count what it replaces.",
            "the only decoded file of a sample is listed for another sample, while all other samples decode their own",
        ),
        FaultKind(
            "same-order",
            "{what}: epochs have the same order.",
            "Call loader.sampler.set_epoch(epoch) at the start of each epoch; seed generators once, before the first.",
            "passes of a DistributedSampler that shuffles, all by one epoch. `unless intended` for another sampler "
            "that draws, if the first two batches of two passes have the same keys in the same order",
        ),
        FaultKind(
            "same-draws",
            "{who} drew the same numbers from {generator}: its states before and after their first batches are equal, "
            "and samples differ when they are made again.",
            "Seed it in worker_init_fn by torch.utils.data.get_worker_info().seed, which differs by worker and epoch; "
            "DataLoader itself seeds the global generators of torch, Python, and numpy (since torch 1.9) so.",
            "equal states of a random generator before and after the first batch of two workers, or of one worker in "
            "two passes; each batch moves it, and samples differ when they are made again",
        ),
        FaultKind(
            "worker-duplicates",
            "Workers {who} of pass {number} made the same samples of an iterable dataset: all values in the first rows "
            "of their first two batches are equal.",
            "Split the samples in __iter__: islice(samples, info.id, None, info.num_workers), with "
            "info = torch.utils.data.get_worker_info().",
            "all values in the first rows of two batches of an iterable dataset are equal in two workers, and rows "
            "differ from each other",
        ),
        FaultKind(
            "shared-samples",
            "Ranks {who} train on the same samples: all values in the first rows of the first two inputs of their "
            "DistributedDataParallel models are equal.",
            "Pass sampler=DistributedSampler(dataset) to the DataLoader, and call set_epoch; split an iterable dataset "
            "by rank and worker.",
            "two inputs of DistributedDataParallel over all ranks are equal in two ranks, and rows differ from each "
            "other",
        ),
        FaultKind(
            "leaked-split",
            "{who} {what}: {some}.",
            "Split the list of files once, before copies are added, and give each dataset its own part.",
            "files opened for first batches of an evaluation are listed for samples of the training loader, "
            "or are their copies. `unless intended` if it reads nothing else; none then if another evaluation does",
        ),
        FaultKind(
            "augmented-evaluation",
            "The evaluation at {place} makes the same samples differently in its passes {passes}, by random draws: "
            "{leaves}.",
            "Give the evaluation's dataset transforms that draw nothing, or seed their generators before each pass.",
            "batches of the same keys differ between two evaluations, and random generators move in both. "
            "Always `unless intended`, as for test-time augmentation",
        ),
        FaultKind(
            "class-order",
            "The training loader takes samples in their stored order, and {0} comes in {runs} runs of equal values for "
            "{classes} classes; a random order of {looked} samples has about {expected:.0f}.",
            "Pass shuffle=True to the training DataLoader, or a sampler that shuffles.",
            "a sequential sampler, and fewer runs of equal labels than a quarter of what chance gives",
        ),
        FaultKind(
            "repeated-after-resume",
            "The first run had trained {trained:,} batches of a pass when it wrote its checkpoint. The second run does "
            "not go on after them: {what}.",
            "Save the sampler's position with the model, as torchdata's StatefulDataLoader, Accelerate's "
            "skip_first_batches or headrace.ResumableBatchSampler do.",
            "with `--check resume`: the keys of the first batch that the second run trains on, in the order of the "
            "first run",
        ),
        FaultKind(
            "never-visited",
            "drop_last leaves the last {count} of {looked} samples out of every epoch, since they are taken in their "
            "stored order.",
            "Pass shuffle=True, or leave out drop_last.",
            "a sequential sampler with drop_last, and a length that the batch size does not divide",
        ),
    )
}
