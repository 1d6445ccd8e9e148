-- Every statement of the ledger. `-- name:` begins a statement, `-- part:` a piece that others include as {piece}.
-- One condition a line: each is a guard, and `make saboteurs` removes them one by one to see a test fail.
-- mono() is the clock that nobody can set, for leases and waits; wall() is for dates that people read or set.

-- part: columns
id, tenant, stage, key, event_id, event_type, fingerprint, state, carrier, epoch, holder, round, attempts, crashes,
strikes, deliveries, successes, free_at - mono() AS free_in, coalesce(mono() - round_at, 0.0) AS elapsed,
not_after - wall() AS not_after_in, body, outcome, reason, waiting_for, effects, discarded_from,
born_date AS created_at, moved_date AS moved_at, free_date AS free_at

-- part: next_epoch
(SELECT value + 1 FROM headway_sequence WHERE name = 'epoch')

-- part: take
SET state = 'running',
    epoch = {next_epoch},
    holder = :holder,
    crashes = crashes + (state = 'running' AND carrier <> 'leader'),
    strikes = strikes + (state = 'running' AND (alone OR carrier = 'caller')),
    deliveries = deliveries + :delivered,
    alone = 0,
    free_at = mono() + :lease,
    free_date = wall() + :lease,
    round_at = coalesce(round_at, mono()),
    round_date = coalesce(round_date, wall()),
    waiting_for = NULL,
    moved_date = wall()

-- name: use_epoch
UPDATE headway_sequence SET value = value + 1 WHERE name = 'epoch' RETURNING value

-- name: birth
INSERT INTO headway_item (id, tenant, stage, key, event_id, event_type, fingerprint, state, carrier, epoch, holder,
                  deliveries, free_at, free_date, round_at, round_date, not_after, body, born_date, moved_date)
VALUES (:id, :tenant, :stage, :key, :event_id, :event_type, :fingerprint, :state, :carrier, {next_epoch}, :holder,
        :delivered, mono() + :lease, wall() + :lease,
        iif(:state = 'running', mono(), NULL), iif(:state = 'running', wall(), NULL),
        :not_after, :body, wall(), wall())
ON CONFLICT (id) DO NOTHING
RETURNING {columns}

-- name: take_one
UPDATE headway_item
{take}
WHERE id = :id
  AND carrier <> 'ledger'
  AND state IN ('running', 'waiting')
  AND free_at <= mono()
  AND fingerprint IS :fingerprint
RETURNING {columns}

-- name: due
SELECT id FROM headway_item
WHERE carrier = 'ledger'
  AND state IN ('running', 'waiting')
  AND free_at <= mono()
  AND stage IN (SELECT value FROM json_each(:stages))
ORDER BY free_at, born_date
LIMIT :limit

-- name: take_listed
UPDATE headway_item
{take}
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING {columns}

-- name: count_delivery
UPDATE headway_item SET deliveries = deliveries + 1
WHERE id = :id

-- name: renew
UPDATE headway_item
SET free_at = mono() + :lease,
    free_date = wall() + :lease,
    alone = coalesce(:alone, alone),
    attempts = coalesce(:attempts, attempts),
    effects = coalesce(:effects, effects)
WHERE id = :id
  AND epoch = :epoch
  AND state = 'running'
RETURNING round

-- name: settle
UPDATE headway_item
SET state = :state,
    epoch = {next_epoch},
    carrier = :carrier,
    holder = NULL,
    round = :round,
    attempts = :attempts,
    crashes = :crashes,
    strikes = :strikes,
    successes = :successes,
    alone = 0,
    -- When it has ended, that is when it ended; a discarded wait keeps its due time, for when it is restored.
    free_at = CASE WHEN :delay IS NOT NULL THEN mono() + :delay
                   WHEN :state IN ('done', 'dead') THEN mono()
                   ELSE free_at END,
    free_date = iif(:delay IS NULL, free_date, wall() + :delay),
    round_at = iif(:fresh_round, NULL, round_at),
    round_date = iif(:fresh_round, NULL, round_date),
    not_after = iif(:fresh_round, NULL, not_after),
    body = :body,
    outcome = :outcome,
    reason = :reason,
    waiting_for = :waiting_for,
    effects = :effects,
    discarded_from = :discarded_from,
    moved_date = wall()
WHERE id = :id
  AND epoch = :epoch
  AND (NOT :only_if_free OR free_at <= mono())

-- name: wake
UPDATE headway_item SET free_at = mono(), free_date = wall()
WHERE id = :id
  AND state = 'waiting'
  AND free_at > mono()

