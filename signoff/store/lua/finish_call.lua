-- Stores a call's result; from 'started', or from 'allowed' when the call is refused unrun.
-- A result that comes after the fence moved is kept in the audit only.
-- ARGV[1] {id, fence, n, attempt, result, frames}; blobs: result
-- Returns {'ok', wake, left} | {'lost'}.
local key, calls = P .. 'run:' .. A.id, P .. 'calls:' .. A.id
local run = redis.call('HMGET', key, 'fence', 'status', 'acct', 'wake')
local c = redis.call('HMGET', calls, A.n .. '.state', A.n .. '.attempt', A.n .. '.id')
if run[1] ~= A.fence or (run[2] ~= 'running' and run[2] ~= 'awaiting_approval') then
  if run[3] then
    audit(run[3], 'late_result', A.id, {'call', A.call, 'result', blob(A.result)})
  end
  return {'lost'}
end
if c[1] == 'done' then return {'ok', run[4], redis.call('HGET', key, 'left')} end
if c[1] == 'started' and tonumber(c[2]) == A.attempt then redis.call('HINCRBY', key, 'inflight', -1)
elseif c[1] == 'allowed' and A.attempt == 0 then redis.call('HINCRBY', key, 'todo', -1)
else return {'lost'} end
redis.call('HSET', calls, A.n .. '.state', 'done', A.n .. '.result', blob(A.result))
local left = redis.call('HINCRBY', key, 'left', -1)
redis.call('HSET', key, 'takeovers', '0')
frames(A.id)
touch(key)
return {'ok', run[4], int(left)}
