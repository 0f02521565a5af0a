"""Wrong values are refused by the models, naming the field. The API server is asked the same elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.operator.bad_values import ALL, IDS, Bad
from tests.unit.operator.support import connector, gossip_router, link_route, relay_site, router

from isthmus_operator.resources import API_VERSION, InvalidResourceError, Router, parse
from isthmus_router.core.address import Purpose, purpose

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


def manifest(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize("bad", ALL, ids=IDS)
def test_a_wrong_value_is_refused_by_name(bad: Bad) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        parse(manifest(bad.kind, bad.spec), strict=True)
    assert bad.field in str(refused.value)


def test_defaults_are_those_of_the_schema() -> None:
    parsed = parse(router("west"))
    assert isinstance(parsed, Router)
    assert (parsed.spec.mode, parsed.spec.replicas, parsed.spec.health_port) == ("interior", 1, 9090)


def test_an_unknown_field_is_an_error_in_a_file_and_ignored_from_the_api_server() -> None:
    typo = router("west", replica=2)
    parse(typo)
    with pytest.raises(InvalidResourceError, match="replica"):
        parse(typo, strict=True)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(InvalidResourceError, match="Gateway"):
        parse({**router("west"), "kind": "Gateway"})


def test_the_normal_form_is_a_fixed_point() -> None:
    for given in (
        router("west", replicas=2),
        connector("c", "west", "east", "inter-router"),
        link_route("b2", prefix="b2", connector="broker"),
        relay_site("nyc", "west", remoteSites=[{"site": "sfo"}], addresses=[{"pattern": "a/#"}]),
        gossip_router("g"),
    ):
        once = parse(given).model_dump(by_alias=True, exclude_none=True)
        twice = parse({**given, "spec": once["spec"]}).model_dump(by_alias=True, exclude_none=True)
        assert once == twice


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if document and document["apiVersion"] == API_VERSION:
            parse(document, strict=True)


def test_an_address_with_many_schemes_is_judged_in_linear_time() -> None:
    begun = time.process_time()
    for address, allowed in (("amqp://" * 36 + "x", True), ("/amqp:" * 42 + "_x", False)):
        if allowed:
            parse(link_route("b", prefix=address, connector="c"))
        else:
            with pytest.raises(InvalidResourceError, match="use another address"):
                parse(link_route("b", prefix=address, connector="c"))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("prefix", ["", "/", "amqp:/", "amqp://host/", "amqp:/amqp:/"])
@pytest.mark.parametrize(
    "address",
    [
        *("orders", "mc/orders", "sfe", "a_b", "a$b", "_$phase.1/orders"),
        *("_orders", "$management", "$coordinator", "mc/sfe.all", "sfe.a:0"),
        *("_topo/0/all/qdrouter", "_$phase.1/mc/sfe.all", "_$phase.0/_topo", "_edge/E/x"),
    ],
)
def test_control_addresses_are_those_of_the_router(prefix: str, address: str) -> None:
    text = prefix + address
    expected = purpose(text) is Purpose.CLIENTS
    links = [{"address": text, "direction": "in"}]
    for given, allowed in (
        (connector("c", "west", "broker.example", "route-container", autoLinks=links), expected),
        (link_route("b", prefix=text, connector="c"), expected or address == "$coordinator"),
        (link_route("b", pattern=text, connector="c"), expected or address == "$coordinator"),
    ):
        if allowed:
            parse(given)
        else:
            with pytest.raises(InvalidResourceError, match="use another address"):
                parse(given)
