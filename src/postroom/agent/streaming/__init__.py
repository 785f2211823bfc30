"""The streaming lane: interchanges through the receive pipeline, published as documents."""
