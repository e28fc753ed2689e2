-- Keeps the leases of deliveries that are still being sent.
-- ARGV[1] {token, ids, lease_ms}  Returns how many were still this relay's.
local kept = 0
for _, id in ipairs(A.ids) do
  local v = redis.call('HMGET', P .. 'dlv:' .. id, 'token', 'state')
  if v[1] == A.token and v[2] == 'leased' then
    redis.call('ZADD', P .. 'dlease', 'XX', int(NOW + A.lease_ms), id)
    kept = kept + 1
  end
end
return kept
