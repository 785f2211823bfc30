-- One message of the spool. Index: its primary key.
SELECT context, part_ids, body_part_id, body_part_name, published_at, published_by FROM spool WHERE message_id = %s
