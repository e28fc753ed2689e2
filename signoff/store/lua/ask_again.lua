-- The holder opens gates for calls of the current step that may not run as they stand: a mode or
-- rule that moved, or a started call whose outcome nobody knows. Always a new pause.
-- ARGV[1] {id, fence, mode_v, subs_v, pause_n, gates, pause_event, eps, frames}
-- Returns {'ok'} | {'lost'} | {'stale', what}.
local key, calls = P .. 'run:' .. A.id, P .. 'calls:' .. A.id
local run = read(key)
if run.fence ~= A.fence or terminal(run) then return {'lost'} end
if redis.call('EXISTS', P .. 'gate:' .. A.gates[1].id) == 1 then return {'ok'} end
if run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
if run.pause_n ~= A.pause_n then return {'stale', 'pause'} end -- the event names its number
local counter = {allowed = 'todo', started = 'inflight'}
local states = {}
for i, g in ipairs(A.gates) do
  states[i] = redis.call('HGET', calls, g.n .. '.state')
  if not counter[states[i]] then return {'stale', 'calls'} end
end
for _, state in ipairs(states) do redis.call('HINCRBY', key, counter[state], -1) end
local pause = open_gates(A.id, run, A.gates)
emit(A.pause_event, A.eps, run.acct, A.id, pause)
redis.call('HSET', key, 'takeovers', '0')
frames(A.id)
touch(key)
return {'ok'}
