-- Stores a call's result; from 'started', or from 'allowed' when the call is refused unrun.
-- A result that comes after the fence moved is kept in the audit only.
-- ARGV[1] {id, fence, n, attempt, result, frames}; blobs: result
-- Returns {'ok', wake, left} | {'lost'}.
local run = load(A.id)
local c = redis.call('HMGET', run.calls, A.n .. '.state', A.n .. '.attempt')
if run.fence ~= A.fence or terminal(run) then
  if run.acct then
    audit(run.acct, 'late_result', A.id, {'call', A.call, 'result', blob(A.result)})
  end
  return {'lost'}
end
if c[1] == 'done' then return {'ok', run.wake, run.left} end
if c[1] == 'started' and tonumber(c[2]) == A.attempt then add(run, 'inflight', -1)
elseif c[1] == 'allowed' and A.attempt == 0 then add(run, 'todo', -1)
else return {'lost'} end
redis.call('HSET', run.calls, A.n .. '.state', 'done', A.n .. '.result', blob(A.result))
add(run, 'left', -1)
put(run, 'takeovers', '0')
frames(A.id)
save(run, true)
return {'ok', run.wake, run.left}
