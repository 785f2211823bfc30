-- Deploy a property. A sensitive property stays sensitive. Index: properties by key.
INSERT INTO properties AS p (key, value_type, sensitive) VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET sensitive = true WHERE excluded.sensitive AND NOT p.sensitive
