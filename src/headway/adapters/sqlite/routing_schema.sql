-- Who wants which events, and the events that nobody wants yet.
CREATE TABLE headway_subscription (
    stage TEXT NOT NULL,
    event_type TEXT NOT NULL,
    service TEXT NOT NULL,
    key TEXT,
    PRIMARY KEY (stage, event_type)
) STRICT, WITHOUT ROWID;
CREATE INDEX headway_subscription_type ON headway_subscription (event_type);

CREATE TABLE headway_unrouted (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    not_after REAL,
    body BLOB NOT NULL,
    born_at REAL NOT NULL,                   -- mono(): how old it is
    born_date REAL NOT NULL
) STRICT;
CREATE INDEX headway_unrouted_type ON headway_unrouted (event_type);
