"""Who may talk to the studio, and how much they may say."""

import json

import pytest

from support.studio import TOKEN, client

ADDRESSES = ("models", "health", "open", "draw", "read", "write", "picture")


def refused(answer, status, word):
    assert answer.status_code == status, answer.text
    line = answer.json()["error"]
    assert word in line
    assert "\n" not in line
    return line


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "é", "\x00", TOKEN.upper()])
def test_nothing_is_answered_without_the_token(address, token, studio):
    method = "GET" if address in ("models", "health") else "POST"
    headers = {"X-USD3-Token": token.encode()}
    refused(client(studio).request(method, f"/api/{address}", headers=headers, content=b"{}"), 403, "token")


def test_the_page_needs_the_token_in_its_link_and_its_files_need_none(studio):
    without = client(studio, **{"X-USD3-Token": ""})
    for link in ("/", "/?token=", "/?token=wrong", f"/?x={TOKEN}", f"/?token={TOKEN}x"):
        answer = without.get(link)
        assert answer.status_code == 403
        assert answer.text.count("\n") == 1
    page = without.get(f"/?token={TOKEN}")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert TOKEN not in page.text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8421", "127.0.0.1.evil.example", "0.0.0.0", "localhost@evil.example", ""]
)
def test_other_names_of_this_computer_are_refused(host, studio):
    refused(client(studio, Host=host).get("/api/health"), 403, "127.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1:8421", "localhost:9000", "localhost", "[::1]:8421", "LOCALHOST:1"])
def test_any_port_of_this_computer_is_answered_so_that_tunnels_work(host, studio):
    assert client(studio, Host=host).get("/api/health").status_code == 200
    assert client(studio, Host=host, Origin=f"http://{host}").get("/api/health").status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://127.0.0.1:8421",
        "http://127.0.0.1:8422",
        "http://evil.example",
        "null",
        "",
        "http://127.0.0.1:8421.evil",
    ],
)
def test_other_pages_are_refused(origin, studio):
    refused(client(studio, Host="127.0.0.1:8421", Origin=origin).get("/api/health"), 403, "its own page")


def test_what_a_browser_says_about_other_sites_counts(studio):
    for site, status in (("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)):
        assert client(studio, **{"Sec-Fetch-Site": site}).get("/api/health").status_code == status
        assert client(studio, **{"Sec-Fetch-Site": site}).get(f"/?token={TOKEN}").status_code == 200


@pytest.mark.parametrize("address", ["/", f"/?token={TOKEN}", "/api/health", "/api/nothing", "/page/nothing.js", "/x"])
def test_every_answer_forbids_what_the_page_does_not_need(address, studio):
    headers = client(studio).get(address).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path", ["/page/../app.py", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/page/..%5capp.py"]
)
def test_no_file_but_those_of_the_page_is_served(path, studio):
    assert client(studio).get(path).status_code == 404


def test_unknown_addresses_and_methods_are_one_line(browser):
    refused(browser.get("/api/nothing"), 404, "/api/nothing")
    refused(browser.get("/api/draw"), 404, "GET")
    refused(browser.delete("/api/models"), 404, "DELETE")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "object"),
        (b"null", "object"),
        (b'"model"', "object"),
        (b"\xff\xfe", "JSON"),
        (b'{"model": NaN}', "JSON"),
        (b'{"model": -Infinity}', "JSON"),
        (b'{"model": 1e999}', "JSON"),
        (b'{"model": ' + b"9" * 5000 + b"}", "JSON"),
        (b'{"model": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "JSON"),
        (b'{"model": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", "JSON"),
        (b"{}", "model is missing"),
        (b'{"model": "array", "more": 1}', "more"),
        (b'{"model": 3}', "model"),
        (b'{"model": ""}', "model"),
        (b'{"model": null}', "model"),
        (b'{"model": "' + b"a" * 600 + b'"}', "model"),
    ],
)
def test_bad_bodies_get_one_clear_line(body, word, browser):
    for address in ("open", "draw"):
        answer = browser.post(f"/api/{address}", content=body)
        assert answer.status_code == 400
        if address == "open":
            refused(answer, 400, word)


def test_a_body_that_is_too_large_is_refused_before_it_is_read(browser):
    size = {"Content-Length": str(10**12)}
    refused(browser.post("/api/draw", headers=size, content=iter([b"x"])), 413, "4 MiB")
    sent = []

    def endless():
        while len(sent) < 10_000:
            sent.append(None)
            yield b"x" * 2**16

    refused(browser.post("/api/read?model=a&name=b.mid", content=endless()), 413, "4 MiB")
    refused(browser.post("/api/open", content=json.dumps({"model": "x" * 2**22})), 413, "4 MiB")


def test_a_tab_says_who_it_is_in_a_few_letters(browser):
    for page in ("a b", "x" * 65, "<script>", ""):
        refused(browser.post("/api/draw", headers={"X-USD3-Page": page}, content=b"{}"), 400, "X-USD3-Page")
