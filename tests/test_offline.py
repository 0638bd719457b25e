"""No test leaves this machine: what keeps them here."""

import socket
import urllib.request

import pytest

from tests.conftest import LEAVING


@pytest.mark.parametrize(
    "leave",
    [
        lambda: socket.create_connection(("192.0.2.1", 80)),
        lambda: socket.getaddrinfo("example.org", 80),
        lambda: socket.gethostbyname("example.org"),
        lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("192.0.2.1", 80)),
        lambda: urllib.request.build_opener(urllib.request.ProxyHandler({})).open("http://192.0.2.1/"),
    ],
)
@pytest.mark.filterwarnings("ignore:unclosed <socket")
def test_a_test_that_wants_to_leave_is_refused(leave):
    with pytest.raises(AssertionError, match="beyond this machine"):
        leave()
    assert LEAVING
    LEAVING.clear()


def test_a_server_of_its_own_is_reached():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
