-- Changes the permission mode; autonomous also allows the named pending tool approvals.
-- ARGV[1] {id, acct, rev, rules_v, subs_v, mode, hitl, by, allow = {{req, fp}}, event, eps, frames}
-- Returns {'ok', resumed, hint} | {'missing'} | {'stale', what} | {'terminal', status}.
local key = P .. 'run:' .. A.id
local run = read(key)
if run.acct ~= A.acct then return {'missing'} end
if terminal(run) then return {'terminal', run.status} end
if run.rev ~= A.rev then return {'stale', 'run'} end
if stale_version('rules', run.acct, A.rules_v) then return {'stale', 'rules'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
redis.call('HSET', key, 'mode', A.mode)
if A.hitl then redis.call('HSET', key, 'hitl', '1') end
if A.mode == 'plan' and run.mode ~= 'plan' then redis.call('HSET', key, 'plan_ok', '0') end
redis.call('HINCRBY', key, 'mode_v', 1)
audit(run.acct, 'mode', A.id, {'mode', A.mode, 'by', A.by})
for _, g in ipairs(A.allow) do
  local gate = read(P .. 'gate:' .. g.req)
  settle(A.id, run, g.req, gate, {state = 'allowed', fp = g.fp, by = 'mode', call = 'allowed',
    grant = 'mode:' .. g.req})
end
local resumed = 0
if #A.allow > 0 and num(run, 'open') == 0 then
  set_status(A.id, run, 'running')
  emit(A.event, A.eps, run.acct, A.id, '')
  resumed = 1
end
frames(A.id)
touch(key)
return {'ok', resumed, wake(A.id, run)}
