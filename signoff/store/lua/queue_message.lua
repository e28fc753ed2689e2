-- Queues a user message for a run that executes or is parked; it becomes the next turn.
-- ARGV[1] {id, acct, message_id, item, event, eps, subs_v}; blobs: item ({id, text, at} as JSON)
-- Returns {'ok'} | {'exists'} | {'missing'} | {'stale', what}.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
if redis.call('SISMEMBER', P .. 'mids:' .. A.id, A.message_id) == 1 then return {'exists'} end
if terminal(run) then return {'stale', 'run'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
redis.call('SADD', P .. 'mids:' .. A.id, A.message_id)
redis.call('RPUSH', P .. 'inbox:' .. A.id, blob(A.item))
add(run, 'queued', 1)
emit(A.event, A.eps, run.acct, A.id, '')
save(run, true)
return {'ok'}
