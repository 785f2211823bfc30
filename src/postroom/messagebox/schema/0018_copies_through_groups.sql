-- dequeue_messages_<host> and dequeue_in_order_<host> also say which send port group a message comes through; a function
-- cannot be replaced by one that returns more.
DO $$
DECLARE
    host text;
BEGIN
    FOR host IN SELECT lower(name) FROM management.hosts LOOP
        EXECUTE format('DROP FUNCTION IF EXISTS messagebox.%I', 'dequeue_messages_' || host);
        EXECUTE format('DROP FUNCTION IF EXISTS messagebox.%I', 'dequeue_in_order_' || host);
    END LOOP;
END $$;
