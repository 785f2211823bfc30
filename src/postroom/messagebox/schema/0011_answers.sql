-- What has become of a request that an instance has received. Answered: the instance has answered it, or sent it on to
-- others who answer it. Faulted: its caller has got a fault, because the instance was suspended.
ALTER TABLE messagebox.orchestration_messages ADD COLUMN answered boolean NOT NULL DEFAULT false;
ALTER TABLE messagebox.orchestration_messages ADD COLUMN faulted boolean NOT NULL DEFAULT false;

-- The status and the headers of a stored response to an HTTP request. Null: 200, and none.
ALTER TABLE messagebox.stored_responses ADD COLUMN head jsonb;
