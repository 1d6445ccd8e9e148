-- The ledger's tables. The triggers that hold the table of moves are made from it by code.
CREATE TABLE headway_item (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    stage TEXT NOT NULL,
    key TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    fingerprint TEXT,
    state TEXT NOT NULL,
    carrier TEXT NOT NULL,
    epoch INTEGER NOT NULL,                  -- new at every move, never used again
    holder TEXT,                             -- who runs it: one name a claim
    round INTEGER NOT NULL DEFAULT 1,
    attempts INTEGER NOT NULL DEFAULT 0,     -- executions of this round that failed by themselves
    crashes INTEGER NOT NULL DEFAULT 0,      -- workers of this round that died or lost their lease
    strikes INTEGER NOT NULL DEFAULT 0,      -- crashes that can only have been this item's doing
    alone INTEGER NOT NULL DEFAULT 0,        -- it runs with nothing beside it
    deliveries INTEGER NOT NULL DEFAULT 0,
    successes INTEGER NOT NULL DEFAULT 0,
    free_at REAL NOT NULL,                   -- mono(): when somebody may take it: its due time, or its lease's end
    free_date REAL NOT NULL,                 -- wall(): the same for people, and for after a reboot
    round_at REAL,                           -- mono(): the round's first execution
    round_date REAL,
    not_after REAL,                          -- wall(): set by the sender
    body BLOB,
    outcome BLOB,
    reason TEXT,
    waiting_for TEXT,
    effects TEXT NOT NULL DEFAULT '{}',
    discarded_from TEXT,
    format INTEGER NOT NULL DEFAULT 1,
    born_date REAL NOT NULL,
    moved_date REAL NOT NULL,
    CHECK (carrier <> 'ledger' OR state IN ('done', 'discarded') OR body IS NOT NULL),
    CHECK (carrier <> 'broker' OR state IN ('running', 'done', 'discarded'))
) STRICT;
CREATE INDEX headway_item_free ON headway_item (free_at) WHERE carrier = 'ledger' AND state IN ('running', 'waiting');
CREATE INDEX headway_item_stage ON headway_item (stage, state, moved_date, free_at);
CREATE INDEX headway_item_event ON headway_item (event_id);
CREATE INDEX headway_item_key ON headway_item (key);
CREATE INDEX headway_item_ended ON headway_item (free_at) WHERE state IN ('done', 'dead', 'discarded');

CREATE TABLE headway_attempt (
    item TEXT NOT NULL,
    round INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    error_type TEXT NOT NULL,
    message TEXT NOT NULL,
    delay REAL,
    traceback TEXT NOT NULL,
    PRIMARY KEY (item, round, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE headway_dead_letter (
    item TEXT NOT NULL,
    round INTEGER NOT NULL,
    at REAL NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (item, round)
) STRICT, WITHOUT ROWID;

CREATE TABLE headway_audit (
    item TEXT NOT NULL,
    left_epoch INTEGER NOT NULL,             -- the epoch that the move ended: nobody else can have ended it
    token TEXT NOT NULL,
    at REAL NOT NULL,
    move TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    round INTEGER NOT NULL,
    actor TEXT NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (item, left_epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE headway_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    item TEXT,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    order_key TEXT,
    not_after REAL,
    body BLOB NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    free_at REAL NOT NULL,
    error TEXT,
    born_date REAL NOT NULL
) STRICT;
CREATE INDEX headway_outbox_order ON headway_outbox (order_key, id);
CREATE INDEX headway_outbox_item ON headway_outbox (item);

CREATE TABLE headway_sequence (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
INSERT INTO headway_sequence VALUES ('epoch', 0);

-- Nothing about an item outlives its record.
CREATE TRIGGER headway_item_gone AFTER DELETE ON headway_item BEGIN
    DELETE FROM headway_attempt WHERE item = OLD.id;
    DELETE FROM headway_dead_letter WHERE item = OLD.id;
    DELETE FROM headway_audit WHERE item = OLD.id;
END;
