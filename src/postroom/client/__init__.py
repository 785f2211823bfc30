"""The client for programs: publish messages, send requests, and receive messages with durable subscriptions."""
