import json

from postroom import BTS, Application, Message, Property, adapters, maps, pipelines

CustomerId = Property("Shop.CustomerId", str)

app = Application("lookup")
app.receive_port("CustomersIn").location(
    "customers",
    adapters.File("customers", pattern="*.jsonl"),
    pipeline=pipelines.JsonLines(message_type="customer", promote={CustomerId: "id"}),
)
Customers = app.lookup("Customers", key=CustomerId, filter=BTS.MessageType == "customer")
app.send_port("Archive", adapters.File("out/customers"), filter=BTS.MessageType == "customer")


def add_address(message: Message) -> bytes:
    """Add the name and the city of its customer to an order."""
    order = json.loads(message.data)
    customer = Customers.get(order["customer"])
    known = {"name": "unknown", "city": ""} if customer is None else json.loads(customer.data)
    return json.dumps({**order, "name": known["name"], "city": known["city"]}).encode()


app.receive_port("ShopOrders", maps=[maps.Python(add_address, source="shop order", target="delivery")]).location(
    "shop-orders",
    adapters.File("shop", pattern="*.json"),
    pipeline=pipelines.Json(message_type="shop order", promote={CustomerId: "customer"}),
)
app.send_port("Deliveries", adapters.File("out/deliveries"), filter=BTS.MessageType == "delivery")
