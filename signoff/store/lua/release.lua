-- Gives a lease back; refused while work is due or after a wake the holder has not seen.
-- ARGV[1] {id, fence, wake, force}
-- Returns {'released', hint} | {'due', run flat, calls flat} | {'lost'}.
local key = P .. 'run:' .. A.id
local run = read(key)
if run.fence ~= A.fence then return {'lost'} end
if not A.force and not terminal(run) and (run.wake ~= A.wake or due(run)) then
  return {'due', flat(run), redis.call('HGETALL', P .. 'calls:' .. A.id)}
end
redis.call('HSET', key, 'lease_until', '0')
redis.call('ZREM', P .. 'leases', A.id)
run.lease_until = '0'
if due(run) then return {'released', make_ready(A.id, run, true)} end
return {'released', 0}
