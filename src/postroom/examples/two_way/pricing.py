"""Stands for the pricing service of another system: answers each product with its price, or with 404."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PRICES = {"apple": 3, "pear": 4, "plum": 2}


class Pricing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        product = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["product"]
        price = PRICES.get(product)
        answer = json.dumps({"product": product, "price": price}).encode() if price else b""
        self.send_response(200 if price else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def make_server() -> ThreadingHTTPServer:
    return ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PRICING_PORT", "8090"))), Pricing)


if __name__ == "__main__":
    make_server().serve_forever()
