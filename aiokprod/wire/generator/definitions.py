"""Kafka's message definitions as values: JSON with comments, from the published kafka-clients jar."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAST = 32767


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included; empty when last < first."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def within(self, other: Versions) -> Versions:
        return Versions(max(self.first, other.first), min(self.last, other.last))

    @property
    def is_empty(self) -> bool:
        return self.last < self.first

    def covers(self, other: Versions) -> bool:
        return self.first <= other.first and other.last <= self.last


@dataclass(slots=True)
class Field:
    """One field of a struct."""

    name: str
    kind: str  # a primitive, or the name of a struct
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    ignorable: bool
    default: Any
    about: str
    struct: str | None = None


@dataclass(slots=True)
class StructDefinition:
    """A struct and its fields."""

    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list[Field])


@dataclass(slots=True)
class Message:
    """A request or a response."""

    name: str
    api_key: int
    valid: Versions
    flexible: Versions
    structs: list[StructDefinition]  # a struct comes before those that use it; the message itself is the last


def load(jar: Path, name: str) -> Message:
    """Read one definition from the jar."""
    with zipfile.ZipFile(jar) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    data = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    valid = Versions.parse(data["validVersions"])
    structs: list[StructDefinition] = []
    common = {item["name"]: item for item in data.get("commonStructs", [])}
    done: set[str] = set()

    def build(struct_name: str, fields: list[dict[str, Any]], versions: Versions) -> None:
        if struct_name in done:
            return
        done.add(struct_name)
        struct = StructDefinition(struct_name, versions)
        for item in fields:
            kind = item["type"]
            is_array = kind.startswith("[]")
            kind = kind.removeprefix("[]")
            own = Versions.parse(item.get("versions", "0+")).within(versions)
            if own.is_empty:
                continue
            is_struct = kind[0].isupper()
            if is_struct:
                if (
                    kind in common
                ):  # shared by several fields: it has its own versions, not those of the first field that uses it
                    build(kind, common[kind]["fields"], Versions.parse(common[kind]["versions"]).within(valid))
                else:
                    build(kind, item["fields"], own)
            struct.fields.append(
                Field(
                    name=item["name"],
                    kind=kind,
                    is_array=is_array,
                    versions=own,
                    nullable=Versions.parse(item.get("nullableVersions")).within(valid),
                    tagged=Versions.parse(item.get("taggedVersions")).within(valid),
                    tag=item.get("tag", -1),
                    ignorable=bool(item.get("ignorable", False)),
                    default=item.get("default"),
                    about=" ".join(item.get("about", "").split()),
                    struct=kind if is_struct else None,
                )
            )
        structs.append(struct)

    build(data["name"], data["fields"], valid)
    return Message(data["name"], data["apiKey"], valid, Versions.parse(data.get("flexibleVersions")), structs)
