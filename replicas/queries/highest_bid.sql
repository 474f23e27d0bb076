-- The highest bid of every tumbling window; of equal ones the first, which has the smallest id. Merged by R0.
--
-- Plans, both conservative, physically different:
--
--     direct       one maximum per window; all rows of a window meet in one place
--     by_auction   a maximum per auction first, spread over the cluster, then the maximum of those
--
-- A maximum of structs compares them field by field, so that ties are broken by -id.
--
-- @source bids: id bigint, auction bigint, bidder bigint, price bigint
-- @key auction
-- @window 10 s

-- @plan direct
SELECT best.price AS price, -best.minus_id AS bid, best.auction AS auction, best.bidder AS bidder,
       unix_millis(window.start) AS vs, unix_millis(window.end) AS ve
FROM (
    SELECT window, max(struct(price, -id AS minus_id, auction, bidder)) AS best
    FROM bids
    GROUP BY window(event_time, :width, :slide)
)

-- @plan by_auction
WITH parts AS (
    SELECT window, auction, max(struct(price, -id AS minus_id, auction, bidder)) AS best
    FROM bids
    GROUP BY window(event_time, :slide), auction
),
timed AS (
    SELECT window_time(window) AS pane_time, best FROM parts
)
SELECT best.price AS price, -best.minus_id AS bid, best.auction AS auction, best.bidder AS bidder,
       unix_millis(window.start) AS vs, unix_millis(window.end) AS ve
FROM (
    SELECT window, max(best) AS best
    FROM timed
    GROUP BY window(pane_time, :width, :slide)
)
