//! The tables and views, in a schema `lately` of their own.
//!
//! The counts are partitioned twice: by the width of their cells, and then by time. A partition is dropped as a whole when none of
//! its counts is read any more, so old counts cost neither a scan nor a vacuum.

/// The version of the tables. A server of another version leaves them alone.
pub(super) const VERSION: i32 = 1;

/// Waits for nodes that create or drop tables, until the end of the transaction.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext('lately'))";

/// Creates everything, in one transaction.
pub(super) const CREATE: &str = r"
SELECT pg_advisory_xact_lock(hashtext('lately'));
CREATE SCHEMA IF NOT EXISTS lately;
CREATE TABLE IF NOT EXISTS lately.version (number integer NOT NULL);
INSERT INTO lately.version SELECT 1 WHERE NOT EXISTS (SELECT FROM lately.version);
CREATE TABLE IF NOT EXISTS lately.virtual_counter (
    counter_key bytea NOT NULL,
    levels bigint NOT NULL,
    width_ms bigint NOT NULL,
    pane bigint NOT NULL,
    node_id text NOT NULL,
    value bigint NOT NULL,
    deleted bigint NOT NULL,
    removed bigint NOT NULL,
    PRIMARY KEY (counter_key, levels, width_ms, pane, node_id)
) PARTITION BY LIST (width_ms);
COMMENT ON TABLE lately.virtual_counter IS
    'The hits of each node, in cells of several widths. Do not add widths: all have the same hits.';
