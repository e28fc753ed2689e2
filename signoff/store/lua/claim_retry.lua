-- Names the run that retries this one, if it still is over and nobody named another meanwhile.
-- ARGV[1] {id, acct, seen, child}; seen = the retrying run that the caller knows of, '' for none
-- Returns {'ok'} | {'missing'} | {'stale', 'run'}.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
if run.status ~= 'failed' and run.status ~= 'cancelled' then return {'stale', 'run'} end
if (redis.call('HGET', run.key, 'retried_by') or '') ~= A.seen then return {'stale', 'run'} end
redis.call('HSET', run.key, 'retried_by', A.child, 'retried', int(NOW))
return {'ok'}
