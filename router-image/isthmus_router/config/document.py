"""Writes the reference page of the configuration file from the schema.

`python -m isthmus_router.config.document > docs/configuration.md`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from isthmus_router.config.attributes import Attribute, Kind, Section
from isthmus_router.config.schema import SECTIONS, UNSUPPORTED_SECTIONS
from isthmus_router.config.tables.policy import VHOST, VHOST_GROUP
from isthmus_router.core.roles import Role

INTRODUCTION = """\
# Router configuration

<!-- Written by `python -m isthmus_router.config.document`; change the schema, not this page. -->

`isthmus-router -c FILE` reads the configuration format of qdrouterd and skrouterd, so an existing file
runs unchanged as long as it uses what is listed here and not marked *without effect* (`--check` warns of that).

## Two forms

The form is recognised by the content. As text, one attribute per line:

```
router {
    mode: interior
    id: east
}
listener {
    port: amqp
    saslMechanisms: ANONYMOUS
}
# comment
address {
    pattern: orders.#
    distribution: multicast
}
```

As JSON, a list of pairs; lines that start with `#` are comments:

```json
[
  ["router", {"mode": "interior", "id": "east"}],
  ["listener", {"port": "amqp", "saslMechanisms": "ANONYMOUS"}],
  ["address", {"pattern": "orders.#", "distribution": "multicast"}]
]
```

- In text, `#` starts a comment anywhere, except in the values of `pattern`, `hostname`, `sourcePattern` and
  `targetPattern`. `openProperties` and `groups` hold a JSON object, which may span lines, or `attribute: value` lines
  between braces.
- Names may be written `maxFrameSize`, `max-frame-size` or `max_frame_size`; `router.config.address` is
  `address`.
- Booleans are `true`, `yes`, `on` and their opposites; enumerations are taken by name or by index from 0.
- Secrets can be kept out of the file: `env:NAME` is an environment variable, `file:PATH` the first line of
  a file, `pass:TEXT` and `literal:TEXT` the text itself. Anything else stands for itself.
- `-` in the column *default* means that the attribute is then absent.

Every error is reported with line, section, attribute, the wrong value and what would be right; the router
does not start with a file that has one.

## Changes while running

The file, the certificate files and the files with secrets are read again when their contents change; no signal is
needed, and SIGHUP does nothing. What a change does is in the column *change*:

| change | effect |
| --- | --- |
| live | applied; connections stay |
| replace | the entity is removed and created anew; its connections are closed |
| restart | refused until the router is restarted |

[Management](management.md) (requests to `$management`, as the tools of qdrouterd and skrouterd make them) changes
the same entities. When the file changes, what is in it is in force again, and what management has made beside it stays.
It cannot change or delete a listener with `http` (status 403): without the probes Kubernetes would restart the router.
The attribute `management` of listeners and connectors says what their peers may ask; by default no client
changes anything, and a client that has not authenticated reads totals only. `managementReadOnly` refuses changes
whatever that attribute says. Routers made from resources, on Kubernetes and by `isthmus local`, have it set.

A file with errors changes nothing; the router goes on with what it has and says so in its log, in
`isthmus_router_config_errors_total` and in `/status`.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Sections\n"]
    for section in SECTIONS.values():
        parts.append("\n".join(_section(section)))
        if section is VHOST:
            parts.append("\n".join(_section(VHOST_GROUP)))
    parts.append("## Not supported\n")
    parts.append("These sections of qdrouterd and skrouterd are refused:\n")
    parts.append("| section | reason |\n| --- | --- |")
    parts[-1] += "".join(f"\n| `{name}` | {why} |" for name, why in UNSUPPORTED_SECTIONS.items()) + "\n"
    return "\n".join(parts)


def _section(section: Section) -> Iterator[str]:
    yield f"### `{section.name}`\n"
    yield section.description + (" At most once." if section.singleton else "") + "\n"
    if section.inert:
        yield f"Accepted, without effect: {section.inert}.\n"
    yield "| attribute | type | default | change | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for attribute in section.attributes:
        if not attribute.unsupported:
            cells = (f"`{attribute.name}`", _type(attribute), _default(attribute), _change(attribute))
            yield f"| {' | '.join(cells)} | {_meaning(attribute)} |"
    refused = [a for a in section.attributes if a.unsupported]
    if refused:
        yield ""
        yield "Refused unless they have their default:"
        yield ""
        yield from (f"- `{a.name}`: {a.unsupported}" for a in refused)
    yield ""


def _type(attribute: Attribute) -> str:
    if attribute.kind is Kind.ENUM:
        return "name"
    if attribute.kind is Kind.INTEGER:
        low, high = attribute.minimum, attribute.maximum
        return f"integer, {low}-{high}" if high is not None and high < 2**22 else f"integer, from {low}"
    return str(attribute.kind.value)


def _default(attribute: Attribute) -> str:
    default = attribute.default
    if attribute.required:
        return "required"
    if default is None:
        return "-"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, Role):
        return default.label
    text = ", ".join(default) if isinstance(default, tuple) else str(default)
    return text or "empty"


def _change(attribute: Attribute) -> str:
    return "" if attribute.inert else str(attribute.update.value)


def _meaning(attribute: Attribute) -> str:
    text = attribute.description
    missing = [choice for choice in attribute.choices if f"`{choice}`" not in text]
    if missing:
        text += f" One of {', '.join(f'`{choice}`' for choice in attribute.choices)}."
    if attribute.inert:
        text += f" Accepted, without effect: {attribute.inert}."
    if attribute.aliases:
        text += f" Also `{'`, `'.join(attribute.aliases)}`."
    return text


def main() -> None:
    """Prints the page."""
    sys.stdout.write(page())


if __name__ == "__main__":
    main()
