-- Returns runs whose lease ran out to the ready queue.
-- ARGV[1] {limit}  Returns {expired count, ready count}.
local ids = redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', int(NOW), 'LIMIT', 0, A.limit)
for _, id in ipairs(ids) do
  local key = P .. 'run:' .. id
  local run = read(key)
  redis.call('ZREM', P .. 'leases', id)
  if run.status and not leased(run) then
    redis.call('HSET', key, 'lease_until', '0')
    run.lease_until = '0'
    if due(run) then
      redis.call('HSET', key, 'crashed', '1')
      make_ready(id, run, true)
    end
  end
end
redis.call('ZREMRANGEBYSCORE', P .. 'awake', '-inf', int(NOW - 60000))
return {#ids, redis.call('ZCARD', P .. 'ready')}
