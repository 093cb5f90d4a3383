"""Who may read what moto's server has: keys, profiles, roles that expire, anonymous requests, the command's options."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto_store import REGION, MotoStore, checked_permissions
from processes import eventually, in_fork
from remote_runs import CONTENT, assert_same, loader, open_here
from typer.testing import CliRunner, Result

import headrace as hr
from headrace.data.remote.listing import Stores
from headrace.errors import HeadraceError, ReadError, UsageError
from headrace.tools.command_line import app

DATA = b"0123456789"
PROFILES = """
[profile team]
region = {region}
aws_access_key_id = {access_key_id}
aws_secret_access_key = {secret_access_key}
[profile role]
region = {region}
role_arn = {role}
source_profile = team
[profile there]
region = {region}
endpoint_url = {endpoint}
aws_access_key_id = {access_key_id}
aws_secret_access_key = {secret_access_key}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Path:
    """Return a home without credentials, in an environment that has none."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


@pytest.fixture
def strict(moto: MotoStore) -> Iterator[MotoStore]:
    """The server with tars that boto3 uploaded, which checks who asks, and for what."""
    moto.put_all({**CONTENT, "a b.bin": DATA})
    with checked_permissions():
        yield moto


@pytest.fixture
def user(moto: MotoStore) -> dict[str, str]:
    """Key pair of a user who may do everything with S3 and assume roles."""
    return moto.user({"Effect": "Allow", "Action": ["s3:*", "sts:AssumeRole"], "Resource": "*"})


@pytest.fixture
def role(moto: MotoStore) -> str:
    """A role that may do everything with S3."""
    return moto.role()


@pytest.fixture
def profiles(moto: MotoStore, user: dict[str, str], role: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~/.aws/config` with profiles of that user, and of a role."""
    given = {**user, "region": REGION, "role": role, "endpoint": moto.endpoint}
    (home / ".aws" / "config").write_text(PROFILES.format(**given))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)


def read(moto: MotoStore, **options: Any) -> bytes:
    return bytes(Stores(options).path(moto.address("a b.bin")).open().read(2, 5))


# --- keys ---


@pytest.mark.long
def test_what_is_signed_is_read_and_what_is_not_is_named(user: dict[str, str], strict: MotoStore) -> None:
    assert read(strict, **{**strict.options, **user}) == DATA[2:7]
    wrong = {"SignatureDoesNotMatch": {**user, "secret_access_key": "planted"}, "InvalidAccessKeyId": strict.key}
    for code, keys in wrong.items():
        with pytest.raises(
            ReadError, match=rf"a b\.bin, bytes 2 to 7: .*403 Forbidden \({code}\), at each of 4"
        ) as caught:
            read(strict, **{**strict.options, **keys})
        assert not any(secret in str(caught.value) for secret in keys.values())


def test_a_key_that_may_only_list_is_named_at_its_first_read(moto: MotoStore) -> None:
    moto.put_all(CONTENT)
    keys = moto.user({"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"})
    with (
        checked_permissions(),
        pytest.raises(ReadError, match=r"shards/0\.tar, bytes .*403 Forbidden \(AccessDenied\)"),
    ):
        hr.open(moto.address("shards/*.tar"), store_options={**moto.options, **keys})


# --- profiles ---


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize("profile", ["team", "role", "there"])
def test_a_profile_signs(profile: str, strict: MotoStore) -> None:
    options = {"profile": profile} | ({} if profile == "there" else {"endpoint": strict.endpoint})
    assert read(strict, **options) == DATA[2:7]
    assert ("x-amz-security-token" in strict.answered[-1].headers) == (profile == "role")


@pytest.mark.usefixtures("profiles")
def test_the_profile_of_the_environment_counts_where_no_key_is_given(
    strict: MotoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "there")
    assert read(strict) == DATA[2:7]
    with pytest.raises(ReadError, match="InvalidAccessKeyId"):
        read(strict, **strict.options)


@pytest.mark.usefixtures("profiles")
@pytest.mark.long
def test_a_profile_goes_to_other_processes_by_its_name(strict: MotoStore) -> None:
    path = Stores({"profile": "role", "endpoint": strict.endpoint}).path(strict.address("a b.bin"))
    assert bytes(path.open().read(0, 2)) == DATA[:2]
    assert in_fork(lambda: bytes(path.open().read(2, 2)))() == DATA[2:4]
    sent = pickle.dumps(path)
    assert b"AKIA" not in sent
    assert b"ASIA" not in sent
    assert bytes(pickle.loads(sent).open().read(4, 2)) == DATA[4:6]


