-- What a node says of the object store: '', 'away', or 'reachable'.
ALTER TABLE sparrow.node ADD COLUMN objects text NOT NULL DEFAULT '';
