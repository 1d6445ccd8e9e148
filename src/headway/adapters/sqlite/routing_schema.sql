-- Who wants which events, and the events that nobody wants yet.
CREATE TABLE subscription (
    stage TEXT NOT NULL,
    event_type TEXT NOT NULL,
    service TEXT NOT NULL,
    key TEXT,
    PRIMARY KEY (stage, event_type)
) STRICT, WITHOUT ROWID;
CREATE INDEX subscription_type ON subscription (event_type);

CREATE TABLE unrouted (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    not_after REAL,
    body BLOB NOT NULL,
    born_date REAL NOT NULL
) STRICT;
CREATE INDEX unrouted_type ON unrouted (event_type);
