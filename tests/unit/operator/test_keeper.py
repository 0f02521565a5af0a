"""Ledgers of SslProfiles in Secrets: two operators, late caches, crashes, and what somebody else has done to them."""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.operator.certificates import NOW, issued
from tests.unit.operator.support import ssl_profile

from isthmus_operator.apply import identity
from isthmus_operator.authority import AUTHORITY_SECRET
from isthmus_operator.certificates import described
from isthmus_operator.cluster import ApiError
from isthmus_operator.contests import MAX_PAUSE_SECONDS, MOST_CHANGES
from isthmus_operator.digests import is_digested
from isthmus_operator.handlers.watching import copied
from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.names import LABEL_MANAGED_BY, LABEL_USE, MANAGER
from isthmus_operator.render.sizes import LargeError
from isthmus_operator.rotation import Ledger
from isthmus_operator.rotation import keeper as rotation_keeper
from isthmus_operator.rotation.keeper import Keeper
from isthmus_operator.status import Usage
from isthmus_operator.store import secret_view

ONE, TWO = issued(1), issued(2)
LEDGER = ("Secret", "net-sslprofile")


class Api:
    """The Secrets of a namespace, as an API server keeps them."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes = self.reads = 0
        self.broken = False
        self.full = False

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self._check()
        self.reads += 1
        return copy.deepcopy(self.objects.get(name))

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._check()
        if self.full:
            raise ApiError(403, "Forbidden", "exceeded quota")
        name = manifest["metadata"]["name"]
        if name in self.objects:
            raise ApiError(409, "AlreadyExists", "it is there")
        return self._put(copy.deepcopy(manifest))

    async def merge(self, kind: str, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        self._check()
        found = copy.deepcopy(self.objects[name])
        if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "it has been modified")
        data = {**found["data"], **patch["data"]}
        found["data"] = {key: value for key, value in data.items() if value is not None}
        found["metadata"] |= patch["metadata"]
        return self._put(found)

    def _check(self) -> None:
        if self.broken:
            raise ApiError(0, "Unreachable", "the API server cannot be reached")

    def _put(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        manifest["metadata"] |= {"resourceVersion": str(100 + self.writes), "uid": "uid-ledger"}
        self.objects[manifest["metadata"]["name"]] = manifest
        return copy.deepcopy(manifest)

    def live(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What a cache that is up to date holds."""
        return {identity(item): copied(copy.deepcopy(item), "Secret", "v1") for item in self.objects.values()}


def keeper(api: Api) -> Keeper:
    return Keeper("net", api)  # type: ignore[arg-type]


async def look(
    keeper: Keeper,
    offer: Mapping[str, bytes] | None,
    live: Mapping[tuple[str, str], dict[str, Any]],
    *,
    status: Mapping[str, Any] | None = None,
    delivered: Mapping[str, Mapping[str, bytes]] | None = None,
    **spec: object,
) -> Ledger | None:
    """One look at the profile `net`, whose Secret holds `offer` as far as the operator has heard."""
    secrets = [SecretView("server", offer)] if offer is not None else []
    profile = ssl_profile("net", "server", **spec)
    model = NamespaceModel.from_manifests("net", [profile], secrets).at(NOW, delivered or {})
    ledgers = await keeper.adopt(model, live, [{**profile, "status": status or {}}], NOW)
    return ledgers.get("net")


async def test_a_ledger_is_written_once_and_owned() -> None:
    api = Api()
    one = keeper(api)
    for _ in range(3):
        ledger = await look(one, ONE, api.live())
    assert ledger is not None
    assert (ledger.ordinal, api.writes) == (1, 1)
    metadata = api.objects["net-sslprofile"]["metadata"]
    assert metadata["ownerReferences"][0]["uid"] == "uid-net"
    assert metadata["labels"][LABEL_MANAGED_BY] == MANAGER


