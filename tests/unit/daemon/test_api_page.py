"""The page of the JSON API says what its OpenAPI document says."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from sandbox.agent.tools import TOOLS
from sandbox.daemon.api_page import describe_bounds, name_type, read_api
from sandbox.daemon.page_templates import render_text
from sandbox.daemon.tool_calls import PREFIX, describe_api


def test_each_call_is_on_the_page_with_its_arguments_and_each_shape_once() -> None:
    found = read_api(MagicMock())
    calls = [call for _, group in found["presets"] for call in group]
    assert sorted(call.path for call in calls) == sorted(f"{PREFIX}/{name}" for name in TOOLS)
    for call in calls:
        expected = TOOLS[call.path.rpartition("/")[2]]
        assert [field.name for field in call.arguments] == list(expected.input_model.model_fields)
    assert len(found["presets"]) == len({tool.preset for tool in TOOLS.values()}), "each preset is one part"
    assert [shape.name for shape in found["shapes"]] == sorted(describe_api()["components"]["schemas"])
    html = render_text("api", {**found, "page": "api"})
    assert all(f"<code>{call.path}</code>" in html for call in calls)
    assert 'href="/api" accesskey="p" aria-current="page"' in html


@pytest.mark.parametrize(
    ("schema", "words", "bounds"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 9}, "integer", "at least 1, at most 9"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Task"}, "maxItems": 5}, "list of Task",
         "at most 5 items"),
        ({"anyOf": [{"type": "string", "maxLength": 7}, {"type": "null"}]}, "string or null", "at most 7 characters"),
        ({"enum": ["a", "b"], "type": "string"}, '"a" or "b"', ""),
        ({"const": "x"}, '"x"', ""),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object with values of integer", ""),
        ({"type": "object", "additionalProperties": False}, "object", ""),
        ({}, "any", ""),
    ],
    ids=["bounds", "list", "optional", "words", "constant", "map", "object", "unknown"],
)  # fmt: skip
def test_a_type_is_named_in_words(schema: dict[str, Any], words: str, bounds: str) -> None:
    assert (name_type(schema), describe_bounds(schema)) == (words, bounds)
