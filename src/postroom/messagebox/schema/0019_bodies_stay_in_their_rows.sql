-- A body of up to 4 KB stays in its row: elsewhere it costs a row of another table and an entry of its index, and is
-- nothing that anybody would want to skip. Of those between 2 and 4 KB a publish writes about a fifth faster.
ALTER TABLE messagebox.parts SET (toast_tuple_target = 4080);
