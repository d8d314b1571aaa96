"""Names of envs: `name?option=value&other=value`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redline.errors import RedlineError


def with_query(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The bare name, and the options that stand behind it together with the others, which have the last word."""
    bare, given = split_query(name)
    return bare, {**{option: parse_value(value) for option, value in given.items()}, **options}


def split_query(name: str) -> tuple[str, dict[str, str]]:
    """The bare name and the options behind it, as they are written."""
    bare, _, query = name.partition("?")
    given = {}
    for part in filter(None, query.split("&")):
        option, equals, value = part.partition("=")
        if not option or not equals:
            raise RedlineError(f"{part!r} behind {bare!r} is not an option. Write {bare}?option=value&other=value.")
        given[option.replace("-", "_")] = value
    return bare, given


def parse_value(text: str) -> Any:
    """A value as it is written behind a name: a number, true, false, null, a JSON list, or a word."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text
