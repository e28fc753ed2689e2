-- Extends the leases of the runs a worker holds and its own awake mark.
-- ARGV[1] {lease_ms, held = {{id, fence}}, drainer?, awake_ms, room}
-- Returns per run {id, ok, wake}.
local out = {}
for _, h in ipairs(A.held) do
  local key = P .. 'run:' .. h[1]
  local v = redis.call('HMGET', key, 'fence', 'wake', 'lease_until')
  -- '0': it was given back, or the sweeper has queued the run. A heartbeat that comes late must
  -- not hold a run that nobody drives.
  if v[1] == h[2] and v[3] ~= '0' then
    redis.call('HSET', key, 'lease_until', int(NOW + A.lease_ms))
    redis.call('ZADD', P .. 'leases', int(NOW + A.lease_ms), h[1])
    out[#out + 1] = {h[1], 1, v[2]}
  else
    out[#out + 1] = {h[1], 0, v[2] or '0'}
  end
end
if given(A.drainer) then
  redis.call('ZADD', P .. 'awake', int(NOW + A.awake_ms), A.drainer)
  redis.call('HSET', P .. 'room', A.drainer, A.room)
end
return out