async def test_a_late_cache_does_not_raise_the_ordinal_twice() -> None:
    api = Api()
    one = keeper(api)
    late = api.live()
    await look(one, ONE, late)
    ledger = await look(one, ONE, late)
    before = api.live()
    await look(one, TWO, before)
    for _ in range(2):
        ledger = await look(one, TWO, before)
    assert ledger is not None
    assert (ledger.ordinal, api.writes) == (2, 2)


async def test_of_two_operators_one_raises_the_ordinal() -> None:
    api = Api()
    one, other = keeper(api), keeper(api)
    await look(one, ONE, {})
    cached = api.live()
    await look(other, ONE, cached)
    first, second = await look(one, TWO, cached), await look(other, TWO, cached)
    assert first is not None
    assert second is not None
    assert (first.ordinal, second.ordinal) == (2, 1), "what is not written is not in force"
    assert other.facts["net"].problem is not None
    assert other.facts["net"].problem.transient
    again = await look(other, TWO, cached)
    assert again == first
    assert api.writes == 2


async def test_an_oldest_ordinal_in_the_status_that_is_newer_than_the_ordinal_leads_to_one_write() -> None:
    api = Api()
    one = keeper(api)
    for _ in range(3):
        ledger = await look(one, ONE, api.live(), status={"ordinal": 5, "oldestValidOrdinal": 9})
    assert ledger is not None
    assert (ledger.ordinal, ledger.oldest_valid, api.writes) == (6, 5, 1)
    assert one.facts["net"].problem is None


async def test_a_ledger_that_could_not_be_read_back_is_not_written() -> None:
    api = Api()
    one = keeper(api)
    for _ in range(3):
        assert await look(one, ONE, api.live(), status={"ordinal": 2**31 - 1}) is None
    problem = one.facts["net"].problem
    assert problem is not None
    assert not problem.transient
    assert "an ordinal above 2147483647" in problem.message
    assert api.writes == 0


async def test_of_two_operators_that_begin_one_creates() -> None:
    api = Api()
    one, other = keeper(api), keeper(api)
    first = await look(one, ONE, {})
    assert await look(other, ONE, {}) is None
    assert await look(other, ONE, {}) == first


async def test_a_new_operator_goes_on_from_what_is_written() -> None:
    api = Api()
    await look(keeper(api), ONE, {})
    await look(keeper(api), TWO, api.live())
    ledger = await look(keeper(api), TWO, api.live())
    assert ledger is not None
    assert (ledger.ordinal, api.writes) == (2, 2)


async def test_a_large_ledger_is_read_once_by_a_new_operator() -> None:
    api = Api()
    large = {**ONE, "ca.crt": ONE["ca.crt"] * 100}
    before = await look(keeper(api), large, {})
    assert is_digested(api.live()[LEDGER])
    one = keeper(api)
    for _ in range(3):
        assert await look(one, large, api.live()) == before
    assert (api.reads, api.writes) == (1, 1)
    api.objects[LEDGER[1]]["metadata"]["resourceVersion"] = "200"
    late = api.live()
    api.objects[LEDGER[1]]["metadata"]["ownerReferences"] = []
    assert await look(one, large, late) == before, "it has lost its owner meanwhile"
    del api.objects[LEDGER[1]]
    assert await look(one, large, late) == before, "it is gone meanwhile"