-- name: add_attempt
INSERT INTO headway_attempt (item, round, number, at, kind, error_type, message, delay, traceback)
VALUES (:item, :round, :number, wall(), :kind, :error_type, :message, :delay, :traceback)
ON CONFLICT (item, round, number) DO NOTHING

-- name: trim_attempts
DELETE FROM headway_attempt
WHERE item = :item
  AND round = :round
  AND number > 5
  AND number <= :number - 45

-- name: add_dead_letter
INSERT INTO headway_dead_letter (item, round, at, reason, message, attempts)
VALUES (:item, :round, wall(), :reason, :message, :attempts)

-- name: add_audit
INSERT INTO headway_audit (item, left_epoch, token, at, move, from_state, to_state, epoch, round, actor, note)
VALUES (:item, :left_epoch, :token, wall(), :move, :from_state, :to_state, :epoch, :round, :actor, :note)

-- name: settled_by
SELECT to_state, epoch FROM headway_audit
WHERE item = :item
  AND left_epoch = :left_epoch
  AND token = :token

-- name: add_outbox
INSERT INTO headway_outbox (item, event_id, event_type, order_key, not_after, body, free_at, born_date)
VALUES (:item, :event_id, :event_type, :order_key, :not_after, :body, mono(), wall())

-- name: heads
SELECT id, event_id, event_type, body, order_key, not_after, tries FROM headway_outbox AS row
WHERE free_at <= mono()
  AND (order_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM headway_outbox AS earlier WHERE earlier.order_key = row.order_key AND earlier.id < row.id))
ORDER BY id
LIMIT :limit

-- name: sent
DELETE FROM headway_outbox
WHERE id = :id

-- name: refused
UPDATE headway_outbox SET tries = tries + 1, free_at = mono() + :delay, error = :error
WHERE id = :id

-- name: outbox_state
SELECT count(*) AS pending, min(born_date) AS oldest_at,
       (SELECT error FROM headway_outbox WHERE error IS NOT NULL ORDER BY id LIMIT 1) AS last_error
FROM headway_outbox

-- name: get
SELECT {columns} FROM headway_item WHERE id = :id

-- name: find
SELECT {columns} FROM headway_item
WHERE carrier <> 'leader'
  AND id > :after
  AND (:identity IS NULL OR id = :identity OR event_id = :identity OR key = :identity
       OR (length(:identity) >= 6 AND substr(id, 1, length(:identity)) = :identity))
  AND (:stage IS NULL OR stage = :stage)
  AND (:state IS NULL OR state = :state)
  AND (:reason IS NULL OR reason = :reason)
ORDER BY id
LIMIT :limit

-- name: count
SELECT stage, state, count(*) AS count, sum(free_at <= mono()) AS free, min(moved_date) AS oldest_at FROM headway_item
WHERE carrier <> 'leader'
GROUP BY stage, state
ORDER BY stage, state

-- name: attempts_of
SELECT at, round, number, kind, error_type, message, delay, traceback FROM headway_attempt WHERE item = :item

-- name: dead_letters_of
SELECT at, round, reason, message, attempts FROM headway_dead_letter WHERE item = :item

-- name: audit_of
SELECT at, round, move, from_state, to_state, actor, note FROM headway_audit WHERE item = :item

-- name: clean
DELETE FROM headway_item WHERE id IN (
    SELECT id FROM headway_item
    WHERE state IN ('done', 'dead', 'discarded')
      AND (state <> 'dead' OR :dead_letters)
      AND free_at < mono() - :older_than
      AND NOT EXISTS (SELECT 1 FROM headway_outbox WHERE headway_outbox.item = headway_item.id)
    LIMIT :limit
)

-- name: clean_unrouted
DELETE FROM headway_unrouted WHERE id IN (
    SELECT id FROM headway_unrouted
    WHERE born_at < mono() - :older_than
    LIMIT :limit
)

-- name: rebase_items
UPDATE headway_item
SET free_at = iif(state = 'running', mono(), mono() + free_date - wall()),
    round_at = mono() - max(wall() - round_date, 0)

-- name: rebase_outbox
UPDATE headway_outbox SET free_at = mono()

-- name: rebase_unrouted
UPDATE headway_unrouted SET born_at = mono() - max(wall() - born_date, 0)

-- name: take_role
INSERT INTO headway_meta VALUES ('role', :role) ON CONFLICT (name) DO NOTHING

-- name: role
SELECT value FROM headway_meta WHERE name = 'role'
