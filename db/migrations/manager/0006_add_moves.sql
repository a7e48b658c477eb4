-- The brokers that a partition's replicas are to move to, while they move: NULL where nobody asked, or the move is done. Written by apply only.

ALTER TABLE partition ADD COLUMN wanted jsonb;          -- [broker_id, …], ascending
