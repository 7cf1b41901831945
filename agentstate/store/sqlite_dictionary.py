"""What prompts and answers are made of: the dictionary they are packed with.

A thousand common words of English and of code (`data/words.txt`), then header names and the frames
around the text in the forms of the large vendors; the most common last, where zlib finds them
cheapest. It halves a short answer and takes a tenth off a long one.

It is part of the file format. A better one must be a second one, told apart by the checksum of its
dictionary that a zlib stream carries (RFC 1950, section 2.2, DICTID); a test holds this one as is.
"""

from __future__ import annotations

from functools import cache

from agentstate.ground.resources import read_data


@cache
def packing_dictionary() -> bytes:
    """Return the dictionary; the first call reads a packaged file."""
    words = b" ".join(read_data("words.txt").split())
    return words + b" " + _FRAMES


_FRAMES = b"".join(
    (
        b'["alt-svc","h3=\\":443\\"; ma=86400"],["cf-cache-status","DYNAMIC"],',
        b'["cf-ray","-"],["server","cloudflare"],',
        b'["strict-transport-security","max-age=31536000; includeSubDomains; preload"],',
        b'["via","1.1 google"],["x-content-type-options","nosniff"],',
        b'["x-robots-tag","none"],["anthropic-organization-id","-"],',
        b'["anthropic-ratelimit-input-tokens-limit","000"],',
        b'["anthropic-ratelimit-output-tokens-remaining","000"],',
        b'["anthropic-ratelimit-requests-reset","2026-01-01T00:00:00Z"],',
        b'["anthropic-ratelimit-tokens-limit","000"],["request-id","req_01"],',
        b'["date","Mon, 01 Jan 2026 00:00:00 GMT"],',
        b'["content-type","text/event-stream; charset=utf-8"],',
        b'["content-type","application/json"],["openai-organization","user-"],',
        b'["openai-processing-ms","000"],["openai-project","proj_"],',
        b'["openai-version","2020-10-01"],["x-envoy-upstream-service-time","000"],',
        b'["x-ratelimit-limit-requests","10000"],["x-ratelimit-limit-tokens","200000"],',
        b'["x-ratelimit-remaining-requests","9999"],',
        b'["x-ratelimit-remaining-tokens","199999"],["x-ratelimit-reset-requests","8.64s"],',
        b'["x-ratelimit-reset-tokens","0ms"],["x-request-id","req_"]]\n',
        b'{"type":"message","id":"msg_01","role":"assistant","model":"claude-","content":',
        b'[{"type":"text","text":"","type":"tool_use","id":"toolu_01","name":"","input":',
        b'{"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":0,',
        b'"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,',
        b'"service_tier":"standard"}}event: content_block_delta\n',
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",',
        b'"text":""}}\n\n',
        b'{"id":"resp_","object":"response","created_at":17,"status":"completed","output":',
        b'[{"type":"function_call","call_id":"call_","arguments":"","id":"msg_","content":',
        b'[{"type":"output_text","annotations":[],',
        b'"text":""}data: {"id":"chatcmpl-","object":"chat.completion.chunk","created":17,',
        b'"model":"","service_tier":"default","system_fingerprint":"fp_","choices":',
        b'[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null}]}\n\n',
        b"data: [DONE]\n\n",
        b'{\n  "id": "chatcmpl-",\n  "object": "chat.completion",\n  "created": 17,\n  ',
        b'"model": "",\n  "choices": [\n    {\n      "index": 0,\n      "message": {\n     ',
        b'   "role": "assistant",\n        "content": null,\n        "tool_calls": [\n     ',
        b'     {\n            "id": "call_",\n            "type": "function",\n            ',
        b'"function": {\n              "name": "",\n              "arguments": "{\\"       ',
        b' "refusal": null,\n        "annotations": []\n      },\n      "logprobs": null,',
        b'\n      "finish_reason": "stop"\n    }\n  ],',
        b'\n  "usage": {\n    "prompt_tokens": 0,\n    "completion_tokens": 0,\n    ',
        b'"total_tokens": 0,\n    "prompt_tokens_details": {\n      "cached_tokens": 0,\n  ',
        b'    "audio_tokens": 0\n    },\n    "completion_tokens_details": {\n      ',
        b'"reasoning_tokens": 0,\n      "audio_tokens": 0,\n      ',
        b'"accepted_prediction_tokens": 0,\n      "rejected_prediction_tokens": 0\n    }\n ',
        b' },\n  "service_tier": "default",\n  "system_fingerprint": "fp_"\n}\n',
        b'{"id":"chatcmpl-","object":"chat.completion","created":17,"model":"","choices":',
        b'[{"index":0,"message":{"role":"assistant","content":"","tool_calls":[{"id":',
        b'"call_","type":"function","function":{"name":"","arguments":"{\\"","refusal":',
        b'null},"logprobs":null,"finish_reason":"tool_calls","finish_reason":"stop"}],',
        b'"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,',
        b'"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},',
        b'"completion_tokens_details":{"reasoning_tokens":0}}}',
    )
)
