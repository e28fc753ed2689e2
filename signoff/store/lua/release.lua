-- Gives a lease back; refused while work is due or after a wake the holder has not seen.
-- ARGV[1] {id, fence, wake, force}
-- Returns {'released', hint} | {'due', run flat, calls flat} | {'lost'}.
local run = load(A.id)
if run.fence ~= A.fence then return {'lost'} end
if not A.force and not terminal(run) and (run.wake ~= A.wake or due(run)) then
  return {'due', redis.call('HGETALL', run.key), redis.call('HGETALL', run.calls)}
end
end_lease(run)
save(run)
if due(run) then return {'released', make_ready(run, true)} end
return {'released', 0}
