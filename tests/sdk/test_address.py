"""Base URLs as people write them."""

from __future__ import annotations

import pytest

from agentstate.sdk.address import Address, parse_address


@pytest.mark.parametrize(
    ("written", "url", "place"),
    [
        ("http://localhost:8080", "http://localhost:8080", ""),
        ("http://localhost:8080/", "http://localhost:8080", ""),
        ("http://localhost:8080/v1", "http://localhost:8080", ""),
        (" http://localhost:8080/v1/ ", "http://localhost:8080", ""),
        ("http://localhost:8080/p/groq/v1", "http://localhost:8080", "/p/groq"),
        ("https://host/behind/nginx/v1", "https://host/behind/nginx", ""),
        ("https://host/x/s/a%2Fb/p/groq/v1", "https://host/x", "/s/a%2Fb/p/groq"),
        ("http://[::1]:8080/v1", "http://[::1]:8080", ""),
    ],
)
def test_a_base_url_is_understood(written: str, url: str, place: str) -> None:
    assert parse_address(written) == Address(url, place)


def test_each_client_gets_its_form() -> None:
    address = parse_address("http://h:1/p/groq/v1")

    assert address.base_url == "http://h:1/p/groq/v1"
    assert address.anthropic_base_url == "http://h:1/p/groq"


def test_a_session_in_the_url_takes_the_place_of_another() -> None:
    address = parse_address("http://h:1/s/old/p/groq/v1").with_session("ä/ö")

    assert address.base_url == "http://h:1/s/%C3%A4%2F%C3%B6/p/groq/v1"


@pytest.mark.parametrize("written", ["", "localhost:8080", "ftp://h/v1", "http://h/v1?a=b"])
def test_what_is_no_url_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="base_url must be the proxy's URL, such as http://local"):
        parse_address(written)
