-- What programs made before there was Alembic, and rows that they left. Statements that SQLite and PostgreSQL take.
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE traces (
    id VARCHAR(26) NOT NULL, created_at VARCHAR(32) NOT NULL, name TEXT NOT NULL, sha256 VARCHAR(64) NOT NULL,
    bytes BIGINT NOT NULL, file TEXT NOT NULL, body JSON, PRIMARY KEY (id)
);
CREATE INDEX traces_newest ON traces (created_at, id);
CREATE TABLE checks (
    id VARCHAR(26) NOT NULL, created_at VARCHAR(32) NOT NULL, name TEXT NOT NULL, outcome VARCHAR(16), body JSON,
    PRIMARY KEY (id)
);
CREATE INDEX checks_newest ON checks (created_at, id);
CREATE TABLE jobs (
    id VARCHAR(26) NOT NULL, kind VARCHAR(16) NOT NULL, state VARCHAR(16) NOT NULL, request JSON NOT NULL,
    progress JSON, error JSON, attempt INTEGER NOT NULL, cancel_requested BOOLEAN NOT NULL, owner TEXT,
    lease_until FLOAT, created_at VARCHAR(32) NOT NULL, started_at VARCHAR(32), finished_at VARCHAR(32),
    PRIMARY KEY (id)
);
CREATE INDEX jobs_waiting ON jobs (kind, state, created_at);
CREATE TABLE regions (
    id VARCHAR(26) NOT NULL, trace_id VARCHAR(26), position INTEGER NOT NULL, created_at VARCHAR(32) NOT NULL,
    name TEXT NOT NULL, text TEXT NOT NULL, body JSON NOT NULL, PRIMARY KEY (id),
    FOREIGN KEY(trace_id) REFERENCES traces (id) ON DELETE CASCADE
);
CREATE INDEX regions_of_trace ON regions (trace_id, position);
CREATE INDEX regions_newest ON regions (created_at, id);
CREATE TABLE events (
    job_id VARCHAR(26) NOT NULL, seq INTEGER NOT NULL, event VARCHAR(16) NOT NULL, data JSON NOT NULL,
    PRIMARY KEY (job_id, seq), FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE validations (
    id VARCHAR(26) NOT NULL, created_at VARCHAR(32) NOT NULL, region_id VARCHAR(26), name TEXT NOT NULL,
    region TEXT NOT NULL, outcome VARCHAR(16), device TEXT, body JSON, PRIMARY KEY (id),
    FOREIGN KEY(region_id) REFERENCES regions (id) ON DELETE SET NULL
);
CREATE INDEX validations_of_region ON validations (region_id, created_at);
CREATE INDEX validations_newest ON validations (created_at, id);
CREATE TABLE landscapes (
    id VARCHAR(26) NOT NULL, created_at VARCHAR(32) NOT NULL, validation_id VARCHAR(26) NOT NULL,
    candidate TEXT NOT NULL, binding JSON NOT NULL, body JSON, PRIMARY KEY (id),
    FOREIGN KEY(validation_id) REFERENCES validations (id) ON DELETE CASCADE
);
CREATE INDEX landscapes_of_validation ON landscapes (validation_id, created_at);
INSERT INTO schema_version VALUES (1);
INSERT INTO traces VALUES ('t0000000000000000000000001', '2026-01-01T00:00:00.000001Z', 'rank 0', 's1', 5000000000,
    't0000000000000000000000001', '{"kernels": 7, "group": "é", "note": "\u0000"}');
INSERT INTO traces VALUES ('t0000000000000000000000002', '2026-01-01T00:00:00.000002Z', 'rank 1', 's2', 2,
    't0000000000000000000000002', '{"kernels": 8, "group": "é"}');
INSERT INTO traces VALUES ('t0000000000000000000000003', '2026-01-01T00:00:00.000003Z', 'alone', 's3', 3,
    't0000000000000000000000003', '{"kernels": 9, "group": null}');
INSERT INTO traces VALUES ('t0000000000000000000000004', '2026-01-01T00:00:00.000004Z', 'unread', 's4', 4,
    't0000000000000000000000004', NULL);
INSERT INTO jobs VALUES ('t0000000000000000000000001', 'read', 'done', '{}', NULL, NULL, 1, FALSE, NULL, NULL,
    '2026-01-01T00:00:00.000001Z', '2026-01-01T00:00:01.000000Z', '2026-01-01T00:00:02.000000Z');
INSERT INTO jobs VALUES ('t0000000000000000000000002', 'read', 'done', '{}', NULL, NULL, 1, FALSE, NULL, NULL,
    '2026-01-01T00:00:00.000002Z', NULL, NULL);
INSERT INTO jobs VALUES ('t0000000000000000000000003', 'read', 'done', '{}', NULL, NULL, 1, FALSE, NULL, NULL,
    '2026-01-01T00:00:00.000003Z', NULL, NULL);
INSERT INTO jobs VALUES ('t0000000000000000000000004', 'read', 'queued', '{"path": "/old/data/uploads/x"}', NULL, NULL,
    0, FALSE, NULL, NULL, '2026-01-01T00:00:00.000004Z', NULL, NULL);
INSERT INTO jobs VALUES ('v0000000000000000000000001', 'validate', 'failed', '{"region": "x"}', '{"phase": "half"}',
    '{"code": "timeout", "message": "too long", "remedy": ""}', 2, FALSE, NULL, NULL, '2026-01-02T00:00:00.000001Z',
    NULL, NULL);
INSERT INTO regions VALUES ('r0000000000000000000000001', 't0000000000000000000000001', 0,
    '2026-01-01T00:00:02.000000Z', 'mlp', 'x: f32[4]', '{"name": "mlp", "advice": {"tool": "compile"}}');
INSERT INTO validations VALUES ('v0000000000000000000000001', '2026-01-02T00:00:00.000001Z',
    'r0000000000000000000000001', 'mlp', 'x: f32[4]', NULL, NULL, NULL);
INSERT INTO landscapes VALUES ('l0000000000000000000000001', '2026-01-03T00:00:00.000001Z',
    'v0000000000000000000000001', 'triton:x', '{"N": 4}', '{"kernel": "k"}');
INSERT INTO checks VALUES ('c0000000000000000000000001', '2026-01-04T00:00:00.000001Z', 'ours', 'passed', '{"a": 1}');
INSERT INTO events VALUES ('v0000000000000000000000001', 1, 'progress', '{"phase": "queued"}');
INSERT INTO events VALUES ('v0000000000000000000000001', 2, 'done', '{"state": "failed"}');
