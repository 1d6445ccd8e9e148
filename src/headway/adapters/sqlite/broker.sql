-- Every statement of the broker.

-- name: enqueue
INSERT INTO headway_message (queue, body, born_date) VALUES (:queue, :body, wall())

-- name: keep_alive
INSERT INTO headway_session (id, alive_until) VALUES (:session, mono() + :timeout)
ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until

-- name: forget_dead
DELETE FROM headway_session
WHERE alive_until <= mono()

-- name: ready
SELECT id FROM headway_message
WHERE queue = :queue
  AND (session IS NULL OR session NOT IN (SELECT id FROM headway_session WHERE alive_until > mono()))
ORDER BY id
LIMIT :limit

-- name: hold
UPDATE headway_message SET session = :session, deliveries = deliveries + 1
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id, body, deliveries

-- name: acknowledge
DELETE FROM headway_message
WHERE id = :id
  AND session = :session
  AND deliveries = :deliveries

-- name: give_back
UPDATE headway_message SET session = NULL
WHERE id = :id
  AND session = :session
  AND deliveries = :deliveries

-- name: end_session
DELETE FROM headway_session
WHERE id = :session

-- name: depth
SELECT queue, count(*) AS count FROM headway_message GROUP BY queue