COMMENT ON COLUMN lately.virtual_counter.pane IS 'the first millisecond of the cell, since 1970';
COMMENT ON COLUMN lately.virtual_counter.value IS 'the hits that the node has counted in the cell';
COMMENT ON COLUMN lately.virtual_counter.deleted IS 'how many of them were deleted';
CREATE TABLE IF NOT EXISTS lately.partition (
    width_ms bigint NOT NULL,
    number bigint NOT NULL,
    keep_until_ms bigint NOT NULL,
    PRIMARY KEY (width_ms, number)
);
CREATE TABLE IF NOT EXISTS lately.node (
    name text PRIMARY KEY,
    holder text NOT NULL,
    until timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS lately.list (
    list text NOT NULL,
    name text NOT NULL,
    content text NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (list, name)
);
CREATE TABLE IF NOT EXISTS lately.changed (
    counter_key bytea NOT NULL,
    levels bigint NOT NULL,
    width_ms bigint NOT NULL,
    number bigint NOT NULL,
    noted timestamptz NOT NULL,
    PRIMARY KEY (counter_key, levels, width_ms, number)
);
CREATE OR REPLACE FUNCTION lately.key_text(counter_key bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(counter_key, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN encode(counter_key, 'escape');
END $$;
COMMENT ON FUNCTION lately.key_text IS 'A key as text; escaped if it is not UTF-8.';
CREATE OR REPLACE FUNCTION lately.hits_per(step_ms bigint)
RETURNS TABLE (key text, start timestamptz, hits numeric) LANGUAGE sql STABLE AS $$
    SELECT lately.key_text(counter_key), to_timestamp(step * step_ms / 1000.0), sum(most)
    FROM (
        SELECT counter_key, levels, node_id, step, max(total) AS most
        FROM (
            SELECT counter_key, levels, node_id, width_ms,
                floor(pane / step_ms::numeric)::bigint AS step,
                sum(value - deleted) AS total
            FROM lately.virtual_counter
            WHERE step_ms % width_ms = 0
            GROUP BY 1, 2, 3, 4, 5
        ) AS of_width
        GROUP BY 1, 2, 3, 4
    ) AS of_node
    GROUP BY counter_key, step
    HAVING sum(most) > 0
$$;
CREATE OR REPLACE VIEW lately.hits_per_minute AS SELECT key, start AS minute, hits FROM lately.hits_per(60000);
CREATE OR REPLACE VIEW lately.hits_per_hour AS SELECT key, start AS hour, hits FROM lately.hits_per(3600000);
";

/// Adds counts; each is an array of a column. The greater number stays, so a count that is sent again, or late, changes nothing.
/// Rows are sorted, so that two nodes that write the same rows do not wait for each other. The commit does not wait for the disk:
/// nodes send again what a server loses in a crash.
pub(super) const SEND: &str = r"
WITH setting AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
INSERT INTO lately.virtual_counter AS held
SELECT counter_key, levels, width_ms, pane, node_id, max(value), max(deleted), max(removed)
FROM setting, unnest($1, $2, $3, $4, $5, $6, $7, $8)
    AS sent (counter_key, levels, width_ms, pane, node_id, value, deleted, removed)
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (counter_key, levels, width_ms, pane, node_id) DO UPDATE SET
    value = greatest(held.value, excluded.value),
    deleted = greatest(held.deleted, excluded.deleted),
    removed = greatest(held.removed, excluded.removed)
WHERE held.value < excluded.value OR held.deleted < excluded.deleted OR held.removed < excluded.removed";

pub(super) const READ: &str = r"
SELECT counter_key, pane, node_id, value, deleted, removed FROM lately.virtual_counter
WHERE counter_key = ANY ($1) AND levels = $2 AND width_ms = $3 AND pane >= $4 AND pane < $5";

/// Claims a name that is free, over, or already held by the same holder. Returns the holder before, when the server began, and whether a
/// partition is over.
pub(super) const CLAIM: &str = r"
WITH held AS (SELECT holder FROM lately.node WHERE name = $1 AND until > now())
INSERT INTO lately.node AS node VALUES ($1, $2, now() + $3::bigint * interval '1 ms')
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE node.holder = excluded.holder OR node.until <= now()
RETURNING (SELECT holder FROM held), pg_postmaster_start_time()::text,
    EXISTS (SELECT FROM lately.partition WHERE keep_until_ms < extract(epoch FROM now()) * 1000)";

pub(super) const HOLDER: &str = "SELECT holder FROM lately.node WHERE name = $1 AND until > now()";

/// Takes a name over from its holder.
pub(super) const TAKE_OVER: &str = r"
UPDATE lately.node SET holder = $2, until = now() + $3::bigint * interval '1 ms'
WHERE name = $1 AND holder = $4";

pub(super) const SET_TEXT: &str = r"
INSERT INTO lately.list VALUES ($1, $2, $3, now() + $4::bigint * interval '1 ms')
ON CONFLICT (list, name) DO UPDATE SET content = excluded.content, until = excluded.until";

pub(super) const REMOVE_TEXT: &str = "DELETE FROM lately.list WHERE list = $1 AND name = $2";

/// All texts of a list, while one of them lasts.
pub(super) const TEXTS: &str = r"
SELECT name, content FROM lately.list WHERE list = $1
AND (SELECT max(until) FROM lately.list WHERE list = $1) > now()";

/// Stores texts about keys, sorted as counts are.
pub(super) const SET_KEY_TEXTS: &str = r"
INSERT INTO lately.list
SELECT 'key:' || encode(counter_key, 'base64'), name, content, to_timestamp(until_ms / 1000.0)
FROM unnest($1, $2, $3, $4) AS sent (counter_key, name, content, until_ms) ORDER BY 1, 2
ON CONFLICT (list, name) DO UPDATE SET content = excluded.content, until = excluded.until";

pub(super) const REMOVE_KEY_TEXTS: &str = r"
DELETE FROM lately.list AS held USING unnest($1, $2) AS removed (counter_key, name)
WHERE held.list = 'key:' || encode(removed.counter_key, 'base64') AND held.name = removed.name";

/// The texts of keys that last.
pub(super) const KEY_TEXTS: &str = r"
SELECT counter_key, name, content FROM unnest($1) AS asked (counter_key)
JOIN lately.list ON list = 'key:' || encode(counter_key, 'base64') AND until > now()";

/// Texts of keys that are over.
pub(super) const DROP_KEY_TEXTS: &str = "DELETE FROM lately.list WHERE list LIKE 'key:%' AND until <= now()";

/// Notes that blocks were changed, sorted as counts are.
pub(super) const NOTE_CHANGED: &str = r"
INSERT INTO lately.changed
SELECT DISTINCT counter_key, levels, width_ms, number, now()
FROM unnest($1, $2, $3, $4) AS noted (counter_key, levels, width_ms, number) ORDER BY 1, 2, 3, 4
ON CONFLICT (counter_key, levels, width_ms, number) DO UPDATE SET noted = excluded.noted";

/// What two nodes take at the same time differs.
pub(super) const TAKE_CHANGED: &str = r"
DELETE FROM lately.changed WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM lately.changed
    WHERE (SELECT max(noted) FROM lately.changed) > now() - $2::bigint * interval '1 ms'
    LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING counter_key, levels, width_ms, number";

pub(super) const CHANGED: &str = "SELECT count(*) FROM lately.changed";

/// The cells behind a place.
pub(super) const SCAN: &str = r"
SELECT counter_key, levels, width_ms, pane FROM lately.virtual_counter
WHERE (counter_key, levels, width_ms, pane) >= ($1, $2, $3, $4)
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $5";

/// The partitions that are over.
pub(super) const OVER: &str = r"
SELECT width_ms, number FROM lately.partition WHERE keep_until_ms < extract(epoch FROM now()) * 1000 LIMIT 16";
