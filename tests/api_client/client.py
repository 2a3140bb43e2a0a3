"""Creates, lists, shows and deletes a volume with the client that was generated from the served document.

usage: client.py URL, with the token in LONGSHORE_TOKEN and the generated package on PYTHONPATH
"""

import os
import sys
import time

from longshore_control_api_client import AuthenticatedClient
from longshore_control_api_client.api.default import (
    delete_volume,
    get_operation,
    get_status,
    get_volume,
    list_volumes,
    put_volume,
    resize_volume,
)
from longshore_control_api_client.models import (
    OperationState,
    Problem,
    ProblemCode,
    PutVolumeBody,
    ResizeVolumeBody,
)

VOLUME = "made-by-a-client"
SIZE = 64 << 20


def names(client):
    answer = list_volumes.sync_detailed(client=client)
    assert answer.status_code == 200, answer
    return [volume["name"] for volume in answer.parsed.to_dict()["items"]]


def put(client, body):
    body = PutVolumeBody.from_dict(body)
    return put_volume.sync_detailed(VOLUME, client=client, body=body)


def expect_problem(answer, status, code):
    assert answer.status_code == status, answer
    assert isinstance(answer.parsed, Problem), answer
    assert answer.parsed.code == code, answer


def wait_for(client, answer):
    """Waits for the end of a change that goes on after its answer."""
    operation = answer.headers["location"].rsplit("/", 1)[1]
    for _ in range(600):
        state = get_operation.sync_detailed(operation, client=client).parsed.state
        if state != OperationState.RUNNING:
            assert state == OperationState.DONE, state
            return
        time.sleep(0.1)
    raise AssertionError("the volume drains for a minute")


def main(url):
    name = VOLUME
    client = AuthenticatedClient(base_url=url, token=os.environ["LONGSHORE_TOKEN"])
    stranger = AuthenticatedClient(base_url=url, token="wrong")
    keys = {"backend": "mem", "size": SIZE}

    expect_problem(put(stranger, keys), 401, ProblemCode.UNAUTHENTICATED)
    assert name not in names(client)

    made = put(client, keys)
    assert made.status_code == 200, made
    assert made.parsed.plan.steps, made
    revision = made.parsed.revision
    again = put(client, keys)
    assert again.status_code == 200, again
    assert again.parsed.revision == revision, "the same again is no change"
    assert name in names(client)

    shown = get_volume.sync_detailed(name, client=client)
    assert shown.status_code == 200, shown
    shown = shown.parsed.to_dict()
    assert shown["owner"] == "api" and shown["keys"]["size"] == SIZE, shown

    larger = ResizeVolumeBody.from_dict({"size": 2 * SIZE})
    resized = resize_volume.sync_detailed(name, client=client, body=larger)
    expect_problem(resized, 422, ProblemCode.INVALID)
    refused = put(client, {"backend": "no such backend"})
    expect_problem(refused, 422, ProblemCode.INVALID)
    status = get_status.sync_detailed(client=client)
    assert status.status_code == 200, status

    gone = delete_volume.sync_detailed(name, client=client)
    assert gone.status_code in (200, 202), gone
    if gone.status_code == 202:
        wait_for(client, gone)
    assert name not in names(client)
    missing = delete_volume.sync_detailed(name, client=client)
    expect_problem(missing, 404, ProblemCode.NOT_FOUND)
    print("created, listed, shown and deleted a volume")


main(sys.argv[1])
