-- Records the outcomes of attempts; a token that is not the claimer's is refused.
-- ARGV[1] {token, items = {{id, n, outcome = success|retry|failed|cancelled, status, error, attempt,
--          delay_ms?, hold_ms?}}}; blobs: attempt (log row), body (first bytes of the answer)
-- Returns per item {id, 1|0, failing_since_ms or ''}.
local out = {}
for _, r in ipairs(A.items) do
  local d = P .. 'dlv:' .. r.id
  local v = redis.call('HMGET', d, 'token', 'state', 'ep', 'settled', 'n')
  local ep = v[3]
  -- The attempt as well: a relay that lost a lease may have claimed the row anew itself.
  if v[1] ~= A.token or v[2] ~= 'leased' or tonumber(v[5]) ~= r.n then
    out[#out + 1] = {r.id, 0, ''}
  else
    redis.call('ZREM', P .. 'dlease', r.id)
    if redis.call('HINCRBY', P .. 'epin', ep, -1) <= 0 then redis.call('HDEL', P .. 'epin', ep) end
    redis.call('RPUSH', P .. 'att:' .. r.id, blob(r.attempt))
    redis.call('LTRIM', P .. 'att:' .. r.id, -50, -1)
    local state, next = r.outcome, ''
    if state == 'retry' then
      if v[4] == '1' then state = 'superseded' else
        state = 'pending'
        next = int(NOW + r.delay_ms)
        redis.call('ZADD', P .. 'due:' .. ep, next, r.id)
      end
    end
    redis.call('HSET', d, 'state', state, 'next', next, 'status', r.status, 'error', r.error,
      'tried', '1', 'body', blob(r.body), 'token', '')
    -- What the receiver asked for stands, also when attempts that were on their way end otherwise.
    local hold = tonumber(redis.call('HGET', P .. 'ephold', ep) or '0')
    if given(r.hold_ms) then
      redis.call('HSET', P .. 'ephold', ep, int(math.max(hold, NOW + r.hold_ms)))
    elseif hold > 0 and hold <= NOW then
      redis.call('HDEL', P .. 'ephold', ep)
    end
    local since = ''
    if r.outcome == 'success' then
      redis.call('DEL', P .. 'epf:' .. ep)
    elseif r.outcome ~= 'cancelled' then
      redis.call('HSETNX', P .. 'epf:' .. ep, 'since', int(NOW))
      redis.call('HINCRBY', P .. 'epf:' .. ep, 'fails', 1)
      since = int(NOW - tonumber(redis.call('HGET', P .. 'epf:' .. ep, 'since')))
    end
    local first = redis.call('ZRANGE', P .. 'due:' .. ep, 0, 0, 'WITHSCORES')
    if #first > 0 then
      redis.call('ZADD', P .. 'eps', int(math.max(tonumber(first[2]), NOW)), ep)
    end
    out[#out + 1] = {r.id, 1, since}
  end
end
return out
