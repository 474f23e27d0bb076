-- Bids in the first 20 seconds of an auction, with what it sells. Merged by R4.
--
-- Nothing in a result tells which bid or auction it came from, so equal results repeat: they are a multiset. A result
-- lives for the instant of the later of its two rows.
--
-- Plans, both conservative, physically different: the two orders of the join, which side is probed with which.
--
-- @source bids: auction bigint
-- @source auctions: id bigint, item_name string, category bigint
-- @key category

-- @plan bids_first
SELECT a.category AS category, a.item_name AS item_name,
       unix_millis(greatest(b.event_time, a.event_time)) AS vs,
       unix_millis(greatest(b.event_time, a.event_time)) + 1 AS ve
FROM bids AS b
JOIN auctions AS a
  ON b.auction = a.id
 AND b.event_time >= a.event_time
 AND b.event_time < a.event_time + INTERVAL 20 SECONDS

-- @plan auctions_first
SELECT a.category AS category, a.item_name AS item_name,
       unix_millis(greatest(b.event_time, a.event_time)) AS vs,
       unix_millis(greatest(b.event_time, a.event_time)) + 1 AS ve
FROM auctions AS a
JOIN bids AS b
  ON a.id = b.auction
 AND b.event_time >= a.event_time
 AND b.event_time < a.event_time + INTERVAL 20 SECONDS
