-- Where the objects of the cluster are, so that a broker with another place is refused.
ALTER TABLE sparrow.cluster ADD COLUMN objects text;
