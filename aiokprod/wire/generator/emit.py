"""Emission of typed Python for one API: its request, its response, and their structs."""

from __future__ import annotations

import re

from aiokprod.wire.generator.definitions import LAST, Field, Message, StructDefinition, Versions

PRIMITIVES = {
    "bool": ("bool", "boolean", "False"),
    "int8": ("int", "int8", "0"),
    "int16": ("int", "int16", "0"),
    "uint16": ("int", "uint16", "0"),
    "int32": ("int", "int32", "0"),
    "uint32": ("int", "uint32", "0"),
    "int64": ("int", "int64", "0"),
    "float64": ("float", "float64", "0.0"),
    "uuid": ("bytes", "uuid", "ZERO_UUID"),
    "string": ("str", "string", '""'),
    "bytes": ("bytes", "bytes_", 'b""'),
    "records": ("bytes", "bytes_", 'b""'),
}
DECORATOR = "@dataclass(slots=True, init=False, repr=False, eq=False)"
RESERVED = {"from", "global", "class", "import", "in", "is", "lambda"}


def snake(name: str) -> str:
    """Convert a name: ErrorCode -> error_code, ISRNodes -> isr_nodes."""
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text).lower()
    return f"{text}_" if text in RESERVED else text


class Emitter:
    """A writer of the structs of one message."""

    def __init__(self, message: Message, renamed: dict[str, str]) -> None:
        self.message = message
        self.renamed = renamed

    def type_of(self, field: Field) -> str:
        base = self.renamed.get(field.kind, field.kind) if field.struct else PRIMITIVES[field.kind][0]
        kind = f"list[{base}]" if field.is_array else base
        return f"{kind} | None" if self.is_optional(field) else kind

    def is_optional(self, field: Field) -> bool:
        return not field.nullable.within(field.versions).is_empty or field.kind == "records" or field.default == "null"

    def default_of(self, field: Field) -> str:
        """Return the default of the argument; `()` stands for a new list, or a new struct."""
        if field.default == "null" or (field.kind == "records" and field.default is None):
            return "None"
        if field.is_array or field.struct:
            return "()"
        if field.default is None or field.default == "":
            return PRIMITIVES[field.kind][2]
        if field.kind == "bool":
            return "True" if str(field.default).lower() == "true" else "False"
        if field.kind == "string":
            return f'"{field.default}"'
        if field.kind == "float64":
            return repr(float(field.default))
        return str(int(str(field.default), 0))

    def init_method(self, struct: StructDefinition) -> list[str]:
        """Return `__init__`, written out: `dataclass` would compile it at every import."""
        if not struct.fields:
            return []
        arguments: list[str] = []
        body: list[str] = []
        for item in struct.fields:
            name, kind, default, value = snake(item.name), self.type_of(item), self.default_of(item), snake(item.name)
            if default == "()":
                optional = " | None" if self.is_optional(item) else ""
                kind = f"{kind.removesuffix(' | None')} | tuple[()]{optional}"
                new = "[]" if item.is_array else f"{self.renamed.get(item.kind, item.kind)}()"
                value = f"{new} if isinstance({name}, tuple) else {name}"
            arguments.append(f"{name}: {kind} = {default}")
            body.append(f"        self.{name} = {value}")
        return [f"    def __init__(self, {', '.join(arguments)}) -> None:", *body]

    def differs_from_default(self, field: Field) -> str:
        """Return an expression that is true if the field has another value than its default."""
        name = f"self.{snake(field.name)}"
        if field.default == "null" or (field.kind == "records" and field.default is None):
            return f"{name} is not None"
        if field.is_array:
            return name if not self.is_optional(field) else f"{name} is None or {name}"
        if field.struct:
            return f"{name} != {self.renamed.get(field.kind, field.kind)}()"
        if field.kind == "bool":
            return f"not {name}" if self.default_of(field) == "True" else name
        return f"{name} != {self.default_of(field)}"

    def condition(self, versions: Versions, outer: Versions) -> str | None:
        """Return an expression that is true in the versions that have a field; None if all versions have it."""
        wide = versions.within(outer)
        if wide.covers(outer):
            return None
        if wide.last >= outer.last:
            return f"version >= {wide.first}"
        if wide.first <= outer.first:
            return f"version <= {wide.last}"
        return f"{wide.first} <= version <= {wide.last}" if wide.first != wide.last else f"version == {wide.first}"

    @property
    def has_flexible(self) -> bool:
        return not self.message.flexible.within(self.message.valid).is_empty

    def nullable_condition(self, field: Field) -> str | None:
        """Return an expression that is true where the field may be null; None: in all its versions; "never": in none."""
        outer = field.versions.within(self.message.valid)
        nullable = field.nullable.within(outer)
        if field.kind == "records":
            return None
        if nullable.is_empty:
            return "never"
        return self.condition(nullable, outer)

    # ------------------------------------------------------------------ reading
    def read(self, field: Field, reader: str) -> str:
        flexible = "flexible"
        null = self.nullable_condition(field)
        if field.is_array:
            element = (
                f"{self.renamed.get(field.kind, field.kind)}.read({reader}, version)"
                if field.struct
                else self.read_primitive(field.kind, reader, nullable=False)
            )
            if null == "never":
                return f"[{element} for _ in range({reader}.count({flexible}))]"
            refuse = "" if null is None else f" if {null} else {reader}.count({flexible})"
            return (
                f"None if (count := {reader}.nullable_count({flexible}){refuse}) < 0 "
                f"else [{element} for _ in range(count)]"
            )
        if field.struct:
            name = self.renamed.get(field.kind, field.kind)
            if null == "never":
                return f"{name}.read({reader}, version)"
            return f"None if {reader}.int8() < 0 else {name}.read({reader}, version)"
        if field.kind in ("string", "bytes", "records"):
            if null == "never":
                return self.read_primitive(field.kind, reader, nullable=False)
            nullable = self.read_primitive(field.kind, reader, nullable=True)
            if null is None:
                return nullable
            return f"{nullable} if {null} else {self.read_primitive(field.kind, reader, nullable=False)}"
        return self.read_primitive(field.kind, reader, nullable=False)

    def read_primitive(self, kind: str, reader: str, *, nullable: bool) -> str:
        method = PRIMITIVES[kind][1]
        if kind in ("string", "bytes", "records"):
            method = f"nullable_{method.rstrip('_')}" if nullable else method
            return f"{reader}.{method}(flexible)"
        return f"{reader}.{method}()"

    # ------------------------------------------------------------------ writing
    def write(self, field: Field, writer: str, indent: str) -> list[str]:
        name = f"self.{snake(field.name)}"
        optional = self.is_optional(field)
        null = self.nullable_condition(field)
        lines: list[str] = []
        if optional and null is not None and field.kind != "records":
            refuse = f"{name} is None" if null == "never" else f"{name} is None and not ({null})"
            lines += [f"{indent}if {refuse}:", f'{indent}    raise cannot("null in {field.name}", version)']
        if field.is_array:
            if optional:
                lines.append(f"{indent}{writer}.nullable_count(-1 if {name} is None else len({name}), flexible)")
                source = f"{name} or ()"
            else:
                lines.append(f"{indent}{writer}.count(len({name}), flexible)")
                source = name
            each = f"one_of_{snake(field.name)}"  # a name per field: the function may have loops over other types
            lines.append(f"{indent}for {each} in {source}:")
            if field.struct:
                lines.append(f"{indent}    {each}.write({writer}, version)")
            else:
                lines.append(f"{indent}    {self.write_primitive(field.kind, writer, each, nullable=False)}")
            return lines
        if field.struct:
            if optional:
                lines += [
                    f"{indent}if {name} is None:",
                    f"{indent}    {writer}.int8(-1)",
                    f"{indent}else:",
                    f"{indent}    {writer}.int8(1)",
                    f"{indent}    {name}.write({writer}, version)",
                ]
            else:
                lines.append(f"{indent}{name}.write({writer}, version)")
            return lines
        lines.append(f"{indent}{self.write_primitive(field.kind, writer, name, nullable=optional)}")
        return lines

    def write_primitive(self, kind: str, writer: str, value: str, *, nullable: bool) -> str:
        method = PRIMITIVES[kind][1]
        if kind in ("string", "bytes", "records"):
            method = f"nullable_{method.rstrip('_')}" if nullable else method
            return f"{writer}.{method}({value}, flexible)"
        return f"{writer}.{method}({value})"

    # ------------------------------------------------------------------ a struct
    def struct(self, struct: StructDefinition) -> list[str]:
        message = self.message
        is_message = struct.name == message.name
        name = self.renamed.get(struct.name, struct.name)
        lines = [DECORATOR, f"class {name}(Value):", f'    """{self.title(struct)}"""', ""]
        if is_message:
            flexible = message.flexible.first if self.has_flexible else LAST
            lines += [
                f"    API_KEY: ClassVar[int] = {message.api_key}",
                f"    MIN_VERSION: ClassVar[int] = {message.valid.first}",
                f"    MAX_VERSION: ClassVar[int] = {message.valid.last}",
                f"    FLEXIBLE_FROM: ClassVar[int] = {flexible}",
                "",
            ]
        for item in struct.fields:
            lines.append(f"    {snake(item.name)}: {self.type_of(item)}")
        lines += ["", *self.init_method(struct), "", *self.write_method(struct), "", *self.read_method(struct, name)]
        if is_message:
            lines += [
                "",
                "    def encode(self, version: int) -> bytes:",
                '        """Encode the body of the message in this version."""',
                "        writer = Writer()",
                "        self.write(writer, version)",
                "        return bytes(writer.out)",
                "",
                "    @classmethod",
                "    def decode(cls, data: bytes | memoryview, version: int) -> Self:",
                '        """Read a body; raises ProtocolError for anything but a whole valid one."""',
                "        reader = Reader(data)",
                "        message = cls.read(reader, version)",
                "        reader.finish()",
                "        return message",
            ]
        return lines

    def title(self, struct: StructDefinition) -> str:
        if struct.name == self.message.name:
            return f"{struct.name}, versions {self.message.valid.first} to {self.message.valid.last}."
        return f"{struct.name} of {self.message.name}."

    def flexible_line(self) -> str:
        if not self.has_flexible:
            return "        flexible = False"
        condition = self.condition(self.message.flexible, self.message.valid)
        return f"        flexible = {condition or 'True'}"

    def write_method(self, struct: StructDefinition) -> list[str]:
        body: list[str] = []
        for item in struct.fields:
            if not item.tagged.is_empty and item.tagged.covers(item.versions.within(self.message.valid)):
                continue
            condition = self.condition(item.versions, self.message.valid)
            if condition is None:
                body += self.write(item, "writer", "        ")
                continue
            body.append(f"        if {condition}:")
            body += self.write(item, "writer", "            ")
            if not item.ignorable:
                body += [
                    f"        elif {self.differs_from_default(item)}:",
                    f'            raise cannot("{item.name}", version)',
                ]
        if self.has_flexible:
            body.append("        if flexible:")
            tagged = [item for item in struct.fields if not item.tagged.is_empty]
            if not tagged:
                body.append("            writer.out.append(0)")
            else:
                body.append("            tags: list[tuple[int, Writer]] = []")
                for item in sorted(tagged, key=lambda item: item.tag):
                    condition = self.condition(item.tagged, self.message.valid)
                    prefix = f"({condition}) and " if condition else ""
                    test = self.differs_from_default(item)
                    body.append(f"            if {prefix}({test}):")
                    body.append("                content = Writer()")
                    body += self.write(item, "content", "                ")
                    body.append(f"                tags.append(({item.tag}, content))")
                body.append("            writer.unsigned_varint(len(tags))")
                body.append("            for tag, content in tags:")
                body.append("                writer.field(tag, content)")
        lines = ["    def write(self, writer: Writer, version: int) -> None:"]
        if any("flexible" in line for line in body):
            lines.append(self.flexible_line())
        return lines + (body or ["        return None"])

    def read_method(self, struct: StructDefinition, name: str) -> list[str]:
        body = ["        it = cls()"]
        for item in struct.fields:
            if not item.tagged.is_empty and item.tagged.covers(item.versions.within(self.message.valid)):
                continue
            condition = self.condition(item.versions, self.message.valid)
            indent = "        " if condition is None else "            "
            if condition is not None:
                body.append(f"        if {condition}:")
            body.append(f"{indent}it.{snake(item.name)} = {self.read(item, 'reader')}")
        if self.has_flexible:
            body.append("        if flexible:")
            tagged = [item for item in struct.fields if not item.tagged.is_empty]
            if not tagged:
                body.append("            reader.skip_tags()")
            else:
                body += [
                    "            for _ in range(reader.tag_count()):",
                    "                tag = reader.unsigned_varint()",
                    "                content = reader.field(reader.unsigned_varint())",
                ]
                word = "if"
                for item in sorted(tagged, key=lambda item: item.tag):
                    condition = self.condition(item.tagged, self.message.valid)
                    suffix = f" and {condition}" if condition else ""
                    body += [
                        f"                {word} tag == {item.tag}{suffix}:",
                        f"                    it.{snake(item.name)} = {self.read(item, 'content')}",
                        "                    content.finish()",
                    ]
                    word = "elif"
        body.append("        return it")
        lines = ["    @classmethod", "    def read(cls, reader: Reader, version: int) -> Self:"]
        if any("flexible" in line for line in body):
            lines.append(self.flexible_line())
        return lines + body


def module(messages: list[Message], kafka_version: str) -> str:
    """Return the text of one module: a request, a response, and their structs."""
    seen: set[str] = set()
    parts: list[str] = []
    for message in messages:
        renamed = {s.name: f"{message.name}{s.name}" for s in message.structs if s.name in seen}
        seen |= {renamed.get(s.name, s.name) for s in message.structs}
        emitter = Emitter(message, renamed)
        for struct in message.structs:
            parts.append("\n".join(emitter.struct(struct)))
    body = "\n\n\n".join(parts)
    reader = "Reader, ZERO_UUID" if "ZERO_UUID" in body else "Reader"
    writer = "Writer, cannot" if "cannot(" in body else "Writer"
    title = " and ".join(message.name for message in messages)
    return (
        f'"""{title}. Generated by `nox -s wire` from the definitions of Apache Kafka {kafka_version}: do not edit."""\n\n'
        "from __future__ import annotations\n\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar, Self\n\n"
        "from aiokprod.values import Value\n"
        f"from aiokprod.wire.reader import {reader}\n"
        f"from aiokprod.wire.writer import {writer}\n\n\n"
        f"{body}\n"
    )
