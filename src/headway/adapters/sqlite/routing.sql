-- Who wants which events: shared by the broker of its own and by the ledger that is also the broker.

-- name: subscribed
SELECT stage, service, key FROM headway_subscription WHERE event_type = :event_type ORDER BY stage

-- name: subscribe
INSERT INTO headway_subscription (stage, event_type, service, key) VALUES (:stage, :event_type, :service, :key)
ON CONFLICT (stage, event_type) DO UPDATE SET service = excluded.service, key = excluded.key

-- name: keep_unrouted
INSERT INTO headway_unrouted (event_id, event_type, not_after, body, born_at, born_date)
VALUES (:event_id, :event_type, :not_after, :body, mono(), wall())

-- name: take_unrouted
DELETE FROM headway_unrouted
WHERE event_type = :event_type
RETURNING event_id, event_type, not_after, body

-- name: count_unrouted
SELECT count(*) AS count FROM headway_unrouted
