"""The pool's order and limits, and the rules of proxies by table."""

from __future__ import annotations

import pytest

from agentstate.ground.errors import SettingError
from agentstate.wire.message import Origin
from agentstate.wire.pool import Pool, Proxies, Proxy, read_proxies

HERE = Origin("http", "here.test", 80)
THERE = Origin("https", "there.test", 443)


def test_the_last_one_given_is_the_first_one_taken() -> None:
    pool: Pool[str] = Pool(3)
    for name in ("a", "b", "c"):
        assert pool.give(HERE, name, 10.0) is None
    assert [pool.take(HERE, 0.0)[0] for _ in range(4)] == ["c", "b", "a", None]


def test_origins_do_not_share_connections() -> None:
    pool: Pool[str] = Pool(3)
    pool.give(HERE, "a", 10.0)
    assert pool.take(THERE, 0.0) == (None, ())
    assert pool.idle_count(HERE) == 1


def test_over_the_maximum_the_oldest_is_handed_out_to_be_closed() -> None:
    pool: Pool[str] = Pool(2)
    pool.give(HERE, "a", 10.0)
    pool.give(HERE, "b", 10.0)
    assert pool.give(HERE, "c", 10.0) == "a"
    assert pool.idle_count(HERE) == 2


def test_a_maximum_of_none_keeps_none() -> None:
    pool: Pool[str] = Pool(0)
    assert pool.give(HERE, "a", 10.0) == "a"
    assert pool.idle_count(HERE) == 0


def test_expired_ones_are_handed_out_and_never_taken() -> None:
    pool: Pool[str] = Pool(4)
    pool.give(HERE, "early", 10.0)
    pool.give(HERE, "late", 20.0)
    pool.give(HERE, "soon", 5.0)
    assert pool.take(HERE, 10.0) == ("late", ["soon"])
    assert pool.take(HERE, 10.0) == (None, ["early"])


def test_expire_takes_out_what_is_due_and_says_when_to_look_again() -> None:
    pool: Pool[str] = Pool(4)
    assert pool.next_expiry_s() is None
    pool.give(HERE, "a", 10.0)
    pool.give(THERE, "b", 20.0)
    assert pool.next_expiry_s() == 10.0
    assert pool.expire(9.9) == []
    assert pool.expire(10.0) == ["a"]
    assert pool.next_expiry_s() == 20.0


def test_one_that_ended_is_forgotten() -> None:
    pool: Pool[str] = Pool(4)
    pool.give(HERE, "a", 10.0)
    assert pool.drop(HERE, "a")
    assert not pool.drop(HERE, "a")
    assert not pool.drop(THERE, "a")
    assert pool.take(HERE, 0.0) == (None, ())


# no_proxy entry, host, port, is the proxy left out?  Suffixes, dots and `*` as in curl.
NO_PROXY_TABLE = [
    ("example.com", "example.com", 443, True),
    ("example.com", "api.example.com", 443, True),
    ("example.com", "EXAMPLE.com.", 443, True),
    ("example.com", "notexample.com", 443, False),
    ("example.com", "example.com.evil.test", 443, False),
    (".example.com", "example.com", 443, True),
    (".example.com", "api.example.com", 443, True),
    ("*.example.com", "api.example.com", 443, True),
    ("example.com.", "example.com", 443, True),
    ("EXAMPLE.COM", "example.com", 443, True),
    ("*", "example.com", 443, True),
    ("*", "203.0.113.7", 443, True),
    ("*:8443", "example.com", 443, False),
    ("example.com:8443", "example.com", 8443, True),
    ("example.com:8443", "example.com", 443, False),
    ("203.0.113.7", "203.0.113.7", 80, True),
    ("203.0.113.7:8080", "203.0.113.7", 8080, True),
    ("203.0.113.7:8080", "203.0.113.7", 80, False),
    ("113.7", "203.0.113.7", 80, False),
    ("203.0.113.0/24", "203.0.113.7", 80, True),
    ("203.0.113.0/24", "203.0.114.7", 80, False),
    ("203.0.113.0/24", "2001:db8::1", 80, False),
    ("2001:db8::1", "2001:db8::1", 80, True),
    ("2001:DB8:0::1", "2001:db8::1", 80, True),
    ("[2001:db8::1]", "2001:db8::1", 80, True),
    ("[2001:db8::1]:8080", "2001:db8::1", 8080, True),
    ("[2001:db8::1]:8080", "2001:db8::1", 80, False),
    ("2001:db8::/32", "2001:db8::1", 80, True),
    (".", "example.com", 443, False),
    ("", "example.com", 443, False),
]


