"""What ``postroom demo envelope`` sends, and the result that it expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from postroom.example_applications import Step, drop_files

BATCHES = [
    [("Contoso", "250.00"), ("Fabrikam", "1800.50"), ("Test", "9999")],
    [("Contoso", "1000"), ("Fabrikam", "a lot"), ("Northwind", "12.5")],
]


def steps() -> Iterator[Step]:
    """Two batches of three orders; one order is bad, which costs the others nothing."""
    orders = [(customer, amount) for batch in BATCHES for customer, amount in batch if amount != "a lot"]
    key_accounts = [order for order in orders if float(order[1]) >= 1000 and order[0] != "Test"]
    files = {f"batch-{number}.xml": _batch(batch) for number, batch in enumerate(BATCHES, 1)}
    yield Step(
        what=f"{len(BATCHES)} batches dropped, with one bad order",
        act=drop_files("batches", files),
        outputs={
            "out/invoices": Counter(_invoice(*order) for order in orders),
            "out/key-accounts": Counter(_order(*order) for order in key_accounts),
        },
        suspended=Counter(PIPELINE=1),
    )


def _batch(orders: list[tuple[str, str]]) -> bytes:
    documents = b"".join(_order(*order) for order in orders)
    return b'<Batch xmlns="http://example.com/batches"><Sender>Shop</Sender><Orders>%s</Orders></Batch>' % documents


def _order(customer: str, amount: str) -> bytes:
    text = f'<Order xmlns="http://example.com/shop"><Customer>{customer}</Customer><Amount>{amount}</Amount></Order>'
    return text.encode()


def _invoice(customer: str, amount: str) -> bytes:
    return f'<Invoice xmlns="http://example.com/billing" to="{customer}"><Due>{amount}</Due></Invoice>\n'.encode()
