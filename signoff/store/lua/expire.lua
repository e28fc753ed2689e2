-- Settles what is still open of a pause whose time is over: the same compare-and-set as a
-- person's decision, so exactly one of the two holds. The entry goes with the last gate.
-- ARGV[1] {id, acct, pause, items, last, mode_v, subs_v, event, eps, resumed, resumed_eps, frames}
-- items as in decide: all pending gates of the pause
-- Returns {'ok', hint} | {'gone'} | {'missing'} | {'stale', what}.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
if terminal(run) then
  drop_times(A.id, A.pause)
  return {'gone'}
end
if not is_due(A.id, A.pause, 'expire') then return {'gone'} end
if run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
local gates, pending = {}, redis.call('HGET', P .. 'pauses:' .. A.id, A.pause)
if tonumber(pending) ~= #A.items then return {'stale', 'gates'} end
for i, s in ipairs(A.items) do
  gates[i] = load_gate(s.req)
  if gates[i].state ~= 'pending' then return {'stale', 'gates'} end
end
-- The event says how the run stands afterwards.
local last = num(run, 'open') == #A.items
if last ~= A.last then return {'stale', 'open'} end
emit(A.event, A.eps, run.acct, A.id, '')
for i, s in ipairs(A.items) do settle(run, s.req, gates[i], s) end
if last then
  put(run, 'status', 'running')
  emit(A.resumed, A.resumed_eps, run.acct, A.id, '')
end
frames(A.id)
return {'ok', wake(run)}
