"""Google Cloud Storage and Azure by obstore's own requests: listings, ranges, credentials and errors."""

from __future__ import annotations

import base64
import json
import pickle
import traceback
from typing import Any

import pytest
from servers import Answer, StoreServer
from test_remote_archives import tar_of

import headrace as hr
from headrace.data.remote.listing import Stores
from headrace.errors import ChangedError, ReadError

PLANTED = "planted-secret-of-tests"
ACCOUNT_KEY = base64.b64encode(PLANTED.encode()).decode()
ADDRESSES = {
    "gs": "gs://bucket",
    "az": "az://bucket",
    "abfs": "abfs://bucket@account.dfs.core.windows.net",
    "abfss": "abfss://bucket@account.dfs.core.windows.net",
}
CREDENTIALS: dict[str, tuple[str, dict[str, Any]]] = {
    "gs anonymous": ("gs", {"anonymous": True}),
    "gs bearer": ("gs", {"credential_provider": lambda: {"token": PLANTED, "expires_at": None}}),
    "az anonymous": ("az", {"account_name": "account", "anonymous": True}),
    "az key": ("az", {"account_name": "account", "account_key": ACCOUNT_KEY}),
    "az signed": ("az", {"account_name": "account", "sas_key": f"sv=1&sig={PLANTED}"}),
    "abfs anonymous": ("abfs", {"anonymous": True}),
    "abfss key": ("abfss", {"account_key": ACCOUNT_KEY}),
}
SHARDS = {f"a b/é {shard}.tar": tar_of({f"{shard}{at}.cls": b"%d" % at for at in range(6)}) for shard in range(3)}


@pytest.fixture
def shards(store: StoreServer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    store.objects |= SHARDS
    return store


@pytest.mark.one_in(2)
@pytest.mark.parametrize("credentials", CREDENTIALS)
def test_tars_open_and_are_read_by_ranges(shards: StoreServer, credentials: str) -> None:
    scheme, options = CREDENTIALS[credentials]
    address, options = ADDRESSES[scheme], {"endpoint": shards.endpoint, **options}
    opened = hr.open(f"{address}/a b/*.tar", store_options=options)
    assert [opened[at]["cls"] for at in range(18)] == [b"%d" % (at % 6) for at in range(18)]
    assert opened.files("cls").path(2) == f"{address}/a b/é 2.tar".encode()
    assert all(seen.start is not None for seen in shards.requests if seen.key)  # no object as a whole
    said = [seen.headers.get("authorization", "") for seen in shards.requests]
    signs = {"gs bearer": f"Bearer {PLANTED}", "az key": "SharedKey account:", "abfss key": "SharedKey account:"}
    assert all(each.startswith(signs.get(credentials, "")) for each in said)
    assert any(said) == (credentials in signs)
    signed = [f"sig={PLANTED}" in seen.query for seen in shards.requests]
    assert set(signed) == {credentials == "az signed"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("credentials", ["gs bearer", "az key", "az signed"])
@pytest.mark.parametrize("status", [400, 403, 503])
def test_no_credential_is_shown(shards: StoreServer, credentials: str, status: int) -> None:
    scheme, options = CREDENTIALS[credentials]
    stores = Stores({"endpoint": shards.endpoint, **options}, retry_for_s=0.1)
    path = stores.path(f"{ADDRESSES[scheme]}/a b/é 0.tar")
    assert path.open().size() == len(SHARDS["a b/é 0.tar"])
    shards.fault = lambda _: Answer(status, "Odd")
    with pytest.raises(ReadError, match=rf"{scheme}://bucket/a b/é 0\.tar, bytes 0 to 9: .*{status}") as caught:
        path.open().read(0, 9)
    # A function of this module travels by its name alone; one that is none cannot.
    sent = b"" if "credential_provider" in options else pickle.dumps(path)
    for shown in ("".join(traceback.format_exception(caught.value)), repr(path), sent.decode("latin-1")):
        assert PLANTED not in shown
        assert ACCOUNT_KEY not in shown


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_listings_of_many_pages_and_replaced_objects(shards: StoreServer, scheme: str) -> None:
    shards.objects.update((f"many/{number:04}é &.bin", b"x" * 9) for number in range(1_500))
    options = {"endpoint": shards.endpoint, "anonymous": True}
    options |= {"account_name": "account"} if scheme == "az" else {}
    found = Stores(options).resolve(f"{ADDRESSES[scheme]}/many/*.bin")
    assert [path.key for path in found] == sorted(key for key in shards.objects if key.startswith("many/"))
    path = found[7]
    assert path.open().read(0, 4) == b"xxxx"
    shards.objects[path.key] = b"y" * 9
    with pytest.raises(ChangedError, match=rf"{scheme}://bucket/many/0007é &\.bin"):
        path.open().read(0, 4)


def test_a_service_account_says_where_its_store_is(shards: StoreServer) -> None:
    account = {"gcs_base_url": shards.endpoint, "disable_oauth": True, "client_email": "", "private_key_id": ""}
    key = json.dumps({**account, "private_key": PLANTED})
    options = {"service_account_key": key, "client_options": {"allow_http": True}}
    path = Stores(options).path("gs://bucket/a b/é 1.tar")
    assert path.open().read(0, 2) == b"10"
    assert PLANTED.encode() not in pickle.dumps(path)


def test_endpoints_of_the_environment_are_those_of_their_store(
    shards: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", shards.endpoint)
    monkeypatch.setenv("GOOGLE_BASE_URL", shards.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:9")
    for address, options in (("gs://bucket", {}), ("az://bucket", {"account_name": "account"})):
        path = Stores({"anonymous": True, **options}).path(f"{address}/a b/é 1.tar")
        assert path.open().read(0, 2) == b"10"
