-- A drainer goes to sleep only when nothing is ready; otherwise it is told to go on.
-- ARGV[1] {drainer, force}  Returns 1 when asleep, 0 to go on.
if not A.force and redis.call('ZCARD', P .. 'ready') > 0 then return 0 end
redis.call('ZREM', P .. 'awake', A.drainer)
redis.call('HDEL', P .. 'room', A.drainer)
return 1
