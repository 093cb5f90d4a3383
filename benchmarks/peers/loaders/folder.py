"""A folder of class folders, for the loaders that leave listing it to their users."""

import os
import tarfile


def samples(photos):
    """List (path, label) by the names of classes and files; a label is its class's place among the sorted names."""
    classes = sorted(entry.name for entry in os.scandir(photos) if entry.is_dir())
    return [
        (os.path.join(photos, name, file), label)
        for label, name in enumerate(classes)
        for file in sorted(os.listdir(os.path.join(photos, name)))
    ]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def mask_of(path):
    """The mask beside a photograph: masks/NAME.png of a folder of pairs (../../dataset.py)."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.dirname(folder), "..", "masks", os.path.basename(folder), name[:-4] + ".png")


def write_tar(photos, path):
    """Write one tar of class/file members, in the order of samples(); a hard link becomes a file of its own."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT, dereference=True) as tar:
        for file, _ in samples(photos):
            tar.add(file, arcname=os.path.relpath(file, photos))
            tar.members.clear()  # or it keeps a million of them
