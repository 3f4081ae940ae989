"""Queries that Spark accepts, over `input` and the table `people`, with SQL of many kinds: none of
them may be reported as wrong.
"""

from __future__ import annotations

SCHEMA = (
    "id bigint, amount double, at timestamp, name string, tags array<string>, "
    "place struct<city: string, zip: int>, m map<string, string>"
)
PEOPLE = "person_id bigint, country string"
QUERIES = (
    "SELECT *, amount * 1.2 AS gross FROM input",
    (
        "SELECT id, upper(name) AS n, amount / 2 AS half, id % 2 = 0 AS even FROM input WHERE amount > "
        "1 AND name LIKE 'a%'"
    ),
    "select ID, Amount from INPUT",
    "SELECT * EXCEPT (tags, m) FROM input",
    "SELECT i.*, 1 AS one FROM input AS i",
    "SELECT place.city AS city, input.place.zip AS zip, tags[0] AS tag, m['a'] AS a, m.b AS b FROM input",
    "SELECT place.* FROM input",
    "SELECT transform(tags, t -> concat(t, name)) AS t, filter(tags, x -> x > 'a') AS f FROM input",
    (
        "SELECT transform(array(place), (p, i) -> p.zip + i + id) AS z, transform(tags, t -> "
        "transform(tags, u -> concat(t, u))) AS tt FROM input"
    ),
    "SELECT aggregate(tags, 0, (n, t) -> n + length(t)) AS n, exists(tags, t -> t IS NULL) AS e FROM input",
    "SELECT id, explode(tags) AS tag FROM input",
    "SELECT id, tag, city FROM (SELECT id, place.city AS city, explode(tags) AS tag FROM input)",
    "SELECT id, tag FROM input LATERAL VIEW explode(tags) AS tag",
    "SELECT id, k, v FROM input LATERAL VIEW OUTER explode(m) t AS k, v",
    "SELECT pos, col FROM (SELECT posexplode(tags) FROM input)",
    "SELECT id AS a, a + 1 AS b, b * 2 AS c FROM input",
    "SELECT i.id, p.country FROM input i JOIN people p ON i.id = p.person_id",
    "SELECT i.id FROM input i LEFT SEMI JOIN people p ON i.id = p.person_id",
    "SELECT /*+ BROADCAST(p) */ i.id, country FROM input i LEFT JOIN people p ON i.id = p.person_id",
    "SELECT id, country FROM input JOIN (SELECT person_id AS id, country FROM people) USING (id)",
    "WITH big AS (SELECT id, amount FROM input WHERE amount > 10) SELECT b.id, b.amount AS total FROM big b",
    "SELECT id FROM input WHERE id IN (SELECT person_id FROM people)",
    "SELECT id FROM input WHERE EXISTS (SELECT 1 FROM people WHERE person_id = input.id)",
    "SELECT id FROM input UNION ALL SELECT id + 1 FROM input",
    (
        "SELECT date(at) AS day, hour(at) AS h, date_format(at, 'yyyy-MM') AS m, date_trunc('hour', "
        "at) AS t FROM input"
    ),
    (
        "SELECT at + INTERVAL 1 DAY AS tomorrow, at - INTERVAL '2' HOUR AS before, extract(HOUR FROM "
        "at) AS h FROM input"
    ),
    (
        "SELECT dateadd(DAY, 1, at) AS d, timestampdiff(MINUTE, at, current_timestamp()) AS m, "
        "unix_millis(at) AS u FROM input"
    ),
    (
        "SELECT cast(amount AS int) AS i, try_cast(name AS double) AS d, id::string AS s, string(id) "
        "AS t FROM input"
    ),
    (
        "SELECT CASE WHEN amount > 1 THEN 'a' ELSE 'b' END AS c, if(id = 1, 1, 2) AS i, coalesce(name, "
        "'') AS n, nvl(name, 'x') AS v FROM input"
    ),
    "SELECT to_json(struct(*)) AS value, named_struct('a', id).a AS a, struct(id AS x).x AS x FROM input",
    "SELECT from_json(name, 'a INT, b STRING').b AS b, get_json_object(name, '$.a') AS a FROM input",
    (
        "SELECT name RLIKE '^a' AS r, name <=> NULL AS n, name IS DISTINCT FROM 'a' AS d, name ILIKE "
        "'%B%' AS i, !isnull(name) AS k FROM input"
    ),
    (
        "SELECT regexp_extract(name, '(\\\\d+)', 1) AS n, split(name, ',')[0] AS first, sha2(name, "
        "256) AS h, substring(name, 1, 2) AS s FROM input"
    ),
    "SELECT name, window.start AS start, count(*) AS n FROM input GROUP BY name, window(at, '5 minutes')",
    "SELECT count(*) AS n FROM input GROUP BY window(at, '5 minutes', '1 minute')",
    "SELECT name, sum(amount) AS total FROM input GROUP BY name HAVING total > 3",
    (
        "SELECT name, max_by(id, at) AS last, collect_list(id) AS ids, approx_count_distinct(id) AS n "
        "FROM input GROUP BY name"
    ),
    (
        "SELECT name, count(*) FILTER (WHERE amount > 1) AS n, percentile_approx(amount, 0.5) AS p "
        "FROM input GROUP BY ALL"
    ),
    "SELECT DISTINCT name FROM input",
    "SELECT id, current_date AS today, current_timestamp AS now FROM input",
    "FROM input SELECT id, name",
    "SELECT id FROM input; ",
    "-- all of it\nSELECT\n  id, -- the id\n  name\nFROM input\n",
    "SELECT `id`, `name` AS `the name` FROM `input`",
    "SELECT v.x FROM input, VALUES (1), (2) AS v(x)",
    "SELECT stack(2, 'a', id, 'b', id + 1) AS (k, v) FROM input",
    "SELECT inline(array(struct(id AS a, name AS b))) FROM input",
    "SELECT key, value FROM (SELECT explode(m) FROM input)",
    "SELECT * FROM input TABLESAMPLE (10 PERCENT)",
    "SELECT * FROM input |> WHERE id > 1 |> SELECT id, name",
    "SELECT id, r'\\d' AS r, X'1F' AS x, 1L AS l, 2.5BD AS d, 'it''s' AS q, \"two\" AS t FROM input",
    "SELECT id, collate(name, 'UTF8_LCASE') AS c, make_timestamp(2026, 1, 1, 0, 0, 0) AS t FROM input",
    "SELECT id, variant_get(parse_json(name), '$.a', 'int') AS v FROM input",
    "SELECT * FROM input LIMIT 5",
    "(SELECT id FROM input)",
)
"""Streams cannot run all of these, but all are Spark SQL."""
WRONG_QUERIES = (
    "SELECT nope FROM input",
    "SELECT id, name AS x FROM input WHERE nope > 1",
    "SELECT p.nope FROM input i JOIN people p ON i.id = p.person_id",
    "WITH x AS (SELECT id FROM input) SELECT name FROM x",
    "SELECT zip FROM input",
    "SELECT nope.id FROM input",
    "SELECT upper(nope) AS a FROM input GROUP BY name",
    "SELECT transform(tags, t -> concat(t, nope)) AS x FROM input",
)
"""Each query names a column that does not exist."""
EXPRESSIONS = (
    "amount > 0",
    "id IS NOT NULL AND name <> ''",
    "name IN ('a', 'b') OR NOT (amount BETWEEN 1 AND 2)",
    "length(name) = 2",
    "exists(tags, t -> t = 'a')",
    "place.city RLIKE '^[A-Z]'",
    "true",
    "isnotnull(at) AND at < current_timestamp()",
    "CASE WHEN id > 1 THEN amount > 1 ELSE true END",
    "coalesce(amount > 1, false)",
    "(amount > 1)",
    "size(tags) > 0 AND m['a'] IS NULL",
    "id % 2 = 0",
    "contains(name, 'a')",
)
SCHEMAS = (
    "id bigint, amount double",
    "id: bigint, amount: double",
    "ID BIGINT NOT NULL COMMENT 'the id', s STRUCT<a: INT, b: ARRAY<STRING>>, m MAP<STRING, INT>",
    "struct<a:int,b:string>",
    "a decimal(10,2), d timestamp_ntz, e interval day to second, f void, g binary, h byte, i short, j long",
    (
        "a decimal, b dec(4,1), c numeric(3), d integer, e real, f float, g tinyint, h boolean, i "
        "date, j timestamp_ltz, k interval year to month"
    ),
    "`we ird` string, `a``b` int",
    (
        "location struct<lat double, lon double>, order int, group string, date date, timestamp "
        "timestamp, value binary, `from` string"
    ),
    "a array<array<int>>, b map<string, array<struct<x: int>>>",
    "a string COLLATE UTF8_LCASE",
    "a variant",
)
