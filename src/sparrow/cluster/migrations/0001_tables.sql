-- The tables of a cluster. Names and keys of entries are bytes: PostgreSQL's text has no NUL, and bytes have one order.
CREATE TABLE sparrow.cluster (
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO sparrow.cluster DEFAULT VALUES;

CREATE TABLE sparrow.node (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  incarnation uuid NOT NULL UNIQUE,
  addresses text NOT NULL,
  joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  draining bool NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE sparrow.shard (
  id int PRIMARY KEY,
  epoch bigint NOT NULL DEFAULT 0,
  owner int,
  seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO sparrow.shard (id) VALUES (0);

-- One row for each commit that carried batches; the bytes are in the row, or in an object.
CREATE TABLE sparrow.wal (
  shard int NOT NULL,
  seq bigint NOT NULL,
  epoch bigint NOT NULL,
  object text,
  at_ms bigint NOT NULL,
  manifest bytea NOT NULL,
  payload bytea,
  PRIMARY KEY (shard, seq)
);
ALTER TABLE sparrow.wal ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE sparrow.entry (
  shard int NOT NULL,
  kind bytea NOT NULL,
  key bytea NOT NULL,
  value bytea NOT NULL,
  version bigint NOT NULL,
  PRIMARY KEY (shard, kind, key)
);

-- Objects that no row names any more.
CREATE TABLE sparrow.garbage (
  object text PRIMARY KEY,
  dead_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One call is one commit of everything of one shard that waits; false: fenced. It is one message and one round trip, so a
-- process that is stopped in the middle can hold no row lock.
CREATE FUNCTION sparrow.commit_shard(
  p_shard int, p_epoch bigint, p_seq bigint, p_object text, p_object_ms bigint, p_at_ms bigint, p_manifest bytea, p_payload bytea,
  p_put_kind bytea[], p_put_key bytea[], p_put_value bytea[], p_put_version bigint[], p_del_kind bytea[], p_del_key bytea[],
  p_drop bigint[], p_max_object_age_ms bigint
) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  UPDATE sparrow.shard SET seq = p_seq WHERE id = p_shard AND epoch = p_epoch AND seq = p_seq - 1;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF p_object IS NOT NULL AND extract(epoch FROM clock_timestamp()) * 1000 - p_object_ms > p_max_object_age_ms THEN
    RAISE 'the object % is too old to be committed', p_object USING ERRCODE = 'SP001';
  END IF;
  IF p_manifest IS NOT NULL THEN
    INSERT INTO sparrow.wal (shard, seq, epoch, object, at_ms, manifest, payload)
    VALUES (p_shard, p_seq, p_epoch, p_object, p_at_ms, p_manifest, p_payload);
  END IF;
  IF p_del_key IS NOT NULL THEN
    DELETE FROM sparrow.entry e USING unnest(p_del_kind, p_del_key) AS t (kind, key)
    WHERE e.shard = p_shard AND e.kind = t.kind AND e.key = t.key;
  END IF;
  IF p_put_key IS NOT NULL THEN
    INSERT INTO sparrow.entry (shard, kind, key, value, version)
    SELECT p_shard, kind, key, value, version FROM unnest(p_put_kind, p_put_key, p_put_value, p_put_version) AS t (kind, key, value, version)
    ON CONFLICT (shard, kind, key) DO UPDATE SET value = excluded.value, version = excluded.version;
  END IF;
  IF p_drop IS NOT NULL THEN
    WITH gone AS (DELETE FROM sparrow.wal WHERE shard = p_shard AND seq = ANY (p_drop) RETURNING object)
    INSERT INTO sparrow.garbage (object) SELECT object FROM gone WHERE object IS NOT NULL;
  END IF;
  RETURN true;
END $$;

-- A take waits for the row lock of a commit that is under way, so seq says how that ended.
CREATE FUNCTION sparrow.take_shard(p_shard int, p_node int, p_dead int) RETURNS TABLE (epoch bigint, seq bigint) LANGUAGE sql AS $$
  UPDATE sparrow.shard s SET epoch = s.epoch + 1, owner = p_node
  WHERE s.id = p_shard AND (
    s.owner IS NULL OR s.owner = p_node OR s.owner = p_dead
    OR NOT EXISTS (SELECT 1 FROM sparrow.node n WHERE n.id = s.owner AND n.expires_at > clock_timestamp())
  )
  RETURNING s.epoch, s.seq
$$;
