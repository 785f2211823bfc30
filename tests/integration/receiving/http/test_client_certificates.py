"""Client certificates: TLS verifies them, and the location finds their party (SEC-12)."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import trustme

from postroom import adapters
from postroom.pipelines.components import key_hash
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.receiving.http.locations import HttpLocations
from tests.integration.receiving.http.test_receive import ORDER, publish, serve
from tests.support.box import Box
from tests.support.host_settings import set_trust
from tests.support.inbox_location import add_inbox_location
from tests.support.waiting import PATIENCE, wait_until

KEY = "0123456789abcdef0123456789abcdef"


class Certificates:
    """The certificates of a server and of its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.clients = trustme.CA()
        self.contoso = self.clients.issue_cert(common_name="contoso.example")
        self.initech = self.clients.issue_cert(common_name="initech.example")
        self.stranger = trustme.CA().issue_cert(common_name="contoso.example")
        self.renew()
        self.clients.cert_pem.write_to_path(folder / "clients.pem")

    def renew(self) -> None:
        """Issue the certificate of the server again."""
        issued = self.authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self.folder / "certificate.pem")
        issued.private_key_pem.write_to_path(self.folder / "key.pem")

    def make_adapter(self, **options: Any) -> adapters.HttpReceive:
        return adapters.HttpReceive(
            "/orders",
            port=0,
            certificate=self.folder / "certificate.pem",
            key=self.folder / "key.pem",
            client_ca=self.folder / "clients.pem",
            **options,
        )

    def connect(self, http: HttpLocations, client: trustme.LeafCert | None = None) -> HTTPSConnection:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if client is not None:
            client.configure_cert(context)
        return HTTPSConnection("127.0.0.1", http.ports[0], timeout=PATIENCE, context=context)

    def send_request(
        self, http: HttpLocations, client: trustme.LeafCert | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        connection = self.connect(http, client)
        try:
            connection.request("POST", "/orders", body=ORDER, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def thumbprint(client: trustme.LeafCert) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(client.cert_chain_pems[0].bytes().decode())).hexdigest()


def test_a_client_without_a_valid_certificate_cannot_connect(box: Box, certificates: Certificates) -> None:
    with serve(box, add_inbox_location(box, adapter=certificates.make_adapter())) as http:
        for client in (None, certificates.stranger):
            with pytest.raises(OSError):  # noqa: PT011 - a TLS alert or a closed connection
                certificates.send_request(http, client)
        assert certificates.send_request(http, certificates.contoso)[0] == 202
    assert box.count("inbox") == 1


@pytest.mark.parametrize("has_parties", [True, False])
def test_the_owner_of_a_certificate_is_the_originator_of_its_message(
    box: Box, certificates: Certificates, has_parties: bool
) -> None:
    parties = {thumbprint(certificates.contoso): "Contoso"} if has_parties else {}
    box.add_port("Everything", "exists(Region)")
    set_trust(box.connection, box.host().host_id)
    add_inbox_location(box, adapter=certificates.make_adapter(certificates=parties))
    [location] = read_receive_locations(box.connection)
    with serve(box, location) as http:
        assert certificates.send_request(http, certificates.contoso)[0] == 202
    publish(box, location)
    [message] = box.messages()
    account, party = message.originator_sid or "", message.originator_pid
    assert account.startswith("CN=contoso.example")
    assert party == ("Contoso" if has_parties else None)


def test_a_certificate_without_a_party_is_rejected_before_the_body_is_read(
    box: Box, certificates: Certificates
) -> None:
    adapter = certificates.make_adapter(certificates={thumbprint(certificates.contoso): "Contoso"})
    with serve(box, add_inbox_location(box, adapter=adapter)) as http:
        connection = certificates.connect(http, certificates.initech)
        connection.request("POST", "/orders", headers={"Content-Length": "1000000", "Expect": "100-continue"})
        answer = connection.getresponse()
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == 'ClientCertificate realm="Postroom"'
        assert json.loads(answer.read()) == {
            "error": "This receive location needs the client certificate of a known party."
        }
        connection.close()
    assert box.count("inbox") == 0


def test_an_optional_certificate_is_one_of_several_credentials(box: Box, certificates: Certificates) -> None:
    adapter = certificates.make_adapter(
        client_certificate="optional",
        certificates={thumbprint(certificates.contoso): "Contoso"},
        api_keys={key_hash(KEY): "Initech"},
    )
    with serve(box, add_inbox_location(box, adapter=adapter)) as http:
        assert certificates.send_request(http, certificates.contoso)[0] == 202
        assert certificates.send_request(http, None, {"X-API-Key": KEY})[0] == 202
        assert certificates.send_request(http, certificates.initech, {"X-API-Key": KEY})[0] == 202
        assert certificates.send_request(http, certificates.initech)[0] == 401
        assert certificates.send_request(http)[0] == 401
        with pytest.raises(OSError):  # noqa: PT011
            certificates.send_request(http, certificates.stranger, {"X-API-Key": KEY})
    assert box.count("inbox") == 3


def with_adapter(location: ReceiveLocation, adapter: adapters.HttpReceive) -> ReceiveLocation:
    return location.replace_settings(adapter=adapter.model_dump(mode="json"))


def test_a_removed_certificate_is_rejected_on_an_open_connection(box: Box, certificates: Certificates) -> None:
    contoso, initech = ({thumbprint(one): "A"} for one in (certificates.contoso, certificates.initech))
    location = add_inbox_location(box, adapter=certificates.make_adapter(certificates=contoso))
    with serve(box, location) as http:
        connection = certificates.connect(http, certificates.contoso)
        for declared, status in ((contoso, 202), (initech, 401)):
            http.serve([with_adapter(location, certificates.make_adapter(certificates=declared))])
            connection.request("POST", "/orders", body=ORDER)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
        connection.close()


def test_a_renewed_certificate_is_used_without_a_restart(
    box: Box, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    location = add_inbox_location(box, adapter=certificates.make_adapter())

    def read_served() -> bytes | None:
        connection = certificates.connect(http, certificates.contoso)
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        served = connection.sock.getpeercert(binary_form=True)
        connection.close()
        return served

    with serve(box, location) as http:
        first = read_served()
        (certificates.folder / "certificate.pem").write_text("half written")
        for _ in range(2):
            http.serve([location])
        assert read_served() == first
        assert [one.levelname for one in caplog.records].count("WARNING") == 1
        certificates.renew()
        http.serve([location])
        assert read_served() not in (None, first)
        assert certificates.send_request(http, certificates.contoso)[0] == 202


def test_requests_of_a_party_have_a_limit(box: Box, certificates: Certificates) -> None:
    parties = {thumbprint(certificates.contoso): "Contoso", thumbprint(certificates.initech): "Initech"}
    adapter = certificates.make_adapter(certificates=parties, party_requests=2)
    with serve(box, add_inbox_location(box, adapter=adapter)) as http:
        slow = [certificates.connect(http, certificates.contoso) for _ in range(2)]
        for connection in slow:
            connection.putrequest("POST", "/orders")
            connection.putheader("Content-Length", str(len(ORDER)))
            connection.putheader("Expect", "100-continue")
            connection.endheaders()
            assert isinstance(connection.sock, ssl.SSLSocket)
            assert connection.sock.recv(100).startswith(b"HTTP/1.1 100 ")  # the request is in progress
        status, content = certificates.send_request(http, certificates.contoso)
        assert (status, content) == (429, {"error": "There are too many requests of this party."})
        assert certificates.send_request(http, certificates.initech)[0] == 202
        slow[0].send(ORDER)
        assert slow[0].getresponse().status == 202
        slow[1].close()  # disconnected
        for connection in slow:
            connection.close()
        wait_until(
            lambda: certificates.send_request(http, certificates.contoso)[0] == 202, what="the end of both requests"
        )
