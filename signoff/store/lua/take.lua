-- Takes up to A.max ready runs under a lease each and records the drainer as awake.
-- ARGV[1] {drainer, lease_ms, awake_ms, max, held}
-- Returns a list of {id, fence, crashed, run hash flat, calls hash flat}.
local taken, room = {}, A.max
while #taken < A.max do
  local head = redis.call('ZPOPMIN', P .. 'ready', 1)
  if #head == 0 then break end
  local id, score = head[1], tonumber(head[2])
  local key = P .. 'run:' .. id
  local run = read(key)
  local class = 'r'
  if score >= START_CLASS then class = 's' score = score - START_CLASS end
  redis.call('HSET', P .. 'vtime', class, int(score))
  if run.acct then
    local name = class .. ':' .. run.acct
    if tonumber(redis.call('HGET', P .. 'vtime', name) or '0') <= score + 1 then
      redis.call('HDEL', P .. 'vtime', name)
    end
  end
  if run.status and not leased(run) and due(run) then
    run.fence = int(redis.call('HINCRBY', key, 'fence', 1))
    if run.crashed == '1' then
      run.takeovers = int(redis.call('HINCRBY', key, 'takeovers', 1))
      redis.call('HSET', key, 'crashed', '0')
    end
    redis.call('HSET', key, 'lease_until', int(NOW + A.lease_ms), 'owner', A.drainer)
    redis.call('ZADD', P .. 'leases', int(NOW + A.lease_ms), id)
    taken[#taken + 1] = {id, run.fence, run.crashed or '0', flat(run),
      redis.call('HGETALL', P .. 'calls:' .. id)}
  end
end
redis.call('ZADD', P .. 'awake', int(NOW + A.awake_ms), A.drainer)
redis.call('HSET', P .. 'room', A.drainer, A.max - #taken)
return taken
