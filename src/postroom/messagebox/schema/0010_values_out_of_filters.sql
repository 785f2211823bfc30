-- What an instance waits for are values of messages. Filters are read by operators and by every host, so these values stand
-- in correlation_values alone, which only administrators read.
UPDATE messagebox.subscriptions SET filter = '' WHERE instance_id IS NOT NULL;
ALTER TABLE messagebox.subscriptions
    ADD CONSTRAINT values_are_in_no_filter CHECK (instance_id IS NULL OR filter = '');