LARGE = {**ONE, "ca.crt": ONE["ca.crt"] * 400}
LARGE_TWO = {**TWO, "ca.crt": TWO["ca.crt"] * 400}


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of 0.2 MB is large."""
    monkeypatch.setattr(rotation_keeper, "SMALL_BYTES", 500_000)


async def released(api: Api) -> Keeper:
    """A keeper that has adopted two large certificates, and has released its ledger."""
    one = keeper(api)
    await look(one, LARGE, {})
    await look(one, LARGE_TWO, api.live())
    one.release()
    ledger = one.facts["net"].ledger
    assert ledger is not None
    assert (ledger.ordinal, ledger.size) == (2, 0)
    api.reads = api.writes = 0
    return one


@pytest.mark.usefixtures("little_room")
async def test_a_large_ledger_is_released_and_read_again() -> None:
    """64 MiB of ledgers in each of several namespaces used up the memory of the operator."""
    api = Api()
    one = await released(api)
    for _ in range(3):
        ledger = await look(one, LARGE_TWO, api.live())
        assert ledger is not None
        assert ledger.material["ca.crt"].startswith(b"-----BEGIN")
    assert (api.reads, api.writes, ledger and ledger.ordinal) == (1, 0, 2)


@pytest.mark.usefixtures("little_room")
async def test_a_small_ledger_is_not_released() -> None:
    api = Api()
    one = keeper(api)
    await look(one, ONE, {})
    one.release()
    await look(one, ONE, api.live())
    assert api.reads == 0


@pytest.mark.usefixtures("little_room")
async def test_a_ledger_is_not_taken_from_a_late_cache_after_its_release() -> None:
    api = Api()
    one = keeper(api)
    await look(one, LARGE, {})
    late = api.live()
    await look(one, LARGE_TWO, api.live())
    one.release()
    ledger = await look(one, LARGE_TWO, late)
    assert ledger is not None
    assert ledger.ordinal == 2


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("spoil", ["former", "broken", "deleted"])
async def test_the_ordinal_never_goes_back_after_a_release(spoil: str) -> None:
    api = Api()
    await look(keeper(api), LARGE, {})
    former = dict(api.objects[LEDGER[1]]["data"])
    api = Api()
    one = await released(api)
    if spoil == "deleted":
        del api.objects[LEDGER[1]]
    else:
        spoilt(api, former if spoil == "former" else {"ledger.json": "e30="})
    live = api.live()
    api.full = spoil == "deleted"
    await look(one, LARGE_TWO, live)
    api.full = False
    for _ in range(2):
        ledger = await look(one, LARGE_TWO, api.live())
    assert ledger is not None
    assert ledger.ordinal >= 2


@pytest.mark.usefixtures("little_room")
async def test_a_ledger_that_cannot_be_read_after_its_release_is_a_problem_and_not_written() -> None:
    api = Api()
    one = await released(api)
    live = api.live()
    api.broken = True
    assert await look(one, LARGE_TWO, live) is None
    problem = one.facts["net"].problem
    assert problem is not None
    assert problem.transient
    api.broken = False
    ledger = await look(one, LARGE_TWO, live)
    assert ledger is not None
    assert (ledger.ordinal, api.writes) == (2, 0)


@pytest.mark.usefixtures("little_room")
async def test_ledgers_for_which_there_is_no_room_are_released() -> None:
    api = Api()
    await look(keeper(api), LARGE, {})
    one = keeper(api)
    profile = ssl_profile("net", "server")
    model = NamespaceModel.from_manifests("net", [profile], [SecretView("server", LARGE)]).at(NOW, {})
    with pytest.raises(LargeError):
        await one.adopt(model, api.live(), [profile], NOW, 500_000)
    assert one._bytes == 0


async def test_a_write_that_fails_leaves_the_old_certificate_in_force() -> None:
    api = Api()
    one = keeper(api)
    before = await look(one, ONE, {})
    api.broken = True
    assert await look(one, TWO, api.live()) == before
    assert await look(one, TWO, {}) == before, "also when it cannot be read"
    problem = one.facts["net"].problem
    assert problem is not None
    assert problem.transient
    api.broken = False
    ledger = await look(one, TWO, api.live())
    assert ledger is not None
    assert ledger.ordinal == 2


async def test_a_deleted_ledger_comes_back_as_it_was() -> None:
    api = Api()
    one = keeper(api)
    await look(one, ONE, {})
    before = await look(one, TWO, api.live())
    api.objects.clear()
    assert await look(one, TWO, {}) == before
    assert LEDGER in api.live()


async def test_a_ledger_lost_with_its_operator_is_made_anew_from_status_and_routers() -> None:
    told = {"ordinal": 7, "oldestValidOrdinal": 6, "fingerprint": "of another certificate"}
    ledger = await look(keeper(Api()), ONE, {}, status=told)
    assert ledger is not None
    assert (ledger.ordinal, ledger.oldest_valid) == (8, 6)
    section = b'[["sslProfile", {"name": "sslprofile/net/dialled", "ordinal": 9, "oldestValidOrdinal": 3}]]'
    files = {"west-0.json": section, "net_9-tls.crt": ONE["tls.crt"]}
    ledger = await look(keeper(Api()), ONE, {}, status=told, delivered={"west": files})
    assert ledger is not None
    assert (ledger.ordinal, ledger.oldest_valid) == (9, 3), "it is the certificate that routers have as 9"


async def test_a_broken_ledger_is_made_anew_and_its_rest_removed() -> None:
    api = Api()
    await look(keeper(api), ONE, {})
    api.objects["net-sslprofile"]["data"]["ledger.json"] = "e30="
    ledger = await look(keeper(api), TWO, api.live(), status={"ordinal": 1, "oldestValidOrdinal": 1})
    assert ledger is not None
    assert ledger.ordinal == 2
    data = set(api.objects["net-sslprofile"]["data"])
    assert {name for name in data if not name.endswith(".ca.crt")} == {
        "ledger.json",
        "2.tls.crt",
        "2.tls.key",
    }


def spoilt(api: Api, data: Mapping[str, str | None]) -> None:
    """Somebody edits the ledger."""
    found = copy.deepcopy(api.objects["net-sslprofile"])
    edited = {**found["data"], **data}
    found["data"] = {key: value for key, value in edited.items() if value is not None}
    api._put(found)


async def test_a_spoilt_ledger_is_put_right_from_memory() -> None:
    api = Api()
    one = keeper(api)
    await look(one, ONE, {})
    before = await look(one, TWO, api.live())
    good = copy.deepcopy(api.objects["net-sslprofile"]["data"])
    for data in ({"2.tls.key": None}, {"ledger.json": "e30="}, dict.fromkeys(good, "Z2FyYmFnZQ==")):
        spoilt(api, data)
        assert await look(one, None, api.live()) == before, "though there is no Secret it could be made from"
        assert api.objects["net-sslprofile"]["data"] == good


async def test_a_ledger_of_before_that_somebody_puts_back_does_not_lower_the_ordinal() -> None:
    api = Api()
    one = keeper(api)
    await look(one, ONE, {})
    old = copy.deepcopy(api.objects["net-sslprofile"]["data"])
    await look(one, TWO, api.live())
    before = await look(one, ONE, api.live())
    spoilt(api, {**dict.fromkeys(api.objects["net-sslprofile"]["data"]), **old})
    assert await look(one, ONE, api.live()) == before
    assert Ledger.decoded(secret_view(api.objects["net-sslprofile"]).data) == before

    spoilt(api, {**dict.fromkeys(api.objects["net-sslprofile"]["data"]), **old})
    told = {"ordinal": 3, "oldestValidOrdinal": 1, "fingerprint": described(ONE["tls.crt"]).fingerprint}
    ledger = await look(keeper(api), ONE, api.live(), status=told)
    assert ledger is not None
    assert (ledger.ordinal, ledger.oldest_valid) == (3, 1), "nor after a restart"


async def test_a_ledger_that_has_lost_its_owner_goes_with_its_profile_again() -> None:
    api = Api()
    one = keeper(api)
    before = await look(one, ONE, {})
    del api.objects["net-sslprofile"]["metadata"]["ownerReferences"]
    for _ in range(2):
        found = await look(one, ONE, api.live())
    assert found == before
    assert api.objects["net-sslprofile"]["metadata"]["ownerReferences"][0]["uid"] == "uid-net"
    assert one.facts["net"].problem is None


async def test_a_secret_with_the_label_and_without_an_owner_is_no_ledger() -> None:
    """Anybody who may write Secrets can plant one, with certificates of their own."""
    api = Api()
    await look(keeper(api), ONE, {})
    del api.objects["net-sslprofile"]["metadata"]["ownerReferences"]
    planted = dict(api.objects["net-sslprofile"])
    one = keeper(api)
    for _ in range(2):
        assert await look(one, ONE, api.live()) is None
    assert api.objects["net-sslprofile"] == planted
    problem = one.facts["net"].problem
    assert problem is not None
    assert (problem.reason, problem.transient) == ("ObjectConflict", False)


async def test_a_deleted_ledger_is_remembered_until_it_can_be_written() -> None:
    api = Api()
    one = keeper(api)
    before = await look(one, ONE, {})
    api.objects.clear()
    api.full = True
    assert await look(one, None, {}) == before
    api.full = False
    assert await look(one, None, {}) == before
    assert LEDGER in api.live()


async def test_an_object_of_somebody_else_is_not_touched() -> None:
    api = Api()
    foreign = {"kind": "Secret", "metadata": {"name": "net-sslprofile", "resourceVersion": "5"}, "data": {}}
    api.objects["net-sslprofile"] = foreign
    one = keeper(api)
    assert await look(one, ONE, {}) is None
    problem = one.facts["net"].problem
    assert problem is not None
    assert (problem.reason, problem.transient) == ("ObjectConflict", False)
    assert api.writes == 0


async def test_what_routers_use_is_written_and_told_once() -> None:
    api = Api()
    one = keeper(api)
    await look(one, ONE, {})
    await one.retire({"net": Usage(unheard=True)}, NOW)
    await one.retire({"net": Usage(behind=("west-0 has not taken it over",))}, NOW)
    assert api.writes == 1
    await one.retire({"net": Usage()}, NOW)
    ledger = one.facts["net"].ledger
    assert ledger is not None
    assert ledger.current.settled == NOW
    await look(one, ONE, api.live())
    await one.retire({"net": Usage()}, NOW)
    assert api.writes == 2
    assert one.facts["net"].changes == ()


async def test_a_request_is_about_the_secret_as_it_is() -> None:
    """Its change may not have been heard of yet, and a revocation must not keep what it is to revoke."""
    api = Api()
    one = keeper(api)
    await look(one, ONE, api.live())
    data = {key: base64.b64encode(content).decode() for key, content in TWO.items()}
    api.objects["server"] = {"kind": "Secret", "metadata": {"name": "server"}, "data": data}
    live = {key: item for key, item in api.live().items() if key == LEDGER}
    ledger = await look(one, ONE, live, rotation={"request": 1, "revoke": True})
    assert ledger is not None
    assert ledger.current.fingerprint == described(TWO["tls.crt"]).fingerprint
    assert (ledger.ordinal, ledger.oldest_valid) == (2, 2)
    api.broken = True
    assert await look(one, TWO, live, rotation={"request": 2, "revoke": True}) == ledger


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("isthmus-authority", {LABEL_USE: "true"}),
        ("server", {LABEL_USE: "true", LABEL_MANAGED_BY: MANAGER}),
        ("server", {}),
    ],
)
async def test_a_request_adopts_no_secret_that_resources_may_not_use(
    name: str, labels: dict[str, str]
) -> None:
    """The key of the authority, a Secret of the operator, and one that its owner has not opened."""
    api = Api()
    one = keeper(api)
    before = await look(one, ONE, api.live())
    assert before is not None
    data = {key: base64.b64encode(content).decode() for key, content in TWO.items()}
    api.objects[name] = {"kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": data}
    live = {key: item for key, item in api.live().items() if key == LEDGER}
    profile = ssl_profile("net", name, rotation={"request": 1})
    model = NamespaceModel.from_manifests("net", [profile], []).at(NOW)
    ledger = (await one.adopt(model, live, [profile], NOW))["net"]
    assert ledger.current == before.current
    refusal = one.facts["net"].refusal
    assert refusal is not None
    assert refusal.reason == "SecretNotFound"


async def test_a_profile_that_names_the_secret_of_the_authority_reports_whose_it_is() -> None:
    one = keeper(Api())
    profile = ssl_profile("net", AUTHORITY_SECRET)
    model = NamespaceModel.from_manifests("net", [profile], []).without((), reserved={AUTHORITY_SECRET})
    await one.adopt(model.at(NOW), {}, [profile], NOW)
    refusal = one.facts["net"].refusal
    assert refusal is not None
    assert refusal.reason == "SecretNotAllowed"
    assert 'Secret "isthmus-authority" is the operator\'s own' in refusal.message


async def test_ledgers_of_a_namespace_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each SslProfile that names one Secret of 1 MB had the operator write another copy of it into the cluster."""
    api = Api()
    one, other = keeper(api), ssl_profile("other", "server")
    offer = {**issued(1), "ca.crt": issued(1)["ca.crt"] * 5}
    monkeypatch.setattr(rotation_keeper, "MAX_LEDGER_BYTES", 2 * sum(map(len, offer.values())) - 1)
    profiles = [ssl_profile("net", "server"), other]
    model = NamespaceModel.from_manifests("net", profiles, [SecretView("server", offer)]).at(NOW, {})
    ledgers = await one.adopt(model, {}, profiles, NOW)
    assert set(ledgers) == {"net"}
    problem = one.facts["other"].problem
    assert problem is not None
    assert (problem.reason, problem.transient) == ("TooLarge", False)
    assert api.writes == 1
    assert (await one.adopt(model, api.live(), profiles, NOW)) == ledgers


