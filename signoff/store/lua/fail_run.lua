-- The holder ends a run as failed without a model answer; the history stays as it is.
-- ARGV[1] {id, fence, error, error_code, event, eps, subs_v, mode_v, frames}
-- Returns {'ok'} | {'lost'} | {'stale', what}.
local key = P .. 'run:' .. A.id
local run = read(key)
if run.fence ~= A.fence or terminal(run) then return {'lost'} end
if run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
set_status(A.id, run, 'failed')
redis.call('HSET', key, 'error', blob(A.error), 'error_code', A.error_code, 'lease_until', '0')
redis.call('ZREM', P .. 'leases', A.id)
emit(A.event, A.eps, run.acct, A.id, '')
frames(A.id)
touch(key)
return {'ok'}
