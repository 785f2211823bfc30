"""Create many subscriptions with one statement."""

from __future__ import annotations

from tests.support.box import Box, Region, Total

_SUBSCRIBE = """
    WITH s AS (INSERT INTO subscriptions (host_id, service_class, service_id, service_name, state)
               SELECT 1, 'messaging_in_process', gen_random_uuid(), 'port ' || n, 'started'
                 FROM generate_series(1, %(count)s) n RETURNING id),
         g AS (INSERT INTO predicate_groups (subscription_id, number, predicate_count, has_first_pass)
               SELECT id, 0, 2, true FROM s RETURNING id, subscription_id),
         f AS (INSERT INTO predicates (predicate_table, group_id, property_id, operator, value_text)
               SELECT 5, g.id, %(region)s, 0, 'R' || g.id FROM g)
    INSERT INTO predicates (predicate_table, group_id, property_id, operator, value_decimal)
    SELECT 6, g.id, %(total)s, 4, 100 FROM g
"""


def subscribe_many(box: Box, count: int) -> None:
    """Create ``count`` started subscriptions, each for its own region and totals of at least 100."""
    region, total = (box.one("SELECT id FROM properties WHERE key = %s", prop.key) for prop in (Region, Total))
    box.connection.execute(_SUBSCRIBE, {"count": count, "region": region, "total": total})
    box.connection.execute("ANALYZE subscriptions, predicate_groups, predicates")
