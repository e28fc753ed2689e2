-- Marks a call as started, right before it runs: the mode and the rules are
-- those it was checked against, and the digest is the one that was allowed.
-- ARGV[1] {id, fence, n, digest, rules_v, mode_v, rerun, attempt}
-- Returns {'ok', attempt} | {'lost'} | {'stale', what}.
local run = load(A.id)
if run.fence ~= A.fence or terminal(run) then return {'lost'} end
local c = redis.call('HMGET', run.calls, A.n .. '.state', A.n .. '.run_digest', A.n .. '.grant',
  A.n .. '.attempt', A.n .. '.id', A.n .. '.eff')
if c[1] == 'started' and tonumber(c[4]) == A.attempt then return {'ok', c[4]} end
if c[1] == 'started' and not A.rerun then return {'stale', 'calls'} end
if c[1] ~= 'allowed' and c[1] ~= 'started' then return {'stale', 'calls'} end
if c[2] ~= A.digest then return {'stale', 'digest'} end
if stale_version('rules', run.acct, A.rules_v) then return {'stale', 'rules'} end
-- Not only where the mode is the grant: a switch to plan guards calls that a rule allows as well.
if c[3]:sub(1, 5) ~= 'gate:' and run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if c[1] == 'allowed' then
  add(run, 'todo', -1)
  add(run, 'inflight', 1)
end
-- A retry of the run would repeat it, so it is not made without being confirmed.
if c[6] ~= 'read' then put(run, 'acted', '1') end
redis.call('HSET', run.calls, A.n .. '.state', 'started', A.n .. '.attempt', A.attempt)
audit(run.acct, 'tool_start', A.id, {'call', c[5], 'digest', A.digest})
save(run, true)
return {'ok', tostring(A.attempt)}
