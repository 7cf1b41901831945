"""What is counted is what Prometheus' own parser reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from agentstate.ground import metrics
from agentstate.ground.chat import Usage
from agentstate.ground.meters import Meters
from agentstate.ground.metrics import OTHER, Counter, Gauge, Histogram, Metric, render
from agentstate.ground.records import Attempt

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=metrics.VALUE_CHARS_MAX)


def read(rows: Iterable[Counter | Histogram | Gauge]) -> dict[tuple[str, Any], float]:
    """Return every sample by its name and labels."""
    families = text_string_to_metric_families(render(rows).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def counter(*labels: str) -> Counter:
    return Counter(Metric("calls_total", "How many.", "counter", labels))


def test_a_counter_without_labels_is_there_before_it_is_counted() -> None:
    assert read([counter()]) == {("calls_total", ()): 0.0}


def test_a_counter_adds_up_by_labels() -> None:
    found = counter("way", "status")
    found.add(1, "exact", "2xx")
    found.add(0.25, "exact", "2xx")
    found.add(2, "", "5xx")

    assert read([found]) == {
        ("calls_total", (("status", "2xx"), ("way", "exact"))): 1.25,
        ("calls_total", (("status", "5xx"), ("way", ""))): 2.0,
    }


def test_buckets_hold_all_that_is_at_most_their_bound() -> None:
    found = Histogram(Metric("s", "Seconds.", "histogram", ("of",)), (0.1, 1.0))
    for value in (0.1, 0.5, 1.0, 7.0):
        found.observe(value, "x")

    assert read([found]) == {
        ("s_bucket", (("le", "0.1"), ("of", "x"))): 1,
        ("s_bucket", (("le", "1"), ("of", "x"))): 3,
        ("s_bucket", (("le", "+Inf"), ("of", "x"))): 4,
        ("s_sum", (("of", "x"),)): 8.6,
        ("s_count", (("of", "x"),)): 4,
    }


@given(st.lists(st.tuples(texts, st.floats(0, 1e9)), max_size=20), texts)
def test_any_label_and_help_is_read_as_it_is(counted: list[tuple[str, float]], help_: str) -> None:
    found = Counter(Metric("calls_total", help_, "counter", ("model",)))
    sums: dict[str, float] = {}
    for model, amount in counted:
        found.add(amount, model)
        sums[model] = sums.get(model, 0.0) + amount

    assert {labels[0][1]: value for (_, labels), value in read([found]).items()} == sums


def test_what_callers_name_cannot_fill_the_memory() -> None:
    found = counter("model")
    for number in range(metrics.SERIES_MAX + 50):
        found.add(1, f"model-{number}" + "x" * 1000)
    found.add(1, "model-0" + "x" * 1000)

    samples = read([found])
    assert len(samples) == metrics.SERIES_MAX + 1
    assert samples["calls_total", (("model", OTHER),)] == 50
    assert max(len(labels[0][1]) for _, labels in samples) == metrics.VALUE_CHARS_MAX


def test_a_key_in_the_name_of_a_model_is_no_label() -> None:
    found = counter("model")
    found.add(1, "gpt sk-" + "a1B2" * 12)

    assert read([found]) == {("calls_total", (("model", "gpt [secret:openai_key]"),)): 1}


def test_meters_say_what_happened() -> None:
    meters = Meters()
    meters.note_request("exact", 200, 0.8)
    meters.note_request("", 0, None)
    meters.note_attempt("openai_chat", Attempt("openai", "m", 1000, 3500))
    meters.note_attempt("gemini", Attempt("gemini", "g", 5, 1, error_code="timeout"))
    meters.note_first_content("openai_chat", "openai", "m", 90)
    meters.note_answer(
        "openai_embeddings", "openai", "e", Usage(70, 3), 1_500_000, fallback_index=1
    )
    meters.note_answer("openai_chat", "openai", "m", None, None)
    meters.note_saved(250_000)
    meters.note_saved(None)
    meters.note_unsaved()

    found = read(meters.rows())
    chat = (("gen_ai_operation_name", "chat"), ("gen_ai_provider_name", "openai"),
            ("gen_ai_request_model", "m"))  # fmt: skip
    assert found["agentstate_requests_total", (("replay", "exact"), ("status", "2xx"))] == 1
    assert found["agentstate_requests_total", (("replay", ""), ("status", "left"))] == 1
    assert found["agentstate_overhead_seconds_sum", (("replay", "exact"),)] == 0.0008
    name = "gen_ai_client_operation_duration_seconds_sum"
    assert found[name, (("error_type", ""), *chat)] == 2.5
    failed = [
        labels for each, labels in found if each == name and ("error_type", "timeout") in labels
    ]
    assert dict(failed[0])["gen_ai_operation_name"] == "generate_content"
    assert dict(failed[0])["gen_ai_provider_name"] == "gcp.gemini"
    assert found["gen_ai_client_operation_time_to_first_chunk_seconds_sum", chat] == 0.09
    tokens = {
        dict(labels)["gen_ai_token_type"]: value
        for (each, labels), value in found.items()
        if each == "gen_ai_client_token_usage_sum"
    }
    assert tokens == {"input": 70, "output": 3}
    assert found["agentstate_cost_usd_total", (("model", "e"), ("provider", "openai"))] == 1.5
    assert found["agentstate_saved_usd_total", ()] == 0.25
    assert found["agentstate_fallbacks_total", (("provider", "openai"),)] == 1
    assert found["agentstate_unsaved_answers_total", ()] == 1
