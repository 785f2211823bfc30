-- Reference counts below zero: more releases than references.
SELECT 'message ' || message_id || ', ' || total || ' counted' FROM message_ref_counts WHERE total < 0
UNION ALL
SELECT 'part ' || part_id || ', ' || total || ' counted' FROM part_ref_counts WHERE total < 0
