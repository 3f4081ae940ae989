-- Who is asked to let a shard go, and what is known of the last change of its owner.
ALTER TABLE sparrow.shard
  ADD COLUMN handover int,
  ADD COLUMN handover_at timestamptz,
  ADD COLUMN released_by int,
  ADD COLUMN taken_from int,
  ADD COLUMN taken_at timestamptz,
  ADD COLUMN served_at timestamptz,
  ADD COLUMN takeover_ms bigint;

-- As before; a take by another node than the last owner is remembered, a take of the own shard is none.
CREATE OR REPLACE FUNCTION sparrow.take_shard(p_shard int, p_node int, p_dead int)
RETURNS TABLE (epoch bigint, seq bigint) LANGUAGE sql AS $$
  UPDATE sparrow.shard s SET
    epoch = s.epoch + 1,
    owner = p_node,
    handover = CASE WHEN s.owner = p_node THEN s.handover END,
    released_by = NULL,
    taken_from = CASE WHEN s.owner = p_node THEN s.taken_from ELSE coalesce(s.owner, s.released_by) END,
    taken_at = CASE WHEN s.owner = p_node THEN s.taken_at ELSE clock_timestamp() END,
    served_at = CASE WHEN s.owner = p_node THEN s.served_at END,
    takeover_ms = CASE WHEN s.owner = p_node THEN s.takeover_ms END
  WHERE s.id = p_shard AND (
    s.owner IS NULL OR s.owner = p_node OR s.owner = p_dead
    OR NOT EXISTS (SELECT 1 FROM sparrow.node n WHERE n.id = s.owner AND n.expires_at > clock_timestamp())
  )
  RETURNING s.epoch, s.seq
$$;