class Altering(Api):
    """One whose admission policy changes each ledger to another value."""

    def _put(self, manifest: dict[str, Any]) -> dict[str, Any]:
        manifest["data"]["ledger.json"] = base64.b64encode(f'{{"x": {self.writes}}}'.encode()).decode()
        return super()._put(manifest)


async def test_a_ledger_that_an_admission_policy_changes_is_written_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Altering()
    one = keeper(api)
    for _ in range(20):
        ledger = await look(one, ONE, api.live())
        assert ledger is not None
        assert ledger.ordinal == 1
    assert api.writes == 1
    (record,) = caplog.records
    assert "has stored Secret net-sslprofile otherwise" in record.getMessage()
    for _ in range(20):
        ledger = await look(one, TWO, api.live())
        assert ledger is not None
        assert ledger.ordinal == 2
    assert api.writes == 2


@pytest.mark.parametrize("act", ["spoil", "delete", "disown"])
async def test_a_ledger_that_somebody_changes_again_and_again_is_written_with_pauses(act: str) -> None:
    api, now = Api(), 1000.0
    stub: Any = api
    one = Keeper("net", stub, lambda: now)
    before, theirs = await look(one, ONE, api.live()), 0
    for _ in range(20):
        if act == "delete":
            api.objects.clear()
        elif act == "spoil":
            spoilt(api, {"ledger.json": "e30="})
        else:
            found = api.objects[LEDGER[1]]
            found["metadata"]["ownerReferences"] = []
            api._put(found)
        theirs += act != "delete"
        now += 1
        assert await look(one, ONE, api.live()) == before, "it stays in service"
    assert api.writes - theirs == 1 + MOST_CHANGES
    problem = one.facts["net"].problem
    assert problem is not None
    assert (problem.reason, problem.transient) == ("ContestedObject", False)
    now += MAX_PAUSE_SECONDS + 1
    assert await look(one, ONE, api.live()) == before
    assert api.writes - theirs == 2 + MOST_CHANGES
    assert one.facts["net"].problem is None
