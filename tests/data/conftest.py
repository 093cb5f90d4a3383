"""Makes tars with the standard library's tarfile, which shares no code with the core."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

MakeTar = Callable[..., Path]


@pytest.fixture(autouse=True)
def spare_the_users_cache(own_cache: Path) -> None:
    """No test writes into the user's cache folder."""


@pytest.fixture
def make_tar(tmp_path: Path) -> MakeTar:
    """`make_tar("a.tar", {name: content})`, or a list of (name or TarInfo, content) where names repeat."""

    def make(
        name: str,
        members: dict[str, bytes] | Iterable[tuple[str | tarfile.TarInfo, bytes]],
        format: int = tarfile.PAX_FORMAT,
    ) -> Path:
        path = tmp_path / name
        with tarfile.open(path, "w", format=format, errors="surrogateescape") as tar:
            for member, content in members.items() if isinstance(members, dict) else members:
                info = tarfile.TarInfo(member) if isinstance(member, str) else member
                if info.isreg():
                    info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return path

    return make


@pytest.fixture
def as_nobody() -> Callable[[], AbstractContextManager[None]]:
    """`with as_nobody():` file permissions hold even for tests run by root, whose effective user it changes."""

    @contextmanager
    def user() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return user
