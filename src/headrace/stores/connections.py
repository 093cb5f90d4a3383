"""obstore stores for addresses: endpoint, timeouts, and the credentials that sign requests.

obstore reads the environment and requests an instance's role. It does not read the files in `~/.aws`; boto3 does.
"""

from __future__ import annotations

import base64
import importlib
import os
import re
from collections.abc import Mapping
from types import FunctionType
from typing import Any
from urllib.parse import unquote

from headrace.errors import UsageError
from headrace.stores.addresses import StoreAddress, show_address

REQUEST_TIMEOUT = "30s"
"""Deadline of one request, the whole response included, unless client_options set another."""
_CONNECT_TIMEOUT = "5s"
_NO_RETRIES = {"max_retries": 0}
"""Attempts are counted, reported and paced in `remote_file`."""
_ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "gs": ("GOOGLE_BASE_URL",), "http": (), "https": ()}
_AZURE_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
"""Environment variables for endpoints that obstore reads, by scheme. Without TLS they need a client option."""
_SECRET_OPTION = re.compile(r"secret|token|key|sas|password|credential|bearer|authorization|header", re.IGNORECASE)
_NAMES_A_FILE = re.compile(r"_(file|path)$", re.IGNORECASE)


def connect(address: StoreAddress, options: Mapping[str, Any]) -> Any:
    """Return an obstore store for an address, with `store_options=`, without any request. Raises UsageError."""
    stores: Any = importlib.import_module("obstore.store")
    config = dict(options)
    client: dict[str, Any] = {
        "timeout": REQUEST_TIMEOUT,
        "connect_timeout": _CONNECT_TIMEOUT,
        **dict(config.pop("client_options", {})),
    }
    if address.scheme == "gs" and "endpoint" in config:  # the name of the option in obstore
        config["base_url"] = config.pop("endpoint")
    named = (os.environ.get(name) for name in _ENDPOINTS.get(address.scheme, _AZURE_ENDPOINTS))
    endpoint = config.get("endpoint") or config.get("base_url") or next(filter(None, named), "")
    if address.credential is not None:
        token = base64.b64encode(unquote(address.credential).encode()).decode()
        client["default_headers"] = {**client.get("default_headers", {}), "authorization": f"Basic {token}"}
    anonymous, profile = config.pop("anonymous", None), config.pop("profile", None)
    given: dict[str, Any] = {"client_options": client, "retry_config": config.pop("retry_config", _NO_RETRIES)}
    provider = config.pop("credential_provider", None)
    if address.scheme == "s3" and not anonymous and provider is None:
        profile = profile or _environment_profile(config)
    if profile is not None:
        provider, named_endpoint = _profile_provider(address, profile)
        if not endpoint and named_endpoint is not None:
            config["endpoint"] = endpoint = named_endpoint
    if str(endpoint).startswith("http://") or address.scheme == "http":
        client["allow_http"] = True
    if provider is not None:
        given["credential_provider"] = provider
    if anonymous:
        config["skip_signature"] = True
    try:
        if address.is_web:
            return stores.HTTPStore.from_url(address.connection, **config, **given)
        if address.scheme == "s3":
            return stores.S3Store(address.name, config=config, **given)
        if address.scheme == "gs":
            return stores.GCSStore(address.name, config=config, **given)
        if address.scheme == "az":
            return stores.AzureStore(address.name, config=config, **given)
        return stores.from_url(address.connection, config=config, **given)
    except Exception as error:
        why, names = type(error).__name__, ", ".join(sorted(options)) or "none"
    raise UsageError(
        f"{address}: expected options that obstore's store takes as store_options=, got {names} ({why}). See "
        f"https://developmentseed.org/obstore/"
    )


def _environment_profile(config: Mapping[str, Any]) -> str | None:
    """Return the profile in AWS_PROFILE if no key is given, as boto3 does: obstore does not read it."""
    if "AWS_ACCESS_KEY_ID" in os.environ or any(name.lower().endswith("access_key_id") for name in config):
        return None
    return os.environ.get("AWS_PROFILE")


def _profile_provider(address: StoreAddress, profile: str) -> tuple[Any, str | None]:
    """Return obstore's provider of a profile's credentials, and the profile's endpoint."""
    if address.scheme != "s3":
        raise UsageError(f"{address}: profile: expected none in store_options=, which only s3:// has. Leave it out")
    try:
        import boto3
        import botocore.session
        from botocore.exceptions import ProfileNotFound
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise UsageError(
            f"{address}: profile {profile!r} needs boto3, which is not installed: pip install boto3"
        ) from error
    session = botocore.session.Session(profile=profile)
    try:
        named_endpoint = session.get_scoped_config().get("endpoint_url")
    except ProfileNotFound:
        names = ", ".join(sorted(session.available_profiles)) or "none"
        raise UsageError(f"{address}: expected a profile of ~/.aws, got {profile!r}. There are: {names}") from None
    if session.get_credentials() is None:
        raise UsageError(
            f"{address}: expected credentials in profile {profile!r}, got none. Add them: aws configure --profile "
            f"{profile}"
        )
    return Boto3CredentialProvider(boto3.Session(botocore_session=session)), named_endpoint


def without_credentials(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options that other processes may have, and the names of the others."""
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            inner, names = without_credentials(value)
            kept[name] = inner
            left_out += names
        elif isinstance(value, str) and show_address(value) != value:  # a proxy with its password
            kept[name] = show_address(value)
            left_out.append(name)
        elif isinstance(value, FunctionType) or not _SECRET_OPTION.search(name) or _NAMES_A_FILE.search(name):
            kept[name] = value
        else:
            left_out.append(name)
    return kept, tuple(left_out)
