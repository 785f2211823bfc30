-- The status and the headers of a stored response to an HTTP request. Null: 200, and none.
ALTER TABLE messagebox.stored_responses ADD COLUMN head jsonb;
