"""Object stores, and the engine that reads byte ranges from them. Other packages import from here.

An `ObjectStore` makes single requests. A plan of requests joins byte ranges to requests by a model of the measured
link. `RequestEngine` runs requests in a thread: the most urgent first, with retries, hedges and deadlines.

Used by `data` and `fetch`. Read `request_engine.py` and `object_store.py` first.
"""

from __future__ import annotations

from headrace.stores.addresses import HUB_SCHEME, ObjectAddress, StoreAddress, is_remote, parse_address, show_address
from headrace.stores.connections import without_credentials
from headrace.stores.hub import HubStore
from headrace.stores.link import MOST_STREAMS, STREAMS, LinkMeter, streams_of_rank
from headrace.stores.object_content import ListedObject, ListingPage, ObjectPin
from headrace.stores.object_store import ObjectStore
from headrace.stores.request_engine import RequestEngine, link_model, shared_requests, store_users
from headrace.stores.request_errors import FailedRequestError, FailureKind, RangeRequest
from headrace.stores.request_planning import (
    LARGEST_REQUEST_BYTES,
    LinkModel,
    Request,
    RequestPlan,
    WantedRanges,
    plan_requests,
)
from headrace.stores.request_runner import RequestCounts, RequestRunner
from headrace.stores.retrying import REMOTE_RETRIES, with_remote_retries

__all__ = [
    "HUB_SCHEME",
    "LARGEST_REQUEST_BYTES",
    "MOST_STREAMS",
    "REMOTE_RETRIES",
    "STREAMS",
    "FailedRequestError",
    "FailureKind",
    "HubStore",
    "LinkMeter",
    "LinkModel",
    "ListedObject",
    "ListingPage",
    "ObjectAddress",
    "ObjectPin",
    "ObjectStore",
    "RangeRequest",
    "Request",
    "RequestCounts",
    "RequestEngine",
    "RequestPlan",
    "RequestRunner",
    "StoreAddress",
    "WantedRanges",
    "is_remote",
    "link_model",
    "parse_address",
    "plan_requests",
    "shared_requests",
    "show_address",
    "store_users",
    "streams_of_rank",
    "with_remote_retries",
    "without_credentials",
]
