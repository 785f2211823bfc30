-- What host __HOST__ alone may do: its own procedures. Nobody else may call them.
REVOKE ALL ON FUNCTION
    messagebox.create_subscription___HOST__, messagebox.insert_predicate___HOST__, messagebox.dequeue_messages___HOST__,
    messagebox.complete_messages___HOST__, messagebox.retry_messages___HOST__, messagebox.suspend_messages___HOST__,
    messagebox.release_claims___HOST__, messagebox.release_messages___HOST__, messagebox.release_due___HOST__,
    messagebox.read_parts___HOST__, messagebox.read_fragments___HOST__, messagebox.route_failed_message___HOST__
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    messagebox.create_subscription___HOST__, messagebox.insert_predicate___HOST__, messagebox.dequeue_messages___HOST__,
    messagebox.complete_messages___HOST__, messagebox.retry_messages___HOST__, messagebox.suspend_messages___HOST__,
    messagebox.release_claims___HOST__, messagebox.release_messages___HOST__, messagebox.release_due___HOST__,
    messagebox.read_parts___HOST__, messagebox.read_fragments___HOST__, messagebox.route_failed_message___HOST__
    TO __ROLE__;
