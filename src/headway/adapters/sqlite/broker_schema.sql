-- Messages in queues, one queue a service, and the sessions that hold them.
CREATE TABLE headway_message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    body BLOB NOT NULL,
    session TEXT,
    deliveries INTEGER NOT NULL DEFAULT 0,
    born_date REAL NOT NULL
) STRICT;
CREATE INDEX headway_message_queue ON headway_message (queue, id);

CREATE TABLE headway_session (id TEXT PRIMARY KEY, alive_until REAL NOT NULL) STRICT, WITHOUT ROWID;
