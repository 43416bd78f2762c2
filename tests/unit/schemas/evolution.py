"""What may change in a schema: only what leaves old readers and new readers able to read old and new records alike."""

from typing import Any

_ABSENT = object()


def breaks(old: Any, new: Any, where: str = "") -> list[str]:
    """Why `new` must not follow `old` (both complete, without docs); nothing: it may."""
    return _breaks(old, new, where or str(new.get("name")), {}, {})


def _breaks(
    old: Any, new: Any, where: str, old_names: dict[str, Any], new_names: dict[str, Any]
) -> list[str]:
    old = old_names.get(old, old) if isinstance(old, str) else old
    new = new_names.get(new, new) if isinstance(new, str) else new
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            why for a, b in zip(old, new, strict=True) for why in _breaks(a, b, where, old_names, new_names)
        ]
    if not isinstance(old, dict) or not isinstance(new, dict) or old["type"] != new["type"]:
        return [] if old == new else [f"{where}: the type changed from {_short(old)} to {_short(new)}"]
    if old.get("name") != new.get("name"):
        return [f"{where}: {old.get('name')} became {new.get('name')}"]
    if "name" in old:
        full = f"tocsin.{old['name']}"
        if full in old_names:
            return []
        old_names[full], new_names[full] = old, new
    match old["type"]:
        case "record":
            return _record_breaks(old, new, where, old_names, new_names)
        case "enum":
            return _enum_breaks(old["symbols"], new["symbols"], where)
        case "array":
            return _breaks(old["items"], new["items"], where, old_names, new_names)
        case _:
            return [] if old == new else [f"{where}: {_short(old)} became {_short(new)}"]


def _record_breaks(
    old: dict[str, Any], new: dict[str, Any], where: str, old_names: dict[str, Any], new_names: dict[str, Any]
) -> list[str]:
    before = {f["name"]: f for f in old["fields"]}
    after = {f["name"]: f for f in new["fields"]}
    found = [
        f"{where}.{name} is gone: what was written with it would be lost"
        for name in before.keys() - after.keys()
    ]
    found += [
        f"{where}.{name} is new and has no default: what was written without it could not be read"
        for name in after.keys() - before.keys()
        if "default" not in after[name]
    ]
    for name in [name for name in before if name in after]:
        found += _breaks(before[name]["type"], after[name]["type"], f"{where}.{name}", old_names, new_names)
        if before[name].get("default", _ABSENT) != after[name].get("default", _ABSENT):
            found.append(
                f"{where}.{name}: the default changed, and with it the meaning of records without the field"
            )
    return sorted(found)


def _enum_breaks(old: list[str], new: list[str], where: str) -> list[str]:
    # New symbols go to the end. An old reader does not meet them: they are written from a schema level on that every
    # process of the cluster knows.
    return (
        []
        if new[: len(old)] == old
        else [f"{where}: the symbols {old} must stay, in order, before any new one"]
    )


def _short(schema: Any) -> str:
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)
