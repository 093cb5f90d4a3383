"""moto's S3 server on loopback, in a thread of the tests, and the requests that it answered."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import boto3
import moto.settings
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.authorization import ActionAuthenticatorMixin
from moto.moto_server import threaded_moto_server
from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.s3.models import s3_backends
from moto.sts.models import sts_backends

REGION = "eu-west-1"
_EVERYTHING = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}


class Answered(NamedTuple):
    """One request, as the server answered it."""

    method: str
    target: str
    """Path and query, as they came."""
    status: int
    headers: Mapping[str, str]


class MotoStore:
    """S3, IAM and STS of one account, with a bucket of each test's own."""

    def __init__(self, endpoint: str, answered: list[Answered]) -> None:
        self.endpoint, self.answered = endpoint, answered
        self.key = {"access_key_id": "AKIAOFTESTS", "secret_access_key": "planted-secret-of-tests"}
        self.s3 = self.client("s3")
        self.bucket = ""
        self._numbers = count()

    @property
    def options(self) -> dict[str, Any]:
        """`store_options=` of S3's."""
        return {"endpoint": self.endpoint, "region": REGION, **self.key}

    def client(self, service: str, **more: Any) -> Any:
        """Return boto3's client of a service of this server."""
        signed = {f"aws_{name}": value for name, value in self.key.items()}
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, **signed, **more)

    def in_environment(self, patch: pytest.MonkeyPatch) -> None:
        """Set the variables by which programs find this server and sign."""
        given = {f"AWS_{name.upper()}": value for name, value in self.key.items()}
        for name, value in {**given, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": REGION}.items():
            patch.setenv(name, value)

    def make_bucket(self) -> None:
        """Make an empty bucket under a new name, and forget what was answered."""
        self.bucket = f"bucket-{next(self._numbers)}"
        self.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.answered.clear()

    def remove_buckets(self) -> None:
        """Remove all of them, with the files that large parts lie in."""
        self._backend.reset()

    def put(self, key: str, data: bytes, **more: Any) -> dict[str, Any]:
        """Upload an object by boto3, and return what the server said."""
        said: dict[str, Any] = self.s3.put_object(Bucket=self.bucket, Key=key, Body=data, **more)
        return said

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        for key, data in objects.items():
            self.put(key, data)

    def put_unseen(self, keys: Iterable[str]) -> None:
        """Make empty objects without requests: a request takes milliseconds."""
        for key in keys:
            self._backend.put_object(self.bucket, key, b"")

    def put_policy(self, statement: dict[str, Any]) -> None:
        """Give the bucket a policy of one statement."""
        self.s3.put_bucket_policy(Bucket=self.bucket, Policy=_policy([{"Resource": "*", **statement}]))

    def address(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def user(self, *allowed: dict[str, Any]) -> dict[str, str]:
        """Make a user who may do that, or everything with S3, and return its key pair."""
        iam, name = self.iam, f"user-{next(self._numbers)}"
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=_policy(list(allowed) or [_EVERYTHING]))
        made = iam.create_access_key(UserName=name)["AccessKey"]
        return {"access_key_id": made["AccessKeyId"], "secret_access_key": made["SecretAccessKey"]}

    def role(self) -> str:
        """Make a role that may do everything with S3 and that every user may assume, and return its name (ARN)."""
        iam, name = self.iam, f"role-{next(self._numbers)}"
        trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
        arn: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_policy([trust]))["Role"]["Arn"]
        iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=_policy([_EVERYTHING]))
        return arn

    def forget_roles(self) -> None:
        """Take back all that users got as a role: those credentials have expired."""
        sts_backends[DEFAULT_ACCOUNT_ID]["aws"].assumed_roles.clear()

    @property
    def _backend(self) -> Any:
        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    @functools.cached_property
    def iam(self) -> Any:
        return self.client("iam")


def _policy(statements: list[dict[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


@contextmanager
def running_moto() -> Iterator[MotoStore]:
    """Run the server for a while."""
    answered: list[Answered] = []

    class Handler(MotoRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            answered.append(Answered(self.command, self.path, int(code), dict(self.headers)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threaded_moto_server, "MotoRequestHandler", Handler)
        server = threaded_moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
    try:
        host, port = server.get_host_and_port()
        yield MotoStore(f"http://{host}:{port}", answered)
    finally:
        server.stop()


@contextmanager
def checked_permissions() -> Iterator[None]:
    """Let the server check signatures and policies, which it does not otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
        patch.setattr(ActionAuthenticatorMixin, "request_count", 0)
        yield
