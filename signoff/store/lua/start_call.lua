-- Marks a call as started, right before it runs: the mode and the rules are
-- those it was checked against, and the digest is the one that was allowed.
-- ARGV[1] {id, fence, n, digest, rules_v, mode_v, rerun, attempt}
-- Returns {'ok', attempt} | {'lost'} | {'stale', what}.
local key, calls = P .. 'run:' .. A.id, P .. 'calls:' .. A.id
local run = redis.call('HMGET', key, 'fence', 'status', 'mode_v', 'acct')
if run[1] ~= A.fence then return {'lost'} end
if run[2] ~= 'running' and run[2] ~= 'awaiting_approval' then return {'lost'} end
local c = redis.call('HMGET', calls, A.n .. '.state', A.n .. '.run_digest', A.n .. '.grant',
  A.n .. '.attempt')
if c[1] == 'started' and tonumber(c[4]) == A.attempt then return {'ok', c[4]} end
if c[1] == 'started' and not A.rerun then return {'stale', 'calls'} end
if c[1] ~= 'allowed' and c[1] ~= 'started' then return {'stale', 'calls'} end
if c[2] ~= A.digest then return {'stale', 'digest'} end
if stale_version('rules', run[4], A.rules_v) then return {'stale', 'rules'} end
-- Not only where the mode is the grant: a switch to plan guards calls that a rule allows as well.
if c[3]:sub(1, 5) ~= 'gate:' and run[3] ~= A.mode_v then return {'stale', 'mode'} end
if c[1] == 'allowed' then
  redis.call('HINCRBY', key, 'todo', -1)
  redis.call('HINCRBY', key, 'inflight', 1)
end
redis.call('HSET', calls, A.n .. '.state', 'started', A.n .. '.attempt', A.attempt)
audit(run[4], 'tool_start', A.id, {'call', redis.call('HGET', calls, A.n .. '.id'), 'digest', A.digest})
touch(key)
return {'ok', tostring(A.attempt)}
