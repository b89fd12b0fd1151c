"""`loss_check`: finds what fastavro would not write, or write as something else: fields that a schema lacks, 3.7 as an int.

Only records and what holds whole numbers are looked at, so that most fields cost nothing. What is in a union of several types
is left to fastavro, which compares it with each branch; a union with null, which makes a field optional, is looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, Final, cast

from aiokprod.integrations.schema_registry.decoding import as_dict

Check = Callable[[Any], str]
"""returns what is wrong with a value; empty if nothing is"""
LONGEST: Final = 200
"""characters of the names of a schema's fields"""
BITS: Final = {"int": 31, "long": 63}


def loss_check(schema: Any) -> Check | None:
    """Return the check of a schema; None if it has neither records nor whole numbers.

    Args:
        schema: as fastavro has parsed it.
    """
    return _check(schema, "(the whole)", {}, as_dict(schema).get("__named_schemas") or {})


def _check(schema: Any, field: str, begun: dict[str, list[Check | None]], named: Mapping[str, Any]) -> Check | None:
    if isinstance(schema, list):
        return _of_optional(schema, field, begun, named)
    kind = as_dict(schema).get("type", schema)
    if isinstance(kind, str) and kind in BITS:
        return None if as_dict(schema).get("logicalType") else _of_number(kind, field)
    if kind == "record":
        return _of_record(schema, begun, named)
    if isinstance(kind, str) and kind in named:
        return _of_record(named[kind], begun, named) if as_dict(named[kind]).get("type") == "record" else None
    if kind == "array":
        items = _check(schema["items"], field, begun, named)
        return None if items is None else lambda found: _first(items, found if isinstance(found, list | tuple) else ())
    if kind == "map":
        values = _check(schema["values"], field, begun, named)
        return (
            None
            if values is None
            else lambda found: _first(values, found.values() if isinstance(found, Mapping) else ())
        )
    return None


def _of_optional(
    union: Any, field: str, begun: dict[str, list[Check | None]], named: Mapping[str, Any]
) -> Check | None:
    """Return the check of a union with null. Of a number none: fastavro refuses one that is not of its type."""
    branches = [each for each in union if each != "null"]
    kind = as_dict(branches[0]).get("type", branches[0]) if len(branches) == 1 else None
    return None if kind is None or kind in BITS else _check(branches[0], field, begun, named)


def _of_number(kind: str, field: str) -> Check:
    least, most = -(1 << BITS[kind]), (1 << BITS[kind]) - 1

    def check(found: Any) -> str:
        if type(found) is int or (type(found) is not bool and isinstance(found, Integral)):
            return (
                ""
                if least <= int(found) <= most
                else f"field {field} takes {kind}, and is beyond {BITS[kind] + 1} bits"
            )
        return "" if found is None else f"field {field} takes {kind}, and is {type(found).__name__}"

    return check


def _of_record(schema: Any, begun: dict[str, list[Check | None]], named: Mapping[str, Any]) -> Check | None:
    name = str(schema["name"])
    if name in begun:  # it has itself in it
        later = begun[name]
        return lambda found: "" if later[0] is None else later[0](found)
    begun[name] = [None]
    made = [(each["name"], _check(each["type"], f"{name}.{each['name']}", begun, named)) for each in schema["fields"]]
    checks = [(field, check) for field, check in made if check is not None]
    fields = {each["name"] for each in schema["fields"]} | {"-type"}  # fastavro's hint which branch of a union it is

    def check_record(found: Any) -> str:
        if isinstance(found, Mapping):
            keys = cast("Mapping[str, Any]", found).keys()
            if not keys <= fields:
                return _too_many(name, schema, len(keys - fields))
            for field, check in checks:
                value: Any = cast(Any, found).get(field)
                if value is not None:
                    why = check(value)
                    if why:
                        return why
        return ""

    begun[name][0] = check_record
    return check_record


def _too_many(name: str, schema: Any, count: int) -> str:
    """Return the text of fields that a schema lacks. Their names are contents of the record, so the schema's are told."""
    known = ", ".join(str(each["name"]) for each in schema["fields"])
    which = f"{count} fields that the schema lacks" if count > 1 else "a field that the schema lacks"
    return f"the record {name} has {which}: it has {known if len(known) <= LONGEST else known[:LONGEST] + '...'}"


def _first(check: Check, found: Any) -> str:
    return next((why for why in map(check, found) if why), "")
