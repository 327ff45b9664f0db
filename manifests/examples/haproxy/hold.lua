-- Holds a request while its backend has no server that takes traffic: waking from zero without a hop more.
-- In a backend section: `http-request lua.hold SECONDS MOST`. The held ones show as the backend's scur.
local held = {}

core.register_action("hold", {"http-req"}, function(txn, seconds, most)
  local backend = txn.f:be_name()
  if txn.f:nbsrv(backend) > 0 then return end
  local turns = tonumber(seconds) * 50
  held[backend] = (held[backend] or 0) + 1
  local reason = nil
  if held[backend] > tonumber(most) then reason = "too many requests wait" end
  while not reason and txn.f:nbsrv(backend) == 0 do
    turns = turns - 1
    if turns < 0 then reason = "no replica came in time" end
    core.msleep(20)
  end
  held[backend] = held[backend] - 1
  if reason then
    local reply = txn:reply({status = 503, reason = "Service Unavailable", body = reason .. "\n"})
    reply:add_header("retry-after", "5")
    txn:done(reply)
  end
end, 2)