@pytest.mark.usefixtures("profiles")
def test_profiles_that_cannot_sign_are_named(moto: MotoStore, home: Path) -> None:
    moto.put("a b.bin", DATA)
    with pytest.raises(UsageError, match=r"expected a profile of ~/\.aws, got 'none'\. There are: role, team, there"):
        read(moto, profile="none", endpoint=moto.endpoint)
    (home / ".aws" / "config").write_text("[profile empty]\nregion = x\n")
    with pytest.raises(UsageError, match="expected credentials in profile 'empty', got none"):
        read(moto, profile="empty", endpoint=moto.endpoint)


# --- credentials that expire ---


@pytest.mark.usefixtures("profiles")
@pytest.mark.long
def test_a_role_that_expires_under_the_run_is_assumed_again(strict: MotoStore, tmp_path: Path) -> None:
    options = {"profile": "role", "endpoint": strict.endpoint}
    here = loader(open_here(tmp_path))
    there = loader(hr.open(strict.address("shards/*.tar"), store_options=options))
    assert_same(there, here)
    before = _key_of(strict)
    strict.forget_roles()
    assert_same(there, here)
    assert _key_of(strict) != before
    assert there.stats().bad == 0


def test_a_provider_of_obstore_assumes_its_role_again_before_it_expires(
    user: dict[str, str], role: str, strict: MotoStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from obstore.auth.boto3 import StsCredentialProvider
    from obstore.store import S3Store

    class Brief(StsCredentialProvider):
        """The real one, of a role that ends within the time in which obstore asks again."""

        def __call__(self) -> Any:
            return {**super().__call__(), "expires_at": datetime.now(UTC) + timedelta(seconds=30)}

    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", strict.endpoint)
    session = boto3.Session(user["access_key_id"], user["secret_access_key"], region_name=REGION)
    provider = Brief(session, RoleArn=role, RoleSessionName="training")
    client = {"allow_http": True}
    store = S3Store(strict.bucket, endpoint=strict.endpoint, client_options=client, credential_provider=provider)
    data = hr.open(strict.address("shards/*.tar"), store=store)
    there, here = loader(data), loader(open_here(tmp_path))
    assert_same(there, here)
    before = _key_of(strict)
    assert eventually(lambda: data[0] is not None and _key_of(strict) != before)
    assert_same(there, here)


def _key_of(moto: MotoStore) -> str:
    """Return the key that signed the last request for an object."""
    last = next(each for each in reversed(moto.answered) if "/shards/" in each.target)
    return last.headers["authorization"].partition("Credential=")[2].partition("/")[0]


# --- the command ---


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["index", *arguments])


@pytest.mark.usefixtures("profiles")
@pytest.mark.long
def test_the_command_signs_with_a_profile(strict: MotoStore) -> None:
    tars, index = strict.address("shards/*.tar"), strict.address("shards/index.headrace")
    done = command(tars, "--to", index, "--profile", "role", "--endpoint", strict.endpoint)
    assert done.exit_code == 0, done.output
    assert command(tars, "--profile", "there").exit_code == 0, "the profile names the endpoint"
    opened = hr.open(tars, index=index, store_options={"profile": "team", "endpoint": strict.endpoint})
    assert opened[0]["cls"]
    refused = command(tars, "--profile", "none", "--endpoint", strict.endpoint)
    assert "expected a profile of ~/.aws, got 'none'" in str(refused.exception)


@pytest.mark.long
def test_the_command_signs_nothing_for_public_buckets(moto: MotoStore) -> None:
    moto.put("public.tar", CONTENT["shards/0.tar"], ACL="public-read")
    moto.put("private.tar", CONTENT["shards/0.tar"], ACL="private")
    moto.answered.clear()
    done = command(moto.address("public.tar"), "--anonymous", "--endpoint", moto.endpoint)
    assert done.exit_code == 0, done.output
    assert not any("authorization" in map(str.lower, each.headers) for each in moto.answered)
    refused = command(moto.address("private.tar"), "--anonymous", "--endpoint", moto.endpoint)
    assert isinstance(refused.exception, HeadraceError)
    assert "private.tar" in str(refused.exception)
    assert "403 Forbidden" in str(refused.exception)
