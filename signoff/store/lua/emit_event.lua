-- Writes an event that belongs to no run's transition (webhook.test, endpoint.disabled).
-- ARGV[1] {acct, event, eps, shard, shards}  Returns 'ok'.
if redis.call('EXISTS', P .. 'ev:' .. A.event.id) == 0 then emit(A.event, A.eps, A.acct, '', '') end
return 'ok'
