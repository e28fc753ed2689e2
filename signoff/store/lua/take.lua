-- Takes up to A.max ready runs under a lease each and records the drainer as awake.
-- ARGV[1] {drainer, lease_ms, awake_ms, max}
-- Returns a list of {id, run hash flat, calls hash flat}.
local taken = {}
while #taken < A.max do
  local head = redis.call('ZPOPMIN', P .. 'ready', 1)
  if #head == 0 then break end
  local run, score, class = load(head[1]), tonumber(head[2]), 'r'
  if score >= START_CLASS then class = 's' score = score - START_CLASS end
  redis.call('HSET', P .. 'vtime', class, int(score))
  if run.acct then
    local name = class .. ':' .. run.acct
    if tonumber(redis.call('HGET', P .. 'vtime', name) or '0') <= score + 1 then
      redis.call('HDEL', P .. 'vtime', name)
    end
  end
  if run.status and not leased(run) and due(run) then
    add(run, 'fence', 1)
    if run.crashed == '1' then
      add(run, 'takeovers', 1)
      put(run, 'crashed', '0')
    end
    put(run, 'lease_until', int(NOW + A.lease_ms))
    put(run, 'owner', A.drainer)
    save(run)
    redis.call('ZADD', P .. 'leases', run.lease_until, run.id)
    taken[#taken + 1] = {run.id, redis.call('HGETALL', run.key), redis.call('HGETALL', run.calls)}
  end
end
redis.call('ZADD', P .. 'awake', int(NOW + A.awake_ms), A.drainer)
redis.call('HSET', P .. 'room', A.drainer, A.max - #taken)
return taken
