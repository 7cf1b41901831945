"""The forms of answers: what the dialects' own samples hold fits them."""

from __future__ import annotations

import pytest

from agentstate.dialects import DIALECTS, dialect_by_name
from agentstate.dialects.answer_schemas import answer_schema, parts_in
from agentstate.dialects.base import calls_tools
from agentstate.ground.canonical import parse
from agentstate.steps.schema import check_value, unchecked_keywords
from tests.dialects.samples import SAMPLES

CALLING = [dialect.name for dialect in DIALECTS if calls_tools(dialect)]


@pytest.mark.parametrize("name", CALLING)
def test_each_answer_of_a_model_is_one_that_a_person_may_write(name: str) -> None:
    dialect = dialect_by_name(name)
    assert dialect is not None
    looked_at = 0
    for sample, body in SAMPLES[name].bodies.items():
        answer = dialect.read_answer(body)
        if not answer.is_complete:
            continue
        schema = answer_schema(name, [each.finish_reason or "" for each in answer.choices])
        assert schema is not None
        assert unchecked_keywords(schema) == ()
        whole = parse(body)
        check_value(whole, schema, sample)
        for place, part, form in parts_in(name, whole):
            assert unchecked_keywords(form) == ()
            check_value(part, form, f"{sample}: {place}")
        looked_at += 1
    assert looked_at > 1


def test_what_calls_no_tools_has_no_form() -> None:
    assert answer_schema("openai_embeddings") is None
