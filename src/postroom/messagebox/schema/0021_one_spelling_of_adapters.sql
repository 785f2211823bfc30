-- Kinds of adapters are written with an underscore, all of them: spark_sink, http_receive, and now spark_reader.
UPDATE management.receive_locations SET adapter = jsonb_set(adapter, '{kind}', '"spark_reader"')
 WHERE adapter ->> 'kind' = 'spark-reader';

-- The quotes of a text that says the same are escaped, and do not match.
UPDATE management.applications
   SET definition = replace(definition::text, '"kind": "spark-reader"', '"kind": "spark_reader"')::jsonb
 WHERE definition::text LIKE '%"kind": "spark-reader"%';

UPDATE messagebox.suspended_queue SET adapter = 'spark_reader' WHERE adapter = 'spark-reader';
