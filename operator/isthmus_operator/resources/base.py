"""What every resource kind shares: the model base class, cross-field rules, metadata and conditions.

A kind is written once, as pydantic models. From them come the OpenAPI schema of its
CustomResourceDefinition (`schema.py`), its reference page (`generate.py`) and the same checks in Python
for platforms without an API server. A cross-field rule is therefore a pair: the CEL expression that the
API server evaluates and a predicate that `isthmus local` and the operator evaluate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

GROUP = "isthmus.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

PAUSED_ANNOTATION = f"{GROUP}/paused"

DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
SECRET_KEY = r"^[-._a-zA-Z0-9]+$"
NO_NUL = r"^[^\x00]*$"
"""Routers refuse configurations with NUL characters."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def checked_time(text: str) -> str:
    """`text` if it is a time as RFC 3339 has it. Raises ValueError."""
    if _TIME.fullmatch(text) is None:
        raise ValueError("not a time as RFC 3339 has it")
    datetime.fromisoformat(text.upper())
    return text


Time = Annotated[
    str, Field(max_length=40, json_schema_extra={"format": "date-time"}), AfterValidator(checked_time)
]
"""In a status. The API server checks the format as well."""

Port = Annotated[int, Field(ge=1, le=65535)]
NodePort = Annotated[int, Field(ge=30000, le=32767)]
"""The range that clusters have unless they were told another one."""
SecretName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
PEER_NAME = r"^(\*\.)?[A-Za-z0-9_][-A-Za-z0-9_.]*$"
ANY_PEER_NAME = r"^(\*|(\*\.)?[A-Za-z0-9_][-A-Za-z0-9_.]*)$"
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
Text = Annotated[str, Field(min_length=1, max_length=256, pattern=NO_NUL)]
"""An address, or a name that is not one of Kubernetes."""


@dataclass(frozen=True)
class Rule:
    """A cross-field rule of a model.

    `cel` is evaluated by the API server with `self` bound to the object; `check` is the same in Python.
    `message` names the field in the user's words. `field_path` (`.tls.secretName`) is reported by the
    API server as the place of the error. A rule about a change (`oldSelf`) has no Python counterpart.
    """

    cel: str
    message: str
    field_path: str
    check: Callable[[Any], bool] | None


class BrokenRuleError(ValueError):
    """A cross-field rule does not hold; `path` leads from the object to the field it is about."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule.message)
        self.path = tuple(part for part in rule.field_path.split(".") if part)


_LEADING = "(amqp:(//[^/]*/?)?|/)*"
"""What an address means the same with."""
_OF_ROUTERS = "[_$]"
_PHASED = "_[$]phase[.][0-9]/[^_$/]"
_FLOW_RECORDS = "((_[$]phase[.][0-9]/)?(mc/)?sfe[.]|_[$]phase[.][0-9]/amqp:)"
_COORDINATOR = "[$]coordinator[./]*$"


def _begins(text: str, pattern: str) -> bool:
    # An atomic group: Python tries all ways to match it otherwise, and there are 2^n.
    return re.match(f"(?>{_LEADING}){pattern}", text) is not None


def client_address(field: str, *, coordinator: bool = False) -> Rule:
    """The rule that a field, if given, is no address that routers use among themselves.

    `coordinator`: it may be the one to which links of transactions are routed.
    """
    value = f"self.{field}"

    def check(model: Any) -> bool:
        text = getattr(model, field)
        if text is None or (coordinator and _begins(text, _COORDINATOR)):
            return True
        of_routers = _begins(text, _OF_ROUTERS) and not _begins(text, _PHASED)
        return not of_routers and not _begins(text, _FLOW_RECORDS)

    def begins(pattern: str) -> str:
        return f"{value}.matches('^{_LEADING}{pattern}')"

    exception = f" || {begins(_COORDINATOR)}" if coordinator else ""
    return Rule(
        f"!has({value}){exception} || ((!{begins(_OF_ROUTERS)} || {begins(_PHASED)})"
        f" && !{begins(_FLOW_RECORDS)})",
        f"{field} is for routers, which use addresses that begin with _ or $, mc/sfe. or sfe.; use another address",
        f".{field}",
        check,
    )


class Model(BaseModel):
    """Base of all specification models: camelCase on the wire, immutable, strict types, rules checked.

    Unknown fields are ignored by default, as the API server prunes them; `parse(..., strict=True)` in
    `manifests.py` refuses them, since a file read from disk has had no API server to warn about a typo.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        strict=True,
        defer_build=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _obey_rules(self) -> Model:
        for rule in self.rules:
            if rule.check is not None and not rule.check(self):
                raise BrokenRuleError(rule)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, source: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        schema = handler.resolve_ref_schema(handler(source))
        if cls.rules:
            schema["x-kubernetes-validations"] = [
                {"rule": rule.cel, "message": rule.message, "fieldPath": rule.field_path}
                for rule in cls.rules
            ]
        return schema


@dataclass(frozen=True)
class ListMap:
    """Annotation of a list of named objects: `key` is unique, and server-side apply merges by it."""

    key: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return {
            **handler(schema),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [self.key],
        }

    def _check(self, items: list[Model]) -> list[Model]:
        keys = [getattr(item, self.key) for item in items]
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        if repeated:
            raise ValueError(f"{self.key} must be unique, not repeated: {', '.join(repeated)}")
        return items


class SecretKeyRef(Model):
    """One key of a Secret in the same namespace."""

    name: SecretName
    """Name of the Secret."""

    key: Annotated[str, Field(min_length=1, max_length=253, pattern=SECRET_KEY)] = "password"
    """Key in the Secret's data."""


class SecretRef(Model):
    """A Secret in the same namespace."""

    name: SecretName
    """Name of the Secret."""


class Condition(Model):
    """One observation about the resource, in the form all Kubernetes tools understand."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What is observed, for example `Ready`."""

    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""

    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    """Why, as one word for machines."""

    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, for people: which pod, neighbour or reference, and what is wrong with it."""

    last_transition_time: Time
    """When `status` last changed."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The `metadata.generation` this condition judges."""


class Metadata(BaseModel):
    """The part of `metadata` that decisions depend on."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}

    @property
    def paused(self) -> bool:
        """True while the user asks that nothing be changed for this resource."""
        return self.annotations.get(PAUSED_ANNOTATION, "").lower() in {"true", "yes", "1"}
