-- Returns runs whose lease ran out to the ready queue.
-- ARGV[1] {limit}  Returns {expired count, ready count}.
-- First a write that a full server refuses: its holders cannot renew, which is no crash of theirs.
redis.call('HSET', P .. 'room', '', '0')
local ids = redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', int(NOW), 'LIMIT', 0, A.limit)
for _, id in ipairs(ids) do
  local run = load(id)
  redis.call('ZREM', P .. 'leases', id)
  if run.status and not leased(run) then
    put(run, 'lease_until', '0')
    if due(run) then
      put(run, 'crashed', '1')
      make_ready(run, true)
    end
    save(run)
  end
end
redis.call('ZREMRANGEBYSCORE', P .. 'awake', '-inf', int(NOW - 60000))
return {#ids, redis.call('ZCARD', P .. 'ready')}
