"""What a running server measures: a row a metric. Counted in memory since the start of the process.

Names and units follow Prometheus; what OpenTelemetry has a name for has that one, with underscores
(opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics, 2026-11). No label names a session, a
prompt or a key: labels are few, and everybody who may read the record may see them.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentstate.ground.chat import Usage
from agentstate.ground.metrics import Counter, Histogram, Metric
from agentstate.ground.records import Attempt

# Of the conventions for these three metrics.
DURATION_BOUNDS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48,
                     40.96, 81.92)  # fmt: skip
FIRST_CHUNK_BOUNDS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5,
                        5.0, 7.5, 10.0)  # fmt: skip
TOKEN_BOUNDS = tuple(4.0**power for power in range(14))
OVERHEAD_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

MICRO = 1_000_000
_TARGET = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
# What the conventions call a provider; and an operation, by dialect: all others are "chat".
_PROVIDERS = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
_OPERATIONS = {
    "openai_completions": "text_completion",
    "openai_embeddings": "embeddings",
    "gemini": "generate_content",
}


REQUESTS = Metric(
    "agentstate_requests_total",
    "Requests of agents, by what answered them (a rung of the record, or that they joined another; "
    "empty = neither) and the class of the status.",
    "counter",
    ("replay", "status"),
)
OVERHEAD = Metric(
    "agentstate_overhead_seconds",
    "Time in the proxy itself, of requests of sessions.",
    "histogram",
    ("replay",),
)
DURATION = Metric(
    "gen_ai_client_operation_duration_seconds",
    "Duration of one attempt at one target; error_type is empty where it succeeded.",
    "histogram",
    (*_TARGET, "error_type"),
)
FIRST_CHUNK = Metric(
    "gen_ai_client_operation_time_to_first_chunk_seconds",
    "Time from the request to the first content of a streamed answer.",
    "histogram",
    _TARGET,
)
TOKENS = Metric(
    "gen_ai_client_token_usage",
    "Tokens of an answer that was paid for, as the upstream counted them.",
    "histogram",
    (*_TARGET, "gen_ai_token_type"),
)
COST = Metric(
    "agentstate_cost_usd_total",
    "What answers cost at list prices, where the price is known.",
    "counter",
    ("provider", "model"),
)
SAVED = Metric("agentstate_saved_usd_total", "What replays did not cost again.", "counter")
FALLBACKS = Metric(
    "agentstate_fallbacks_total",
    "Calls that a target answered which was not the first, by who did.",
    "counter",
    ("provider",),
)
UNSAVED = Metric(
    "agentstate_unsaved_answers_total",
    "Answers that were delivered and could not be written down.",
    "counter",
)


class Meters:
    """All that is counted. One per server."""

    def __init__(self) -> None:
        self._requests = Counter(REQUESTS)
        self._overhead = Histogram(OVERHEAD, OVERHEAD_BOUNDS_S)
        self._durations = Histogram(DURATION, DURATION_BOUNDS_S)
        self._first_chunks = Histogram(FIRST_CHUNK, FIRST_CHUNK_BOUNDS_S)
        self._tokens = Histogram(TOKENS, TOKEN_BOUNDS)
        self._costs = Counter(COST)
        self._saved = Counter(SAVED)
        self._fallbacks = Counter(FALLBACKS)
        self._unsaved = Counter(UNSAVED)

    def rows(self) -> Iterator[Counter | Histogram]:
        """Yield every metric."""
        yield from vars(self).values()

    # --- what happened ------------------------------------------------------------------------

    def note_request(self, replay: str, status: int, overhead_ms: float | None) -> None:
        """Count a request of an agent. `status` 0: the client left before there was one."""
        self._requests.add(1, replay, f"{status // 100}xx" if status else "left")
        if overhead_ms is not None:
            self._overhead.observe(overhead_ms / 1000, replay)

    def note_attempt(self, dialect: str, attempt: Attempt) -> None:
        """Count an attempt that has ended."""
        took_s = max(attempt.ended_ms - attempt.started_ms, 0) / 1000
        self._durations.observe(
            took_s,
            *_place_of(dialect, attempt.provider, attempt.model),
            attempt.error_code or "",
        )

    def note_first_content(self, dialect: str, provider: str, model: str, after_ms: int) -> None:
        """Count when the content of a stream began."""
        self._first_chunks.observe(after_ms / 1000, *_place_of(dialect, provider, model))

    def note_answer(
        self,
        dialect: str,
        provider: str,
        model: str,
        usage: Usage | None,
        cost_microusd: int | None,
        *,
        fallback_index: int = 0,
    ) -> None:
        """Count an answer, and what it took as the upstream said (None = it is not known).
        `fallback_index`: the place in its chain of the target that gave it."""
        if fallback_index:
            self._fallbacks.add(1, provider)
        if usage is not None:
            place = _place_of(dialect, provider, model)
            self._tokens.observe(usage.input_tokens, *place, "input")
            self._tokens.observe(usage.output_tokens, *place, "output")
        if cost_microusd:
            self._costs.add(cost_microusd / MICRO, provider, model)

    def note_saved(self, cost_microusd: int | None) -> None:
        """Count what a replay did not cost. None = it is not known."""
        if cost_microusd:
            self._saved.add(cost_microusd / MICRO)

    def note_unsaved(self) -> None:
        """Count an answer that was delivered and not written down."""
        self._unsaved.add()


def _place_of(dialect: str, provider: str, model: str) -> tuple[str, str, str]:
    """Return operation, provider and model as the conventions call them."""
    return _OPERATIONS.get(dialect, "chat"), _PROVIDERS.get(provider, provider), model
