-- The pauses of a shard that are due, longest first, and when the next one is.
-- ARGV[1] {limit}  Returns {milliseconds to the next or '', entry...}.
local key = P .. 'timed'
local entries = redis.call('ZRANGEBYSCORE', key, '-inf', int(NOW), 'LIMIT', 0, A.limit)
local later = redis.call('ZRANGEBYSCORE', key, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {later[2] and int(tonumber(later[2]) - NOW) or '', unpack(entries)}