@pytest.mark.parametrize(("entry", "host", "port", "is_exempt"), NO_PROXY_TABLE)
def test_no_proxy_leaves_out(entry: str, host: str, port: int, is_exempt: bool) -> None:
    proxy = Proxy(Origin("http", "proxy.test", 3128))
    proxies = Proxies(http=proxy, https=proxy, no_proxy=("other.test", entry))
    assert proxies.find(Origin("https", host, port)) == (None if is_exempt else proxy)


@pytest.mark.parametrize("host", ["localhost", "app.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_is_not_proxied_unless_told(host: str) -> None:
    proxy = Proxy(Origin("http", "proxy.test", 3128))
    origin = Origin("http", host, 11434)
    assert Proxies(http=proxy).find(origin) is None
    assert Proxies(http=proxy, proxies_loopback=True).find(origin) == proxy


def test_each_scheme_has_its_own_proxy() -> None:
    proxy = Proxy(Origin("http", "proxy.test", 3128))
    proxies = Proxies(https=proxy)
    assert proxies.find(THERE) == proxy
    assert proxies.find(HERE) is None


@pytest.mark.parametrize(
    ("environ", "http", "https"),
    [
        ({}, None, None),
        ({"HTTP_PROXY": "http://a.test:1"}, ("http", "a.test", 1), None),
        ({"HTTPS_PROXY": "http://a.test:1"}, None, ("http", "a.test", 1)),
        (
            {"http_proxy": "http://small.test:1", "HTTP_PROXY": "http://big.test:1"},
            ("http", "small.test", 1),
            None,
        ),
        ({"https_proxy": "", "HTTPS_PROXY": "http://big.test:1"}, None, None),
        ({"ALL_PROXY": "a.test:3128"}, ("http", "a.test", 3128), ("http", "a.test", 3128)),
        (
            {"all_proxy": "http://a.test", "https_proxy": "https://b.test"},
            ("http", "a.test", 80),
            ("https", "b.test", 443),
        ),
        ({"HTTP_PROXY": "http://evil.test", "REQUEST_METHOD": "GET"}, None, None),
        (
            {"http_proxy": "http://a.test:1", "REQUEST_METHOD": "GET"},
            ("http", "a.test", 1),
            None,
        ),
        ({"HTTP_PROXY": " http://[2001:db8::1]:3128/ "}, ("http", "2001:db8::1", 3128), None),
    ],
)
def test_the_environment_is_read_as_curl_reads_it(
    environ: dict[str, str],
    http: tuple[str, str, int] | None,
    https: tuple[str, str, int] | None,
) -> None:
    assert read_proxies(environ) == Proxies(
        http=Proxy(Origin(*http)) if http else None,
        https=Proxy(Origin(*https)) if https else None,
    )


def test_no_proxy_is_split_at_commas_and_spaces() -> None:
    assert read_proxies({"NO_PROXY": "a.test, .b.test  c.test,"}).no_proxy == (
        "a.test",
        ".b.test",
        "c.test",
    )


def test_the_user_of_a_proxy_becomes_basic_credentials_that_no_repr_shows() -> None:
    proxies = read_proxies({"https_proxy": "http://user:p%40ss@proxy.test:3128"})
    assert proxies.https is not None
    assert proxies.https.authorization == b"Basic dXNlcjpwQHNz"
    assert "dXNl" not in repr(proxies)
    assert "ss" not in repr(proxies.https.origin)


@pytest.mark.parametrize("url", ["socks5://a.test:1080", "http://", "http://a.test:none"])
def test_a_proxy_that_cannot_be_spoken_to_is_a_setting_error(url: str) -> None:
    with pytest.raises(SettingError, match="HTTPS_PROXY"):
        read_proxies({"HTTPS_PROXY": url})
